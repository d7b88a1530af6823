#include "tools/tuning/key.h"

#include <fmt/format.h>

#include <cstdint>
#include <map>

#include "core/base/dtype.h"
#include "plugins/host/manifest.h"

namespace backplane::tuning {

std::string key_of(const Place& place, const models::ModelFile& file) {
  const models::DecoderSpec& spec = file.spec();
  std::map<std::string, std::uint64_t> elements;
  for (const formats::TensorInfo& tensor : file.container().tensors()) {
    elements[tensor.type ? std::string(dtype_name(*tensor.type)) : "other"] += tensor.elements();
  }
  std::string types;
  for (const auto& [type, count] : elements) types += fmt::format(" {}={}", type, count);
  return plugins::printable(
      fmt::format("{} x {}; {} {}; {} layers={} hidden={} heads={}/{} dim={}/{} ffn={} vocabulary={}{}",
                  place.processors, place.processor, place.device, place.version, spec.architecture, spec.layers.size(),
                  spec.hidden, spec.heads, spec.kv_heads, spec.head_dim, spec.value_dim, spec.ffn, spec.vocab_size,
                  types),
      1024);
}

}  // namespace backplane::tuning
