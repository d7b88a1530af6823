// Lines as OpenAI's guide shows them.
#include "tools/batch_lines.h"

#include <gtest/gtest.h>

namespace backplane::tools {
namespace {

using Json = nlohmann::ordered_json;

TEST(BatchLine, IsARequest) {
  const BatchLine line = parse_batch_line(R"({"custom_id": "request-1", "method": "POST",
      "url": "/v1/chat/completions", "body": {"model": "m", "messages": []}})");
  EXPECT_EQ(line.custom_id, "request-1");
  EXPECT_EQ(line.endpoint, openai::Endpoint::kChat);
  EXPECT_EQ(line.body, Json::parse(R"({"model": "m", "messages": []})"));
  EXPECT_EQ(parse_batch_line(R"({"custom_id": "1", "url": "/v1/completions", "body": {}})").endpoint,
            openai::Endpoint::kCompletions);
}

TEST(BatchLine, SaysWhatIsWrong) {
  struct Case {
    const char *line, *code, *custom_id, *part;
  };
  const Case kBad[] = {
      {"{", "invalid_json_line", "", "not JSON"},
      {"[]", "invalid_json_line", "", "object"},
      {"{}", "missing_required_parameter", "", "custom_id"},
      {R"({"custom_id": 5})", "missing_required_parameter", "", "custom_id"},
      {R"({"custom_id": ""})", "missing_required_parameter", "", "custom_id"},
      {R"({"custom_id": "a"})", "invalid_url", "a", "url"},
      {R"({"custom_id": "a", "method": "GET", "url": "/v1/completions", "body": {}})", "invalid_method", "a", "GET"},
      {R"({"custom_id": "a", "url": "/v1/embeddings", "body": {}})", "invalid_url", "a", "/v1/embeddings"},
      {R"({"custom_id": "a", "url": "/v1/completions"})", "missing_required_parameter", "a", "body"},
      {R"({"custom_id": "a", "url": "/v1/completions", "body": []})", "missing_required_parameter", "a", "body"}};
  for (const Case& bad : kBad) {
    try {
      parse_batch_line(bad.line);
      ADD_FAILURE() << bad.line;
    } catch (const BatchLineError& error) {
      EXPECT_EQ(error.code(), bad.code) << bad.line;
      EXPECT_EQ(error.custom_id(), bad.custom_id) << bad.line;
      EXPECT_NE(std::string(error.what()).find(bad.part), std::string::npos) << error.what();
    }
  }
}

TEST(BatchResult, HasOpenAisForm) {
  EXPECT_EQ(Json::parse(response_line("9", "a", 200, {{"x", 1}})),
            Json::parse(R"({"id": "batch_req_9", "custom_id": "a", "response": {"status_code": 200,
                            "request_id": "req_9", "body": {"x": 1}}, "error": null})"));
  EXPECT_EQ(Json::parse(error_line("9", {"invalid_url", "no", "a"}, 7)),
            Json::parse(R"({"id": "batch_req_9", "custom_id": "a", "response": null,
                            "error": {"code": "invalid_url", "message": "line 7: no", "line": 7}})"));
  EXPECT_EQ(Json::parse(error_line("9", {"invalid_json_line", "no"}, 7))["custom_id"], nullptr);
}

TEST(BatchResult, IsOneLine) {
  const Json body = {{"text", "a\nb\xE2\x80\xA8\xFF"}};
  const std::string line = response_line("9", "c\nd", 200, body);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(Json::parse(line)["custom_id"], "c\nd");
}

TEST(BatchResult, TellsWhoseItIs) {
  const auto done = parse_result(response_line("9", "a", 200, {{"deep", {{"error", 1}, {"body", 2}}}}));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->custom_id, "a");
  EXPECT_FALSE(done->failed || done->line);
  EXPECT_TRUE(parse_result(response_line("9", "a", 400, {}))->failed);

  const auto by_id = parse_result(error_line("9", {"invalid_url", "no", "a"}, 7));
  ASSERT_TRUE(by_id);
  EXPECT_EQ(by_id->custom_id, "a");
  EXPECT_TRUE(by_id->failed);
  for (const BatchLineError& error : {BatchLineError(kDuplicateCustomId, "twice", "a"), BatchLineError("x", "bad")}) {
    const auto by_line = parse_result(error_line("9", error, 7));
    ASSERT_TRUE(by_line);
    EXPECT_EQ(by_line->custom_id, "");
    EXPECT_EQ(by_line->line, 7u);
    EXPECT_TRUE(by_line->failed);
  }
}

TEST(BatchResult, IsNothingElse) {
  const std::string good = response_line("9", "a", 200, {{"x", "y"}});
  for (std::size_t size = 0; size + 1 < good.size(); ++size) EXPECT_FALSE(parse_result(good.substr(0, size))) << size;
  EXPECT_FALSE(parse_result(good.substr(0, good.size() - 1) + good));
  for (const char* other : {"", "{}", "text", R"({"custom_id": "a"})", R"({"id":"batch_req_1"})",
                            R"({"id":"batch_req_1","custom_id":"a","response":null,"error":null})",
                            R"({"id":"batch_req_1","custom_id":null,"response":{"status_code":200},"error":null})",
                            R"({"id":"batch_req_1","custom_id":null,"response":null,"error":{"code":"x"}})",
                            R"({"id":"batch_req_1","custom_id":"a","response":5,"error":null})"}) {
    EXPECT_FALSE(parse_result(other)) << other;
  }
}

}  // namespace
}  // namespace backplane::tools
