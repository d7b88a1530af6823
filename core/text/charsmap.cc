#include "core/text/charsmap.h"

#include <cstring>

#include "core/base/error.h"

namespace backplane::text {
namespace {

// A unit of the double array holds a label, whether a value hangs below it, and the distance to its children.
std::uint32_t label(std::uint32_t unit) { return unit & 0x800000FFu; }
bool has_value(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t value(std::uint32_t unit) { return unit & 0x7FFFFFFFu; }
std::uint32_t offset(std::uint32_t unit) { return unit >> 10 << ((unit & 0x200u) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view compiled, std::string_view where) {
  std::uint32_t bytes = 0;
  if (compiled.size() < sizeof(bytes)) throw Error(ErrorCode::kBadFile, "the normalization rules are cut off", where);
  std::memcpy(&bytes, compiled.data(), sizeof(bytes));
  compiled.remove_prefix(sizeof(bytes));
  if (bytes == 0 || bytes % sizeof(std::uint32_t) != 0 || bytes > compiled.size()) {
    throw Error(ErrorCode::kBadFile, "the normalization rules have a trie of a wrong size", where);
  }
  units_.resize(bytes / sizeof(std::uint32_t));
  std::memcpy(units_.data(), compiled.data(), bytes);
  targets_ = compiled.substr(bytes);
}

Charsmap::Rule Charsmap::match(std::string_view text, std::size_t at) const {
  Rule best;
  std::uint32_t position = offset(units_[0]);
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    position ^= byte;
    if (position >= units_.size() || label(units_[position]) != byte) break;
    const std::uint32_t unit = units_[position];
    position ^= offset(unit);
    if (!has_value(unit)) continue;
    if (position >= units_.size()) break;
    const std::uint32_t start = value(units_[position]);
    if (start > targets_.size()) break;
    const std::size_t end = std::min(targets_.find('\0', start), targets_.size());
    best = {i + 1 - at, std::string_view(targets_).substr(start, end - start)};
  }
  return best;
}

}  // namespace backplane::text
