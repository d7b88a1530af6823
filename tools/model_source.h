// From what the user calls a model to a path.
#pragma once

#include <filesystem>
#include <string>

namespace backplane::tools {

// A path that exists is itself; the name of a known model is its place in the cache, and is pulled first when it isn't
// there. Throws Error{kBadFile} for anything else, and what pull throws.
std::filesystem::path resolve_model(const std::string& model, bool progress);

}  // namespace backplane::tools
