// The report as a page and as text.
#pragma once

#include <string>

#include "tools/lab/figures.h"

namespace backplane::lab {

// One HTML file that needs nothing else: no scripts, no fonts, nothing fetched. It is well-formed XML too. Every number
// of the report is in it, as the report writes it.
std::string lab_page(const Json& report);

// For a terminal, lines of at most about 100 columns.
std::string lab_text(const Json& report);

}  // namespace backplane::lab
