// safetensors files, and sets of them under an index.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/formats/container.h"

namespace backplane::formats {

class Safetensors : public Container {
 public:
  // One file. Throws Error{kBadFile}: anything that the format's rules don't allow, among them holes between tensors.
  static std::shared_ptr<const Safetensors> open(const std::filesystem::path& path);
  // An index (JSON with "weight_map") and the shards beside it. The tensors are those that the map names, each from
  // the shard that the map gives; a shard that lacks one is an error, a tensor that the map omits is left out.
  static std::shared_ptr<const Safetensors> open_index(const std::filesystem::path& path);

  // __metadata__ of a single file; the index's "metadata" with numbers as text.
  const std::map<std::string, std::string>& text_metadata() const { return metadata_; }
  nlohmann::json metadata(std::size_t array_limit) const override;

 protected:
  struct Parts {
    std::vector<MappedFile> files;
    std::vector<TensorInfo> tensors;
    std::map<std::string, std::string> metadata;
  };
  static Parts read_file(const std::filesystem::path& path);
  static Parts read_index(const std::filesystem::path& path);
  Safetensors(std::string format, std::filesystem::path path, Parts parts);

 private:
  std::map<std::string, std::string> metadata_;
};

}  // namespace backplane::formats
