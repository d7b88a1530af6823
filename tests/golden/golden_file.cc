#include "golden_file.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

namespace backplane::test {

namespace fs = std::filesystem;

fs::path shared_data() { return fs::path(BACKPLANE_SOURCE_DIR) / ".." / "shared" / "data"; }

Golden read_golden(const fs::path& path) {
  std::ifstream in(path);
  const nlohmann::json body = nlohmann::json::parse(in);
  Golden golden;
  golden.tolerance = body.value("suggested_abs_tolerance", body.value("suggested_tolerance_abs", 2e-3));
  for (const auto& c : body.at("cases")) {
    GoldenCase made;
    made.prompt = c.at("prompt_ids").get<std::vector<TokenId>>();
    made.greedy = c.value("greedy_ids", c.value("greedy", std::vector<TokenId>{}));
    const double least = c.value("min_top1_margin", c.value("min_margin", 0.0));
    made.margins = c.value("margins", std::vector<double>(made.greedy.size(), least));
    if (c.contains("logits")) {
      for (const auto& [position, row] : c.at("logits").items()) {
        made.logits[static_cast<std::uint32_t>(std::stoul(position))] = row.get<std::vector<double>>();
      }
    }
    if (c.contains("last_logits")) {
      made.logits[static_cast<std::uint32_t>(made.prompt.size() - 1)] = c.at("last_logits").get<std::vector<double>>();
    }
    golden.cases.push_back(std::move(made));
  }
  return golden;
}

std::vector<GoldenForm> golden_forms(const std::string& pattern) {
  std::vector<GoldenForm> forms;
  const std::regex wanted(pattern);
  for (const fs::path& root : {shared_data() / "models" / "hf", shared_data() / "models"}) {
    if (!fs::exists(root)) continue;
    for (const auto& entry : fs::directory_iterator(root)) {
      const fs::path folder = entry.path();
      if (!std::regex_search(folder.filename().string(), wanted) || !fs::exists(folder / "golden.json")) continue;
      const std::string name = folder.filename().string();
      const fs::path golden = folder / "golden.json";
      if (fs::exists(folder / "config.json")) forms.push_back({name, folder, golden, {}});
      if (fs::exists(folder / "hf-f32")) forms.push_back({name + " hf-f32", folder / "hf-f32", golden, {}});
      if (fs::exists(folder / "config.legacy.json")) {
        forms.push_back({name + " legacy", folder, golden, folder / "config.legacy.json"});
      }
      for (const auto& file : fs::directory_iterator(folder)) {
        if (file.path().extension() != ".gguf") continue;
        const fs::path own = folder / (file.path().stem().string() + ".golden.json");
        forms.push_back(
            {name + " " + file.path().filename().string(), file.path(), fs::exists(own) ? own : golden, {}});
      }
    }
  }
  std::sort(forms.begin(), forms.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return forms;
}

}  // namespace backplane::test
