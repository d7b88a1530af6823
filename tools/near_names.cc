#include "tools/near_names.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace backplane::tools {
namespace {

constexpr std::size_t kLongest = 256;  // that is compared letter by letter

// Levenshtein's distance; what can't be below `limit` may be any number from there on.
std::size_t distance(std::string_view a, std::string_view b, std::size_t limit) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) >= limit) return limit;
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> near_names(std::string_view wanted, const std::vector<std::string>& names, std::size_t most) {
  if (wanted.empty() || wanted.size() > kLongest) return {};
  const std::size_t limit = std::max<std::size_t>(wanted.size() / 3, 1) + 1;
  std::vector<std::pair<std::size_t, const std::string*>> found;
  for (const std::string& name : names) {
    const std::size_t far = distance(wanted, name, limit);
    if (far < limit) {
      found.emplace_back(far, &name);
    } else if (name.find(wanted) != std::string::npos) {
      found.emplace_back(limit + name.size() - wanted.size(), &name);
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> near;
  for (std::size_t i = 0; i < std::min(most, found.size()); ++i) near.push_back(*found[i].second);
  return near;
}

}  // namespace backplane::tools
