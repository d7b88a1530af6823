// Names that somebody who mistyped one may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace backplane::tools {

// At most `most` of `names`, the nearest first: by the letters that have to be changed, added or taken away, where that
// is at most a third of the wanted name; after them those that hold it as a part. Empty: none is near.
std::vector<std::string> near_names(std::string_view wanted, const std::vector<std::string>& names,
                                    std::size_t most = 3);

}  // namespace backplane::tools
