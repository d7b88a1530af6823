// The golden.json files of the shared data: float64 references from Hugging Face transformers and numpy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/ids.h"

namespace backplane::test {

struct GoldenCase {
  std::vector<TokenId> prompt, greedy;
  std::vector<double> margins;  // of each greedy step; one for all where the file has only the smallest
  std::map<std::uint32_t, std::vector<double>> logits;  // by position in prompt + greedy
};

struct Golden {
  std::vector<GoldenCase> cases;
  double tolerance = 2e-3;
};

Golden read_golden(const std::filesystem::path& path);

// A file or folder to load, with the golden that holds for it.
struct GoldenForm {
  std::string name;
  std::filesystem::path model, golden;
  std::optional<std::filesystem::path> config;  // to be used instead of the folder's own config.json
};

// Models of the shared data whose folder's name matches; empty when the data is absent.
std::vector<GoldenForm> golden_forms(const std::string& pattern);
std::filesystem::path shared_data();

}  // namespace backplane::test
