// The objects behind the ABI's handles.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/onednn/kernels.h"
#include "backends/onednn/library.h"
#include "backends/onednn/packed.h"
#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::onednn {

// Which kernels to run is all that a device knows: it is opened once and then only read.
struct Device {
  const Kernels* kernels = nullptr;
  std::unique_ptr<FloatLibrary> library;  // for products of floats, or none
  bool always_library = false;            // even where it isn't faster
};

inline const Device& device_of(bp_device device) { return *reinterpret_cast<const Device*>(device); }
inline PackedWeight& weight_of(bp_weight weight) { return *reinterpret_cast<PackedWeight*>(weight); }

// K and V of all layers. A page of a layer is, for each KV head, K[D][S] and V[S][Dv]: scores of neighboring keys are
// computed side by side, and what one head reads lies together.
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
  std::int64_t element() const { return plugin::type_info(type_).block_bytes; }
  std::int64_t page_size() const { return page_size_; }
  const std::vector<Layer>& layers() const { return layers_; }
  // Throws BP_INVALID for a layer that the cache hasn't.
  const Layer& layer(std::uint32_t index) const;

  // What one head has in a page: K[D][S], V[S][Dv].
  std::byte* k_at(const Layer& layer, std::int64_t page, std::int64_t head) const {
    return layer.k.data() + (page * layer.heads + head) * layer.dim * page_size_ * element();
  }
  std::byte* v_at(const Layer& layer, std::int64_t page, std::int64_t head) const {
    return layer.v.data() + (page * layer.heads + head) * layer.value_dim * page_size_ * element();
  }

 private:
  bp_type type_;
  std::int64_t page_size_;
  std::vector<Layer> layers_;
};

inline KvCache& cache_of(bp_kv kv) { return *reinterpret_cast<KvCache*>(kv); }

constexpr bool is_cache_type(bp_type type) {
  return type == BP_TYPE_F32 || type == BP_TYPE_F16 || type == BP_TYPE_BF16;
}

void fill_weights(bp_weights_table& table);
void fill_kv(bp_kv_table& table);

}  // namespace backplane::onednn
