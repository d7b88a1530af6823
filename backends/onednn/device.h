// The objects behind the ABI's handles.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/onednn/kernels.h"
#include "backends/onednn/library.h"
#include "backends/onednn/memory.h"
#include "backends/onednn/packed.h"
#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::onednn {

// Which kernels to run, and where weights lie. Opened once and then only read, but for `memory`, which locks itself.
struct Device {
  const Kernels* kernels = nullptr;
  std::unique_ptr<FloatLibrary> library;  // for products of floats, or none
  bool always_library = false;            // even where it isn't faster
  mutable SharedMemory memory;
};

inline const Device& device_of(bp_device device) { return *reinterpret_cast<const Device*>(device); }
inline PackedWeight& weight_of(bp_weight weight) { return *reinterpret_cast<PackedWeight*>(weight); }

// K and V of all layers. A page of a layer is, for each KV head, K[D][S] and V[S][Dv]: scores of neighboring keys are
// computed side by side, and what one head reads lies together. In Q8_0 these are bytes, and F16 scales [D/32][S] and
// [S][Dv/32] follow them.
class KvCache {
 public:
  struct Layer {
    std::int64_t heads, dim, value_dim, group, pages;
    AlignedBytes k, v;
  };

  // Throws BP_UNSUPPORTED for types and page sizes that the kernels don't take.
  explicit KvCache(const bp_kv_desc& desc);
  static std::uint64_t bytes_for(const bp_kv_desc& desc);

  bp_type type() const { return type_; }
  std::int64_t element() const { return plugin::type_info(type_).block_bytes; }  // of the float types
  bool quantized() const { return type_ == BP_TYPE_Q8_0; }
  std::int64_t page_size() const { return page_size_; }
  const std::vector<Layer>& layers() const { return layers_; }
  // Throws BP_INVALID for a layer that the cache hasn't.
  const Layer& layer(std::uint32_t index) const;

  // What one head has in a page: K[D][S], V[S][Dv].
  std::byte* k_at(const Layer& layer, std::int64_t page, std::int64_t head) const {
    return layer.k.data() + (page * layer.heads + head) * page_bytes(layer.dim);
  }
  std::byte* v_at(const Layer& layer, std::int64_t page, std::int64_t head) const {
    return layer.v.data() + (page * layer.heads + head) * page_bytes(layer.value_dim);
  }
  std::int64_t page_bytes(std::int64_t dim) const {
    const plugin::TypeInfo info = plugin::type_info(type_);
    return page_size_ * (dim / info.block_elements * info.block_bytes);
  }
  // Key or value `offset` of such a page in Q8_0.
  QuantizedRow key_row(std::byte* page, std::int64_t offset, std::int64_t dim) const {
    return {page + offset, page_size_, page + dim * page_size_ + 2 * offset, page_size_};
  }
  QuantizedRow value_row(std::byte* page, std::int64_t offset, std::int64_t dim) const {
    return {page + offset * dim, 1, page + dim * page_size_ + 2 * offset * (dim / kBlock), 1};
  }

 private:
  bp_type type_;
  std::int64_t page_size_;
  std::vector<Layer> layers_;
};

inline KvCache& cache_of(bp_kv kv) { return *reinterpret_cast<KvCache*>(kv); }

constexpr bool is_cache_type(bp_type type) {
  return type == BP_TYPE_F32 || type == BP_TYPE_F16 || type == BP_TYPE_BF16 || type == BP_TYPE_Q8_0;
}

void fill_weights(bp_weights_table& table);
void fill_kv(bp_kv_table& table);

}  // namespace backplane::onednn
