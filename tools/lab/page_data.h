// Text and data of the report as HTML.
#pragma once

#include <string>
#include <string_view>

#include "tools/lab/figures.h"

namespace backplane::lab {

// Escaped; what stands between backquotes is code; a number and the word behind it stay on one line.
std::string prose(std::string_view source);

// Tables with everything that an object holds, numbers as the report writes them; "findings" are left out.
std::string data_html(const Json& object);

}  // namespace backplane::lab
