#include "core/text/unicode_class.h"

#include <algorithm>
#include <memory>

namespace backplane::text {
namespace {

struct CodePointRange {
  char32_t first, last;
};

#include "core/text/unicode_ranges.inc"

// The property White_Space.
constexpr CodePointRange kSpaceRanges[] = {{0x9, 0xD},       {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                                           {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                           {0x205F, 0x205F}, {0x3000, 0x3000}};

std::unique_ptr<CharClass[]> make_table() {
  auto table = std::make_unique<CharClass[]>(kCodePointLimit);  // zero is kOther
  const auto fill = [&](const auto& ranges, CharClass value) {
    for (const CodePointRange& range : ranges) {
      std::fill(table.get() + range.first, table.get() + range.last + 1, value);
    }
  };
  fill(kLetterRanges, CharClass::kLetter);
  fill(kNumberRanges, CharClass::kNumber);
  fill(kSpaceRanges, CharClass::kSpace);
  return table;
}

}  // namespace

const CharClass* char_class_table() {
  static const std::unique_ptr<CharClass[]> table = make_table();
  return table.get();
}

}  // namespace backplane::text
