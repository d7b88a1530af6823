#include "tools/json_lines.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/expect_error.h"

namespace backplane::tools {
namespace {

// A pipe's reading end that `text` is written to, `at_once` bytes a time.
class Feed {
 public:
  Feed(std::string text, std::size_t at_once) {
    EXPECT_EQ(::pipe(ends_), 0);
    writer_ = std::thread([this, text = std::move(text), at_once] {
      for (std::size_t at = 0; at < text.size(); at += at_once) {
        const std::string part = text.substr(at, at_once);
        if (::write(ends_[1], part.data(), part.size()) < 0) break;
      }
      ::close(ends_[1]);
    });
  }
  ~Feed() {
    writer_.join();
    ::close(ends_[0]);
  }
  int end() const { return ends_[0]; }

 private:
  int ends_[2];
  std::thread writer_;
};

std::vector<std::string> lines_of(const std::string& text, std::size_t at_once) {
  const Feed feed(text, at_once);
  LineReader reader(feed.end());
  std::vector<std::string> lines;
  for (std::string line; reader.next(line) == LineReader::Got::kLine;) lines.push_back(line);
  return lines;
}

TEST(LineReader, EndsLinesAtNewlinesOnly) {
  const std::string text = "one\xE2\x80\xA8still one\r\n\nthree\x0B\x0C three\nlast";
  const std::vector<std::string> want = {"one\xE2\x80\xA8still one\r", "", "three\x0B\x0C three", "last"};
  for (const std::size_t at_once : {1u, 3u, 1000u}) EXPECT_EQ(lines_of(text, at_once), want);
  EXPECT_EQ(lines_of("", 1), std::vector<std::string>());
  EXPECT_EQ(lines_of("a\n", 1), std::vector<std::string>{"a"});
}

TEST(LineReader, RefusesEndlessLines) {
  const Feed feed(std::string(300000, 'x'), 65536);
  LineReader reader(feed.end(), 100000);
  std::string line;
  EXPECT_ERROR(reader.next(line), ErrorCode::kUsage, "longer than 100000");
  std::string rest(65536, '\0');  // so that the writer ends
  while (::read(feed.end(), rest.data(), rest.size()) > 0) continue;
}

TEST(LineReader, GoesOnBehindALongLine) {
  for (const std::size_t at_once : {1000u, 65536u, 500000u}) {
    const Feed feed("one\n" + std::string(300000, 'x') + "\nthree\n" + std::string(200000, 'y'), at_once);
    LineReader reader(feed.end(), 100000);
    std::string line;
    EXPECT_EQ(reader.next(line), LineReader::Got::kLine);
    EXPECT_ERROR(reader.next(line), ErrorCode::kUsage, "longer");
    EXPECT_EQ(reader.skip(), LineReader::Got::kLine);
    EXPECT_EQ(reader.next(line), LineReader::Got::kLine);
    EXPECT_EQ(line, "three");
    EXPECT_ERROR(reader.next(line), ErrorCode::kUsage, "longer");
    EXPECT_EQ(reader.skip(), LineReader::Got::kEnd);
    EXPECT_EQ(reader.next(line), LineReader::Got::kEnd);
  }
}

TEST(JsonText, EscapesWhatReadersTakeForLineEnds) {
  const std::string text = "a\xE2\x80\xA8 b\xE2\x80\xA9 c\xC2\x85 d\n";
  const std::string json = json_string(text);
  EXPECT_EQ(json, R"("a\u2028 b\u2029 c\u0085 d\n")");
  EXPECT_EQ(nlohmann::json::parse(json).get<std::string>(), text);
  EXPECT_EQ(json_string("\xff"), "\"\xEF\xBF\xBD\"");
}

TEST(ParseObject, SaysWhatIsWrong) {
  EXPECT_EQ(parse_object(R"({"b": 1, "a": 2})").begin().key(), "b");  // the order is kept
  EXPECT_ERROR(parse_object("{"), ErrorCode::kUsage, "not JSON");
  EXPECT_ERROR(parse_object("[1]"), ErrorCode::kUsage, "object");
  EXPECT_ERROR(parse_object("{\"a\": \"\xff\"}"), ErrorCode::kUsage, "not JSON");
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100000; ++i) deep += '[';
  EXPECT_ERROR(parse_object(deep), ErrorCode::kUsage, "deep");
}

TEST(JsonIds, TakesTokenIdsOnly) {
  EXPECT_EQ(json_ids(parse_object(R"({"ids": [0, 2147483647]})")), (std::vector<TokenId>{0, 2147483647}));
  for (const char* bad : {R"({})", R"({"ids": 1})", R"({"ids": [-1]})", R"({"ids": [2147483648]})", R"({"ids": [1.5]})",
                          R"({"ids": ["1"]})", R"({"ids": [18446744073709551616]})"}) {
    EXPECT_ERROR(json_ids(parse_object(bad)), ErrorCode::kUsage, "ids");
  }
}

// What Output prints goes to the standard output: it is led to a pipe for the length of a test.
template <class T>
std::vector<std::string> printed(const std::vector<T>& values) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const int before = ::dup(STDOUT_FILENO);
  ::dup2(ends[1], STDOUT_FILENO);
  std::vector<std::string> lines;
  std::thread reader([&] {
    LineReader in(ends[0]);
    for (std::string line; in.next(line) == LineReader::Got::kLine;) lines.push_back(line);
  });
  {
    Output out;
    for (const T value : values) {
      out.number(value);
      out << '\n';
    }
    out.flush();
  }
  ::dup2(before, STDOUT_FILENO);
  ::close(before);
  ::close(ends[1]);
  reader.join();
  ::close(ends[0]);
  return lines;
}

// As a reader of JSON does: parses a double, and rounds that.
template <class T>
void expect_round_trip(const std::vector<T>& values) {
  const auto lines = printed(values);
  ASSERT_EQ(lines.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const nlohmann::json json = nlohmann::json::parse(lines[i]);
    if (!std::isfinite(values[i])) {
      EXPECT_TRUE(json.is_null()) << lines[i];
      continue;
    }
    const T back = static_cast<T>(json.template get<double>());
    EXPECT_EQ(std::memcmp(&back, &values[i], sizeof back), 0) << lines[i];
  }
}

TEST(Output, NumbersGiveBackTheirBits) {
  using F = std::numeric_limits<float>;
  using D = std::numeric_limits<double>;
  std::vector<float> floats = {0.0f,
                               -0.0f,
                               1,
                               -5,
                               0.1f,
                               16777216,
                               1e20f,
                               F::max(),
                               F::lowest(),
                               F::min(),
                               F::denorm_min(),
                               -F::denorm_min(),
                               F::infinity(),
                               F::quiet_NaN()};
  std::vector<double> doubles = {0.0, -0.0, 1, 0.1, 1e300, D::max(), D::min(), D::denorm_min(), -D::infinity()};
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    float value;
    std::memcpy(&value, &bits, sizeof value);
    floats.push_back(value);
    const std::uint64_t wide = random();
    double large;
    std::memcpy(&large, &wide, sizeof large);
    doubles.push_back(large);
  }
  expect_round_trip(floats);
  expect_round_trip(doubles);
  EXPECT_EQ(printed<float>({0.1f, 1.5f, -0.0f}), (std::vector<std::string>{"0.1", "1.5", "-0.0"}));  // the shortest
}

}  // namespace
}  // namespace backplane::tools
