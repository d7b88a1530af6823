// Which pages hold the K and V of which beginning of a text.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/ids.h"

namespace backplane::kv {

// What K and V depend on beside the tokens. Texts of different identities never share pages.
struct PrefixIdentity {
  std::uint64_t adapter = 0;  // and its version; 0: none
  std::uint64_t rope = 0;     // the rope factors
  std::string salt = {};      // of the tenant: who doesn't know it can't tell what others have asked

  auto operator<=>(const PrefixIdentity&) const = default;
};

using PrefixId = Id<struct PrefixTag>;  // a node: one beginning of a text, a whole number of pages long

// The hash of a prefix from that of the prefix one page shorter and the tokens of its last page.
using PrefixHash = std::uint64_t (*)(std::uint64_t parent, std::span<const TokenId> tokens);
std::uint64_t chain_hash(std::uint64_t parent, std::span<const TokenId> tokens);

// A tree of prefixes: a node is its parent and the tokens of one more page. It is found by a chained hash and then
// compared, parent and tokens, so that equal hashes of different texts cost time and nothing else. A node is there as
// long as it has a page in some group, a child or a pin.
//
// Memory: at most `max_nodes` nodes of page_size tokens each, beside one node for each identity that is pinned or has
// children. One thread at a time. Constant time but for the calls that give up the last hold on a node, which may
// remove its ancestors with it.
class PrefixIndex {
 public:
  // `pages`: of each group.
  PrefixIndex(std::uint32_t page_size, std::vector<std::uint32_t> pages, std::size_t max_nodes,
              PrefixHash hash = chain_hash);

  // The node of the empty prefix, pinned once more.
  PrefixId open_root(const PrefixIdentity& identity);
  // The prefix that goes on with these page_size tokens; invalid: it isn't there.
  PrefixId child(PrefixId parent, std::span<const TokenId> tokens) const;
  // The same, made if need be; invalid: max_nodes are there.
  PrefixId add_child(PrefixId parent, std::span<const TokenId> tokens);
  PrefixId parent(PrefixId node) const { return PrefixId{at(node).parent}; }

  void pin(PrefixId node) { ++at(node).holds; }
  void unpin(PrefixId node);

  // The page of a group with K and V of the prefix's last page_size tokens; invalid: there is none.
  PageId page(PrefixId node, std::uint32_t group) const { return PageId{pages_[place(node, group)]}; }
  // Requires: the node has no page in the group, and the page has no node.
  void attach(PrefixId node, std::uint32_t group, PageId page);
  // The prefix whose page it is; invalid: none.
  PrefixId node_of(std::uint32_t group, PageId page) const {
    return node_of_[group][static_cast<std::size_t>(page.value)];
  }
  // The page no longer has the contents of its prefix. Nothing if it has none.
  void detach(std::uint32_t group, PageId page);

  std::size_t nodes() const { return count_; }  // not counting empty prefixes
  std::size_t max_nodes() const { return max_nodes_; }

 private:
  struct Node {
    std::uint64_t hash = 0;
    std::int32_t parent = -1;
    std::int32_t next = -1;   // of the same bucket
    std::uint32_t holds = 0;  // pages, children and pins
  };
  using Roots = std::map<PrefixIdentity, PrefixId>;

  Node& at(PrefixId node) { return nodes_[static_cast<std::size_t>(node.value)]; }
  const Node& at(PrefixId node) const { return nodes_[static_cast<std::size_t>(node.value)]; }
  std::size_t place(PrefixId node, std::uint32_t group) const {
    return static_cast<std::size_t>(node.value) * node_of_.size() + group;
  }
  std::size_t bucket(std::uint64_t hash) const { return static_cast<std::size_t>(hash) & (buckets_.size() - 1); }
  PrefixId find(std::uint64_t hash, PrefixId parent, std::span<const TokenId> tokens) const;
  PrefixId make(std::uint64_t hash);
  void link(PrefixId node);
  void unlink(PrefixId node);
  void grow_buckets();
  void drop(PrefixId node);

  std::uint32_t page_size_;
  std::size_t max_nodes_;
  PrefixHash hash_;
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;                 // [node, page_size]
  std::vector<std::int32_t> pages_;             // [node, group]
  std::vector<PrefixId> unused_;                // nodes that may be used again
  std::vector<std::int32_t> buckets_;           // a power of two of them: the first node of each
  std::vector<std::vector<PrefixId>> node_of_;  // by group and page
  std::size_t count_ = 0;
  Roots roots_;
  std::unordered_map<PrefixId, Roots::iterator> root_of_;
};

}  // namespace backplane::kv
