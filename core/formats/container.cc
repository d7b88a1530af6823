#include "core/formats/container.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/formats/gguf.h"
#include "core/formats/hf_folder.h"
#include "core/formats/safetensors.h"

namespace backplane::formats {
namespace {

enum class FileKind { kGguf, kSafetensors, kJson, kEmpty, kLfsPointer, kOldGgml, kArchive, kUnknown };

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

FileKind kind_of(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.empty()) return FileKind::kEmpty;
  if (starts_with(text, "GGUF")) return FileKind::kGguf;
  // The magics of GGUF's predecessors were little-endian words, so they read backwards.
  for (const std::string_view magic : {"lmgg", "fmgg", "tjgg", "algg"}) {
    if (starts_with(text, magic)) return FileKind::kOldGgml;
  }
  if (starts_with(text, "version https://git-lfs")) return FileKind::kLfsPointer;
  if (starts_with(text, std::string_view("PK\x03\x04", 4))) return FileKind::kArchive;
  // safetensors begins with the header's length in 8 bytes, of which the format's limit leaves the upper four zero;
  // JSON text holds no zero byte at all.
  if (text.size() >= 8 && text.substr(4, 4) == std::string_view("\0\0\0\0", 4)) return FileKind::kSafetensors;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') return FileKind::kJson;
  // A header's brace behind an outsized length: let the safetensors reader say what is wrong.
  if (text.size() > 8 && text[8] == '{') return FileKind::kSafetensors;
  return FileKind::kUnknown;
}

[[noreturn]] void refuse(FileKind kind, const std::filesystem::path& path) {
  const auto fail = [&](std::string_view what, std::string_view todo) {
    throw Error(ErrorCode::kBadFile, what, path.string(), todo);
  };
  if (kind == FileKind::kEmpty) fail("the file is empty", "download it again");
  if (kind == FileKind::kLfsPointer) fail("a Git LFS pointer, not the file itself", "fetch the file with git lfs pull");
  if (kind == FileKind::kOldGgml) fail("an old GGML file from before GGUF", "convert the model to GGUF again");
  if (kind == FileKind::kArchive) {
    fail("a zip archive, perhaps a PyTorch checkpoint", "convert it to safetensors or GGUF");
  }
  fail("not a model file", "give a GGUF file, a safetensors file or index, or a Hugging Face folder");
  std::abort();  // fail() always throws
}

std::shared_ptr<const Container> open_by_content(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return HuggingFaceFolder::open(path);
  const FileKind kind = kind_of(MappedFile(path).bytes());
  if (kind == FileKind::kGguf) return Gguf::open(path);
  if (kind == FileKind::kSafetensors) return Safetensors::open(path);
  if (kind == FileKind::kJson) return Safetensors::open_index(path);
  refuse(kind, path);
}

}  // namespace

std::uint64_t TensorInfo::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

Container::Container(std::string format, std::filesystem::path path, std::vector<MappedFile> files,
                     std::vector<TensorInfo> tensors)
    : format_(std::move(format)),
      path_(std::move(path)),
      files_(std::move(files)),
      tensors_(std::move(tensors)),
      by_name_(tensors_.size()) {
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::size_t a, std::size_t b) { return tensors_[a].name < tensors_[b].name; });
  for (std::size_t i = 1; i < by_name_.size(); ++i) {
    const std::string& name = tensors_[by_name_[i]].name;
    if (name == tensors_[by_name_[i - 1]].name) {
      throw Error(ErrorCode::kBadFile, "two tensors are named '" + name + "'", path_.string(),
                  "convert the model again");
    }
  }
}

const TensorInfo* Container::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](std::size_t i, std::string_view wanted) { return tensors_[i].name < wanted; });
  return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

const TensorInfo& Container::tensor(std::string_view name) const {
  if (const TensorInfo* found = find(name)) return *found;
  throw Error(ErrorCode::kBadFile, "tensor '" + std::string(name) + "' is missing", path_.string(),
              "the file is incomplete or of another architecture");
}

std::shared_ptr<const Container> open_container(const std::filesystem::path& path) {
  try {
    return open_by_content(path);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kCapacity, "not enough memory to read the file's header", path.string(), "free some memory");
  }
}

}  // namespace backplane::formats
