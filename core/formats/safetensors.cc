#include "core/formats/safetensors.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/formats/json_input.h"
#include "core/formats/safetensors_header.h"
#include "core/formats/utf8.h"

namespace backplane::formats {
namespace {

using nlohmann::json;

constexpr std::size_t kIndexBytes = 32u << 20;

struct Index {
  std::map<std::string, std::string> shard_of;    // by tensor
  std::map<std::string, std::size_t> tensors_of;  // how many the map gives each shard
  std::map<std::string, std::string> metadata;
};

// Shards lie beside the index: a name that leads elsewhere would let a download read any file.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

Index read_index_json(const std::filesystem::path& path) {
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorCode::kBadFile, what, path.string(), "download the model again");
  };
  const json document = parse_json_file(path, kIndexBytes);
  if (!document.is_object() || !document.contains("weight_map")) {
    throw Error(ErrorCode::kBadFile, "a JSON file without a weight_map: not an index of weights", path.string(),
                "give the folder, or the file that holds the weights");
  }
  const json& weight_map = document["weight_map"];
  if (!weight_map.is_object()) fail("weight_map isn't an object");
  Index index;
  for (const auto& [tensor, shard] : weight_map.items()) {
    if (!shard.is_string()) fail(fmt::format("weight_map gives tensor '{}' a shard that isn't a string", tensor));
    const auto& name = shard.get_ref<const std::string&>();
    if (!is_plain_name(name)) fail(fmt::format("the shard '{}' isn't a plain file name", name));
    index.shard_of.emplace(tensor, name);
    ++index.tensors_of[name];
  }
  if (const auto about = document.find("metadata"); about != document.end() && about->is_object()) {
    for (const auto& [key, value] : about->items()) {
      index.metadata.emplace(key, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  return index;
}

}  // namespace

Safetensors::Safetensors(std::string format, std::filesystem::path path, Parts parts)
    : Container(std::move(format), std::move(path), std::move(parts.files), std::move(parts.tensors)),
      metadata_(std::move(parts.metadata)) {}

Safetensors::Parts Safetensors::read_file(const std::filesystem::path& path) {
  Parts parts;
  parts.files.emplace_back(path);
  SafetensorsHeader header = parse_safetensors(parts.files.front(), 0);
  parts.tensors = std::move(header.tensors);
  parts.metadata = std::move(header.metadata);
  return parts;
}

Safetensors::Parts Safetensors::read_index(const std::filesystem::path& path) {
  Index index = read_index_json(path);
  Parts parts;
  for (const auto& [shard, wanted] : index.tensors_of) {
    const auto shard_path = path.parent_path() / shard;
    std::error_code ignored;
    if (!std::filesystem::exists(shard_path, ignored)) {
      throw Error(ErrorCode::kBadFile, fmt::format("the shard '{}' of the index is missing", shard), path.string(),
                  "download the missing file into the same folder");
    }
    const std::size_t number = parts.files.size();
    parts.files.emplace_back(shard_path);
    std::size_t found = 0;
    for (TensorInfo& tensor : parse_safetensors(parts.files.back(), number).tensors) {
      const auto entry = index.shard_of.find(tensor.name);
      if (entry == index.shard_of.end() || entry->second != shard) continue;
      parts.tensors.push_back(std::move(tensor));
      ++found;
    }
    if (found < wanted) {
      throw Error(ErrorCode::kBadFile,
                  fmt::format("the index promises {} tensors in '{}', which holds {} of them", wanted, shard, found),
                  path.string(), "download the index and its shards again");
    }
  }
  parts.metadata = std::move(index.metadata);
  return parts;
}

std::shared_ptr<const Safetensors> Safetensors::open(const std::filesystem::path& path) {
  return std::shared_ptr<const Safetensors>(new Safetensors("safetensors", path, read_file(path)));
}

std::shared_ptr<const Safetensors> Safetensors::open_index(const std::filesystem::path& path) {
  return std::shared_ptr<const Safetensors>(new Safetensors("safetensors-index", path, read_index(path)));
}

json Safetensors::metadata(std::size_t) const { return metadata_; }

}  // namespace backplane::formats
