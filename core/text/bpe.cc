#include "core/text/bpe.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <queue>
#include <string>

#include "core/base/error.h"
#include "core/text/utf8.h"

namespace backplane::text {
namespace {

constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kShort = 48;  // up to here a scan for the best pair is faster than a heap

std::uint32_t rank_of(const std::uint64_t* merge) {
  return merge == nullptr ? kNoRank : static_cast<std::uint32_t>(*merge >> 32);
}

}  // namespace

BpeModel::BpeModel(const Vocabulary& vocabulary, std::span<const Merge> merges, BpeOptions options,
                   std::string_view where)
    : vocabulary_(vocabulary),
      options_(options),
      merges_(merges.size()),
      reach_(std::make_unique<std::atomic<std::uint8_t>[]>(vocabulary.size())) {
  if (merges.size() >= kNoRank) throw Error(ErrorCode::kBadFile, "too many merges", where);
  std::string scratch;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    add_merge(merges[rank], static_cast<std::uint32_t>(rank), scratch, where);
  }
}

void BpeModel::add_merge(const Merge& merge, std::uint32_t rank, std::string& scratch, std::string_view where) {
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorCode::kBadFile,
                "merge " + std::to_string(rank) + " (\"" + to_valid_utf8(std::string(merge.first).substr(0, 80)) +
                    "\" and \"" + to_valid_utf8(std::string(merge.second).substr(0, 80)) + "\") " + std::string(why),
                where);
  };
  scratch.clear();
  if (options_.byte_level) {
    if (!append_byte_level(merge.first, scratch)) refuse("isn't in the byte alphabet");
  } else {
    scratch += merge.first;
  }
  const std::size_t left_size = scratch.size();
  if (options_.byte_level) {
    if (!append_byte_level(merge.second, scratch)) refuse("isn't in the byte alphabet");
  } else {
    scratch += merge.second;
  }
  const std::string_view whole = scratch;
  if (left_size == 0 || left_size == whole.size()) refuse("has an empty side");
  const TokenId left = vocabulary_.find(whole.substr(0, left_size));
  const TokenId right = vocabulary_.find(whole.substr(left_size));
  const TokenId merged = vocabulary_.find(whole);
  if (left == kNoToken || right == kNoToken || merged == kNoToken) refuse("names a token that the vocabulary lacks");
  merges_.set(left, right, std::uint64_t{rank} << 32 | static_cast<std::uint32_t>(merged));
}

void BpeModel::encode(std::string_view piece, std::vector<TokenId>& out) const {
  if (piece.size() == 1 && options_.byte_level) {
    const TokenId id = vocabulary_.byte_token(static_cast<unsigned char>(piece[0]));
    if (id != kNoToken) {
      out.push_back(id);
      return;
    }
  }
  const TokenId whole = piece.size() <= vocabulary_.longest_key() ? vocabulary_.find(piece) : kNoToken;
  if (whole == kNoToken) return merge(piece, out);
  if (options_.ignore_merges || reach_[whole].load(std::memory_order_relaxed) == kReached) {
    out.push_back(whole);
    return;
  }
  const std::size_t before = out.size();
  merge(piece, out);
  const bool reached = out.size() == before + 1 && out.back() == whole;
  reach_[whole].store(reached ? kReached : kNotReached, std::memory_order_relaxed);
}

void BpeModel::merge(std::string_view piece, std::vector<TokenId>& out) const {
  thread_local std::vector<TokenId> symbols;
  symbols.clear();
  start_symbols(piece, symbols);
  if (symbols.size() <= kShort) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
  out.insert(out.end(), symbols.begin(), symbols.end());
  if (symbols.capacity() > (1u << 16)) std::vector<TokenId>().swap(symbols);
}

void BpeModel::start_symbols(std::string_view piece, std::vector<TokenId>& symbols) const {
  if (options_.byte_level) {
    for (const char byte : piece) {
      const TokenId id = vocabulary_.byte_token(static_cast<unsigned char>(byte));
      if (id != kNoToken) {
        symbols.push_back(id);
      } else if (options_.unknown != kNoToken) {
        symbols.push_back(options_.unknown);
      }
    }
    return;
  }
  bool after_unknown = false;
  for (std::size_t at = 0; at < piece.size();) {
    const std::string_view character = piece.substr(at, decode_code_point(piece, at).size);
    at += character.size();
    const TokenId id = vocabulary_.find(character);
    if (id != kNoToken) {
      symbols.push_back(id);
      after_unknown = false;
      continue;
    }
    const std::size_t before = symbols.size();
    append_missing(character, symbols);
    const bool unknown = symbols.size() == before + 1 && symbols.back() == options_.unknown;
    if (unknown && after_unknown && options_.fuse_unknown) symbols.pop_back();
    after_unknown = unknown;
  }
}

