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
  // homes: the slot that each layer belongs to; empty: all to slot 0.
  KvPool(const Devices& devices, KvSpec spec, std::vector<Slot> homes = {});
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const KvSpec& spec() const { return spec_; }
  // Whether a device implements the whole kv table; it owns the layout of its layers if it also takes the type and
  // supports all their KV ops.
  bool implements_own(Slot slot) const;
  void create_owned(Slot slot);  // its layers, in its layout
  void create_canonical();       // the other layers: host pages, contents undefined
  Slot home(std::uint32_t layer) const { return homes_[layer]; }
  bool owned(std::uint32_t layer) const { return handle(layer) != nullptr; }

  bp_kv handle(std::uint32_t layer) const { return handles_[homes_[layer]]; }
  std::uint32_t index(std::uint32_t layer) const { return index_[layer]; }  // among the layers of its home
  // [P,S,Hk,D] and [P,S,Hk,Dv] of a layer. While planning, storage is null.
  Tensor k_pages(std::uint32_t layer) const { return pages(layer, true); }
  Tensor v_pages(std::uint32_t layer) const { return pages(layer, false); }
  // Whether a layer's canonical pages can be used in place by the slot; creates them.
  bool reachable(std::uint32_t layer, Slot slot);

  // Pages of a layer in canonical form: k is [count,S,Hk,D], v is [count,S,Hk,Dv], of spec().type. For migration
  // between devices, cross-checks and tests. Not while a step runs. Throws Error{kDevice}.
  void read_pages(std::uint32_t layer, std::span<const std::int32_t> pages, std::span<std::byte> k,
                  std::span<std::byte> v);
  void write_pages(std::uint32_t layer, std::span<const std::int32_t> pages, std::span<const std::byte> k,
                   std::span<const std::byte> v);
  // Pages from[i] of a group to its pages to[i], in all its layers, each in the layout that it has; no page occurs in
  // both. Ordered before the steps that are run after it. Throws Error{kDevice}; the pages `to` are then undefined.
  void copy_pages(std::uint32_t group, std::span<const std::int32_t> from, std::span<const std::int32_t> to);
  std::uint64_t k_page_bytes(std::uint32_t layer) const;
  std::uint64_t v_page_bytes(std::uint32_t layer) const;

 private:
  Tensor pages(std::uint32_t layer, bool keys) const;
  std::uint64_t v_offset(const KvLayer& layer) const;  // in the layer's storage
  void check(std::uint32_t layer, std::span<const std::int32_t> pages, std::uint64_t k, std::uint64_t v) const;

  const Devices* devices_;
  KvSpec spec_;
  std::vector<Slot> homes_;                        // by layer
  std::vector<std::uint32_t> index_;               // by layer
  std::vector<bp_kv> handles_;                     // by slot
  std::vector<std::shared_ptr<Storage>> storage_;  // by layer: K pages, then V pages; none where owned
};

}  // namespace backplane::device
