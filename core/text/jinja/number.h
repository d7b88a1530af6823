// Python's numbers: integers of 128 bits (Python's have no end; more is refused as an error) and doubles.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace backplane::text::jinja {

// 128 bits hold every JSON integer exactly, the unsigned 64-bit ones of JSON schemas too.
__extension__ typedef __int128 Int;
__extension__ typedef unsigned __int128 UnsignedInt;

std::string int_text(Int value, int base = 10);
std::string float_repr(double value);  // the shortest text that reads back the same, as Python's repr

// As Python's int(text, base) and float(text): white space around, a sign, underscores between digits; base 0 and
// the prefixes 0x, 0o, 0b. Nothing if the text isn't a number. parse_int throws Fault if it doesn't fit.
std::optional<Int> parse_int(std::string_view text, int base = 10);
std::optional<double> parse_float(std::string_view text);

double round_to(double value, int digits);  // as round(value, digits): half to even of the exact decimal value

// Throws Fault for infinities, NaN and what doesn't fit.
Int int_of_float(double value);

}  // namespace backplane::text::jinja