void BpeModel::append_missing(std::string_view character, std::vector<TokenId>& symbols) const {
  const auto token = [&](char byte) { return vocabulary_.byte_token(static_cast<unsigned char>(byte)); };
  const bool all_bytes = options_.byte_fallback && std::all_of(character.begin(), character.end(),
                                                               [&](char byte) { return token(byte) != kNoToken; });
  if (all_bytes) {
    for (const char byte : character) symbols.push_back(token(byte));
  } else if (options_.unknown != kNoToken) {
    symbols.push_back(options_.unknown);
  }
}

void BpeModel::merge_short(std::vector<TokenId>& symbols) const {
  std::size_t n = symbols.size();
  if (n < 2) return;
  const std::uint64_t* pairs[kShort];  // pairs[i] is the merge of symbols i and i + 1, or nullptr
  for (std::size_t i = 0; i + 1 < n; ++i) pairs[i] = merges_.find(symbols[i], symbols[i + 1]);
  for (;;) {
    std::uint64_t best = std::numeric_limits<std::uint64_t>::max();
    std::size_t at = n;
    for (std::size_t i = 0; i + 1 < n; ++i) {
      if (pairs[i] != nullptr && *pairs[i] < best) {
        best = *pairs[i];
        at = i;
      }
    }
    if (at == n) break;
    symbols[at] = static_cast<TokenId>(best & 0xFFFFFFFFu);
    for (std::size_t i = at + 1; i + 1 < n; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i] = i + 2 < n ? pairs[i + 1] : nullptr;
    }
    --n;
    if (at + 1 < n) pairs[at] = merges_.find(symbols[at], symbols[at + 1]);
    if (at > 0) pairs[at - 1] = merges_.find(symbols[at - 1], symbols[at]);
  }
  symbols.resize(n);
}

void BpeModel::merge_long(std::vector<TokenId>& symbols) const {
  const std::size_t n = symbols.size();
  if (n >= kNoRank) throw Error(ErrorCode::kCapacity, "a piece of text is longer than 4 GiB");
  constexpr std::uint32_t kEnd = kNoRank;
  std::vector<std::uint32_t> next(n), previous(n), rank(n, kNoRank);
  std::vector<std::uint64_t> start;  // rank << 32 | position: the best pair, of equals the leftmost
  for (std::uint32_t i = 0; i < n; ++i) {
    next[i] = i + 1 < n ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
    if (i + 1 < n) rank[i] = rank_of(merges_.find(symbols[i], symbols[i + 1]));
    if (rank[i] != kNoRank) start.push_back(std::uint64_t{rank[i]} << 32 | i);
  }
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> queue(std::greater<>{},
                                                                                       std::move(start));
  const auto refresh = [&](std::uint32_t at) {
    rank[at] = next[at] == kEnd ? kNoRank : rank_of(merges_.find(symbols[at], symbols[next[at]]));
    if (rank[at] != kNoRank) queue.push(std::uint64_t{rank[at]} << 32 | at);
  };
  while (!queue.empty()) {
    const auto at = static_cast<std::uint32_t>(queue.top());
    const auto popped = static_cast<std::uint32_t>(queue.top() >> 32);
    queue.pop();
    if (rank[at] != popped) continue;  // the pair has changed since
    const std::uint32_t gone = next[at];
    symbols[at] = static_cast<TokenId>(*merges_.find(symbols[at], symbols[gone]) & 0xFFFFFFFFu);
    symbols[gone] = kNoToken;
    rank[gone] = kNoRank;
    next[at] = next[gone];
    if (next[at] != kEnd) previous[next[at]] = at;
    refresh(at);
    if (previous[at] != kEnd) refresh(previous[at]);
  }
  std::erase(symbols, kNoToken);
}

}  // namespace backplane::text
