// Tables for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace backplane::tools {

// How many columns a text takes, all characters counted as one.
std::size_t text_width(std::string_view text);
// Lines of columns as wide as their longest cell, the first one aligned to the left and the others to the right.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

}  // namespace backplane::tools
