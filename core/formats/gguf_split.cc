// Gguf::open: one file, or all the parts of a split set.
#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "core/base/error.h"
#include "core/formats/gguf_parser.h"

namespace backplane::formats {
namespace {

const GgufValue* find_value(const GgufPart& part, std::string_view key) {
  for (const GgufEntry& entry : part.entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

std::optional<std::uint64_t> find_count(const GgufPart& part, std::string_view key, const std::filesystem::path& path) {
  const GgufValue* value = find_value(part, key);
  if (!value) return std::nullopt;
  if (const auto number = value->as_u64()) return number;
  throw Error(ErrorCode::kBadFile, fmt::format("key '{}' isn't an unsigned integer", key), path.string(),
              "split the model again");
}

// "NAME-00002-of-00003.gguf" taken apart.
struct PartName {
  std::string stem;
  std::uint64_t number, count;
};

std::optional<std::uint64_t> five_digits(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.size() != 5 || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<PartName> part_name(const std::filesystem::path& path) {
  constexpr std::size_t kSuffix = std::string_view("-00001-of-00001").size();
  const std::string stem = path.stem().string();
  if (path.extension() != ".gguf" || stem.size() < kSuffix) return std::nullopt;
  const std::string_view suffix = std::string_view(stem).substr(stem.size() - kSuffix);
  if (suffix[0] != '-' || suffix.substr(6, 4) != "-of-") return std::nullopt;
  const auto number = five_digits(suffix.substr(1, 5));
  const auto count = five_digits(suffix.substr(10));
  if (!number || !count) return std::nullopt;
  return PartName{stem.substr(0, stem.size() - kSuffix), *number, *count};
}

// Checks that `part` says it is number `index` of `count`, as its place in the set demands.
void check_part(const GgufPart& part, const std::filesystem::path& path, std::uint64_t index, std::uint64_t count) {
  const auto own_count = find_count(part, "split.count", path);
  const auto own_index = find_count(part, "split.no", path);
  if (own_count != count || own_index != index) {
    throw Error(
        ErrorCode::kBadFile,
        fmt::format("should be part {} of {} of a split model, but says otherwise (split.no {}, split.count {})",
                    index + 1, count, own_index ? fmt::to_string(*own_index) : "absent",
                    own_count ? fmt::to_string(*own_count) : "absent"),
        path.string(), "give the parts the names that they were split into");
  }
}

struct Set {
  std::vector<MappedFile> files;
  GgufPart all;  // the first part's metadata, every part's tensors
};

Set open_set(const std::filesystem::path& path, const PartName& name, std::uint64_t count) {
  Set set;
  std::optional<std::uint64_t> total;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto part_path = path.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", name.stem, i + 1, count);
    std::error_code ignored;
    if (!std::filesystem::exists(part_path, ignored)) {
      throw Error(ErrorCode::kBadFile, fmt::format("part {} of {} of the split model is missing", i + 1, count),
                  part_path.string(), "put all the parts in one folder");
    }
    set.files.emplace_back(part_path);
    GgufPart part = parse_gguf(set.files.back(), i);
    check_part(part, part_path, i, count);
    if (const auto tensors = find_count(part, "split.tensors.count", part_path)) {
      if (total && *total != *tensors) {
        throw Error(ErrorCode::kBadFile, "the parts disagree about split.tensors.count", part_path.string(),
                    "take all the parts from one model");
      }
      total = tensors;
    }
    if (i == 0) {
      set.all = std::move(part);
    } else {
      std::move(part.tensors.begin(), part.tensors.end(), std::back_inserter(set.all.tensors));
    }
  }
  if (total && *total != set.all.tensors.size()) {
    throw Error(ErrorCode::kBadFile,
                fmt::format("the parts hold {} tensors instead of {}", set.all.tensors.size(), *total), path.string(),
                "take all the parts from one model");
  }
  return set;
}

}  // namespace

std::shared_ptr<const Gguf> Gguf::open(const std::filesystem::path& path) {
  Set set;
  set.files.emplace_back(path);
  set.all = parse_gguf(set.files.front(), 0);
  const std::uint64_t count = find_count(set.all, "split.count", path).value_or(1);
  if (count > 1) {
    const auto name = part_name(path);
    if (!name || name->count != count || name->number == 0 || name->number > count) {
      throw Error(ErrorCode::kBadFile,
                  fmt::format("one of {} parts of a split model, but its name doesn't say which", count), path.string(),
                  fmt::format("name the parts NAME-00001-of-{:05}.gguf and so on", count));
    }
    check_part(set.all, path, name->number - 1, count);
    set = open_set(path, *name, count);
  }
  return std::shared_ptr<const Gguf>(
      new Gguf(path, set.all.version, std::move(set.files), std::move(set.all.entries), std::move(set.all.tensors)));
}

}  // namespace backplane::formats
