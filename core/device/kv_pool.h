// The memory of the KV cache: in the plugin's own layout, or in canonical pages on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "core/device/storage.h"

namespace backplane::device {

struct KvLayer {
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t value_dim = 0;
  std::uint32_t group = 0;
};

struct KvSpec {
  DType type = DType::kNone;
  std::uint32_t page_size = 16;
  std::vector<std::uint64_t> pages;  // of each group
  std::vector<KvLayer> layers;

  // Canonical bytes of everything: the one formula for sizing.
  std::uint64_t bytes() const;
};

class KvPool {
 public:
  KvPool(const Devices& devices, KvSpec spec);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const KvSpec& spec() const { return spec_; }
  // Whether slot 0 implements the whole kv table; it owns the layout if it also supports all KV ops of the model.
  bool can_own() const;
  void create_owned();      // in slot 0's layout
  void create_canonical();  // host pages, contents undefined
  bool owned() const { return handle_ != nullptr; }

  bp_kv handle() const { return handle_; }
  // [P,S,Hk,D] and [P,S,Hk,Dv] of a layer. While planning, storage is null.
  Tensor k_pages(std::uint32_t layer) const { return pages(layer, true); }
  Tensor v_pages(std::uint32_t layer) const { return pages(layer, false); }
  // Whether canonical pages can be used in place by the slot; creates them.
  bool reachable(Slot slot);

 private:
  Tensor pages(std::uint32_t layer, bool keys) const;
  std::uint64_t v_offset(const KvLayer& layer) const;  // in the layer's storage

  const Devices* devices_;
  KvSpec spec_;
  bp_kv handle_ = nullptr;
  std::vector<std::shared_ptr<Storage>> storage_;  // by layer: K pages, then V pages
};

}  // namespace backplane::device
