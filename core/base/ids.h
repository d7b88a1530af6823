// Strong integer types, so that a page can't be passed where a sequence is meant.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace backplane {

using TokenId = std::int32_t;  // token ids travel in bulk, through arrays the plugins read: a plain integer

template <class Tag>
struct Id {
  std::int32_t value = -1;

  constexpr Id() = default;
  constexpr explicit Id(std::int32_t v) : value(v) {}
  constexpr bool valid() const { return value >= 0; }
  constexpr auto operator<=>(const Id&) const = default;
};

using PageId = Id<struct PageTag>;          // a page of the KV pool
using SequenceId = Id<struct SequenceTag>;  // one sequence of one request

}  // namespace backplane

template <class Tag>
struct std::hash<backplane::Id<Tag>> {
  std::size_t operator()(backplane::Id<Tag> id) const noexcept { return std::hash<std::int32_t>()(id.value); }
};
