// A set of byte strings that are searched for as prefixes.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/text/flat_table.h"

namespace backplane::text {

// Immutable after construction.
class ByteTrie {
 public:
  ByteTrie() = default;
  // Empty strings are left out; of equal ones the last counts.
  explicit ByteTrie(std::span<const std::string_view> strings) {
    std::size_t total = 0;
    for (const std::string_view string : strings) total += string.size();
    children_ = PairTable(total);
    values_.assign(1, -1);
    for (std::size_t i = 0; i < strings.size(); ++i) {
      if (strings[i].empty()) continue;
      starts_[static_cast<unsigned char>(strings[i][0])] = true;
      values_[node_of(strings[i])] = static_cast<int>(i);
    }
  }

  bool empty() const { return values_.size() <= 1; }
  bool may_start(char byte) const { return starts_[static_cast<unsigned char>(byte)]; }

  struct Match {
    int string = -1;       // index in the constructor's list, or -1
    std::size_t size = 0;  // of the string
  };
  // The longest string that text has at `at`.
  Match longest_match(std::string_view text, std::size_t at) const {
    Match best;
    std::uint32_t node = 0;
    for (std::size_t i = at; i < text.size(); ++i) {
      const std::uint64_t* child = children_.find(node, static_cast<unsigned char>(text[i]));
      if (child == nullptr) break;
      node = static_cast<std::uint32_t>(*child);
      if (values_[node] >= 0) best = {values_[node], i + 1 - at};
    }
    return best;
  }

 private:
  std::uint32_t node_of(std::string_view string) {
    std::uint32_t node = 0;
    for (const char byte : string) {
      const std::uint32_t label = static_cast<unsigned char>(byte);
      const std::uint64_t* child = children_.find(node, label);
      if (child != nullptr) {
        node = static_cast<std::uint32_t>(*child);
        continue;
      }
      const auto fresh = static_cast<std::uint32_t>(values_.size());
      children_.set(node, label, fresh);
      values_.push_back(-1);
      node = fresh;
    }
    return node;
  }

  PairTable children_;       // (node, byte) -> node
  std::vector<int> values_;  // per node: the string that ends there, or -1
  bool starts_[256] = {};
};

}  // namespace backplane::text
