// Whose keys are turned by the same angles.
#include <gtest/gtest.h>

#include <map>

#include "models/rope_tables.h"

namespace backplane::models {
namespace {

RopeSpec rope(const std::string& type) {
  RopeSpec spec;
  spec.settings.type = type;
  spec.settings.factor = 4;
  spec.settings.original_max_position_embeddings = 32;
  spec.settings.short_factor = {1, 1, 1, 1};
  spec.settings.long_factor = {1, 2, 3, 4};
  spec.n_dims = 8;
  return spec;
}

// Equal numbers exactly where all tables are equal.
TEST(RopeIdentity, TellsTablesApart) {
  constexpr std::uint64_t kContext = 40;
  for (const std::vector<RopeSpec>& specs : std::vector<std::vector<RopeSpec>>{{},
                                                                               {rope("default")},
                                                                               {rope("linear"), rope("default")},
                                                                               {rope("longrope")},
                                                                               {rope("dynamic")},
                                                                               {rope("dynamic"), rope("longrope")},
                                                                               {rope("longrope"), rope("default")}}) {
    std::map<std::uint64_t, std::vector<double>> tables;
    for (std::uint64_t length = 1; length < 100; ++length) {
      std::vector<double> all;
      for (const RopeSpec& spec : specs) {
        const RopeTable table = rope_table(spec, kContext, length);
        all.insert(all.end(), table.inv_freq.begin(), table.inv_freq.end());
        all.push_back(table.scale);
      }
      const auto [it, added] = tables.try_emplace(rope_identity(specs, kContext, length), all);
      EXPECT_EQ(it->second, all) << length;
    }
    for (auto a = tables.begin(); a != tables.end(); ++a) {
      for (auto b = std::next(a); b != tables.end(); ++b)
        EXPECT_NE(a->second, b->second) << a->first << " " << b->first;
    }
  }
}

}  // namespace
}  // namespace backplane::models
