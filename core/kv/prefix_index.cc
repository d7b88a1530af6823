#include "core/kv/prefix_index.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace backplane::kv {
namespace {

// splitmix64's mixing function.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

std::uint64_t hash_of(const PrefixIdentity& identity) {
  std::uint64_t hash = mix(mix(identity.adapter + 0x9E3779B97F4A7C15) ^ identity.rope);
  for (const char c : identity.salt) hash = mix(hash ^ static_cast<unsigned char>(c));
  return hash;
}

}  // namespace

std::uint64_t chain_hash(std::uint64_t parent, std::span<const TokenId> tokens) {
  std::uint64_t hash = mix(parent + 0x9E3779B97F4A7C15);
  for (const TokenId token : tokens) {  // one multiplication each: this is done for every page of every prompt
    hash = (hash ^ static_cast<std::uint32_t>(token)) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
  }
  return mix(hash);
}

PrefixIndex::PrefixIndex(std::uint32_t page_size, std::vector<std::uint32_t> pages, std::size_t max_nodes,
                         PrefixHash hash)
    : page_size_(page_size), max_nodes_(max_nodes), hash_(hash), buckets_(64, -1) {
  for (const std::uint32_t n : pages) node_of_.emplace_back(n);
}

PrefixId PrefixIndex::open_root(const PrefixIdentity& identity) {
  const auto [it, added] = roots_.try_emplace(identity);
  if (added) {
    it->second = make(hash_of(identity));
    root_of_.emplace(it->second, it);
  }
  pin(it->second);
  return it->second;
}

PrefixId PrefixIndex::child(PrefixId parent, std::span<const TokenId> tokens) const {
  return find(hash_(at(parent).hash, tokens), parent, tokens);
}

PrefixId PrefixIndex::add_child(PrefixId parent, std::span<const TokenId> tokens) {
  const std::uint64_t hash = hash_(at(parent).hash, tokens);
  PrefixId node = find(hash, parent, tokens);
  if (node.valid() || count_ == max_nodes_) return node;
  node = make(hash);
  at(node).parent = parent.value;
  std::copy(tokens.begin(), tokens.end(),
            tokens_.begin() + static_cast<std::ptrdiff_t>(node.value) * static_cast<std::ptrdiff_t>(page_size_));
  pin(parent);
  if (++count_ > buckets_.size()) grow_buckets();
  link(node);
  return node;
}

PrefixId PrefixIndex::find(std::uint64_t hash, PrefixId parent, std::span<const TokenId> tokens) const {
  for (std::int32_t i = buckets_[bucket(hash)]; i >= 0; i = nodes_[static_cast<std::size_t>(i)].next) {
    const Node& node = nodes_[static_cast<std::size_t>(i)];
    if (node.hash == hash && node.parent == parent.value &&
        std::equal(tokens.begin(), tokens.end(), &tokens_[static_cast<std::size_t>(i) * page_size_])) {
      return PrefixId{i};
    }
  }
  return {};
}

PrefixId PrefixIndex::make(std::uint64_t hash) {
  if (unused_.empty()) {
    unused_.emplace_back(static_cast<std::int32_t>(nodes_.size()));
    nodes_.emplace_back();
    tokens_.resize(tokens_.size() + page_size_);
    pages_.resize(pages_.size() + node_of_.size(), -1);
  }
  const PrefixId node = unused_.back();
  unused_.pop_back();
  at(node) = {.hash = hash};
  return node;
}

void PrefixIndex::unpin(PrefixId node) { drop(node); }

void PrefixIndex::attach(PrefixId node, std::uint32_t group, PageId page) {
  if (this->page(node, group).valid() || node_of(group, page).valid()) {
    throw Error(ErrorCode::kInternal, "a KV page was given to a prefix twice");
  }
  pages_[place(node, group)] = page.value;
  node_of_[group][static_cast<std::size_t>(page.value)] = node;
  pin(node);
}

void PrefixIndex::detach(std::uint32_t group, PageId page) {
  const PrefixId node = std::exchange(node_of_[group][static_cast<std::size_t>(page.value)], PrefixId{});
  if (!node.valid()) return;
  pages_[place(node, group)] = -1;
  drop(node);
}

// One hold less; without any the node goes, and with it its hold on its parent.
void PrefixIndex::drop(PrefixId node) {
  while (node.valid() && --at(node).holds == 0) {
    const PrefixId up = parent(node);
    if (up.valid()) {
      unlink(node);
      --count_;
    } else {
      const auto root = root_of_.find(node);
      roots_.erase(root->second);
      root_of_.erase(root);
    }
    unused_.push_back(node);
    node = up;
  }
}

void PrefixIndex::link(PrefixId node) {
  std::int32_t& first = buckets_[bucket(at(node).hash)];
  at(node).next = std::exchange(first, node.value);
}

void PrefixIndex::unlink(PrefixId node) {
  std::int32_t* link = &buckets_[bucket(at(node).hash)];
  while (*link != node.value) link = &nodes_[static_cast<std::size_t>(*link)].next;
  *link = at(node).next;
}

void PrefixIndex::grow_buckets() {
  const std::vector<std::int32_t> old = std::exchange(buckets_, std::vector<std::int32_t>(2 * buckets_.size(), -1));
  for (std::int32_t i : old) {
    while (i >= 0) {
      const std::int32_t next = nodes_[static_cast<std::size_t>(i)].next;
      link(PrefixId{i});
      i = next;
    }
  }
}

}  // namespace backplane::kv
