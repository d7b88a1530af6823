// What the tests of `backplane batch` share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/program.h"

namespace backplane::test {

inline std::string numbered(const char* prefix, int i) {
  std::string text = prefix;
  return text.append(std::to_string(i));
}

inline std::string request(const std::string& id, const std::string& url, const Json& body) {
  return Json{{"custom_id", id}, {"method", "POST"}, {"url", url}, {"body", body}}.dump() + "\n";
}
inline std::string completion(const std::string& id, const Json& body) { return request(id, "/v1/completions", body); }
inline std::string chat(const std::string& id, Json body, const std::string& text = "hi") {
  body["messages"] = Json::array({{{"role", "user"}, {"content", text}}});
  return request(id, "/v1/chat/completions", body);
}

inline std::vector<Json> parse_lines(const std::string& text) {
  std::vector<Json> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    values.push_back(Json::parse(line, nullptr, false));
    EXPECT_FALSE(values.back().is_discarded()) << line.substr(0, 300);
  }
  EXPECT_TRUE(text.empty() || text.ends_with('\n'));
  return values;
}

class Batch : public ProgramTest {
 protected:
  std::string input(const std::string& text) const { return folder_.write("requests.jsonl", text).string(); }
  std::string results_path() const { return (folder_.path() / "results.jsonl").string(); }
  std::vector<std::string> arguments(const std::string& requests, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"batch", model_, "-i", input(requests), "-o", results_path()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // The results, by custom_id, or "line N" where there is none; each once.
  std::map<std::string, Json> results() const {
    std::map<std::string, Json> out;
    for (const Json& line : parse_lines(read_file(results_path()))) {
      const bool named = line["custom_id"].is_string();
      const std::string id = named ? line["custom_id"].get<std::string>() : "line " + line["error"]["line"].dump();
      EXPECT_TRUE(out.emplace(id, line).second) << id << " twice";
    }
    return out;
  }
  std::map<std::string, Json> run(const std::string& requests, const std::vector<std::string>& more = {}) const {
    std::filesystem::remove(results_path());
    const ProgramRun done = backplane(arguments(requests, more));
    EXPECT_EQ(done.status, 0) << done.err;
    return results();
  }
};

// What the answers say, without ids and times. Lines that were no requests have none.
inline std::map<std::string, Json> answers(const std::map<std::string, Json>& results) {
  std::map<std::string, Json> out;
  for (const auto& [id, result] : results) {
    if (result["response"].is_null()) continue;
    Json answer = {{"status", result["response"]["status_code"]}, {"body", result["response"]["body"]}};
    answer["body"].erase("id");
    answer["body"].erase("created");
    out[id] = answer;
  }
  return out;
}

inline const Json& body_of(const Json& result) {
  EXPECT_EQ(result["response"]["status_code"], 200) << result.dump();
  return result["response"]["body"];
}

// A third of them are bad lines.
inline std::string many_requests(int count, int tokens) {
  std::string requests;
  for (int i = 0; i < count; ++i) {
    const Json half = {{"prompt", "p"}, {"n", 2}, {"max_tokens", tokens / 2}, {"ignore_eos", true}};
    if (i % 3 == 0) requests += "{bad\n";
    if (i % 3 == 1)
      requests += chat(numbered("r", i), {{"max_tokens", tokens}, {"ignore_eos", true}}, numbered("n", i));
    if (i % 3 == 2) requests += completion(numbered("r", i), half);
  }
  return requests;
}

inline std::size_t count_lines(const std::string& path) {
  const std::string text = read_file(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace backplane::test
