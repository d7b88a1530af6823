// The common face of every file or folder that holds weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/mapped_file.h"

namespace backplane::formats {

struct TensorInfo {
  std::string name;
  std::string type_name;      // the file's own spelling: "Q4_K", "BF16", "IQ2_XS"
  std::optional<DType> type;  // empty: listed, but nothing here can compute with it
  // Row-major, outermost first: [N, C] is N contiguous rows of C values. A GGUF file lists the sizes the other way
  // round (innermost first); they are reversed here. Empty: a scalar, one value.
  std::vector<std::uint64_t> shape;
  // Exactly the tensor's bytes inside the mapping of files()[file]. GGUF data is aligned to 8 bytes or more,
  // safetensors data to nothing at all: read it through memcpy.
  std::span<const std::byte> data;
  std::size_t file = 0;

  std::uint64_t elements() const;  // the product of shape; it was checked not to overflow
};

// Immutable after opening, so it may be read from many threads. It owns the mappings: `data` spans, and string views
// that subclasses give out, live as long as it does.
class Container {
 public:
  virtual ~Container() = default;
  Container(const Container&) = delete;
  Container& operator=(const Container&) = delete;

  // "gguf", "safetensors", "safetensors-index" or "huggingface".
  std::string_view format() const { return format_; }
  // What was opened: a file, or a folder.
  const std::filesystem::path& path() const { return path_; }
  // "llama", "LlamaForCausalLM"; empty when the container doesn't say.
  virtual std::string architecture() const { return {}; }

  std::span<const TensorInfo> tensors() const { return tensors_; }
  // Nullptr when absent. O(log n).
  const TensorInfo* find(std::string_view name) const;
  // Throws Error{kBadFile} when absent, naming the tensor and the path.
  const TensorInfo& tensor(std::string_view name) const;
  std::span<const MappedFile> files() const { return files_; }

  // For people and scripts to look at: an object in which arrays longer than `array_limit` are cut to
  // {"type", "length", "first"}, invalid UTF-8 is U+FFFD, NaN and infinities are null.
  virtual nlohmann::json metadata(std::size_t array_limit) const = 0;

 protected:
  // Throws Error{kBadFile} when two tensors have one name.
  Container(std::string format, std::filesystem::path path, std::vector<MappedFile> files,
            std::vector<TensorInfo> tensors);

 private:
  std::string format_;
  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  std::vector<TensorInfo> tensors_;
  // Indices into tensors_ in order of name. Not a hash table: a hostile file could choose names that collide.
  std::vector<std::size_t> by_name_;
};

// Tells by the content, never by the name, what the path is: GGUF (any architecture, any part of a split set),
// safetensors, a safetensors index, a Hugging Face folder (config.json with model.safetensors or its index).
// Throws Error: kBadFile for anything else or anything broken, kCapacity when memory or address space runs out.
std::shared_ptr<const Container> open_container(const std::filesystem::path& path);

}  // namespace backplane::formats
