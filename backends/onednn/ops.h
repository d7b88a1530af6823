// The ops. Each has two functions; the SDK's `check` has seen types and shapes before:
//   workspace_bytes   what `run` will take from its workspace
//   run               the op itself; it still looks at memory, ids and page numbers
#pragma once

#include <cstdint>

#include "backends/onednn/device.h"
#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::onednn {

using plugin::View;
using plugin::Workspace;

// What `run` gets beside the arguments.
struct Call {
  const Device& device;
  std::uint32_t code;  // BP_OP_*
  Workspace workspace;
};

// Elements that are worth waking another thread for.
constexpr std::int64_t kElementGrain = 8192;

// Calls body(row number) for all rows, on several threads where there is enough to do. Nothing for empty rows.
template <class Body>
void for_rows(std::int64_t rows, std::int64_t columns, Body body) {
  if (rows <= 0 || columns <= 0) return;
  plugin::parallel_for(rows, 1 + kElementGrain / columns, [&](std::int64_t begin, std::int64_t end, unsigned) {
    for (std::int64_t r = begin; r < end; ++r) body(r);
  });
}

// An optional vector of F32, or nullptr.
inline const float* floats_or_null(const bp_tensor& tensor, const char* name) {
  return plugin::is_absent(tensor) ? nullptr : View<const float>(tensor, name).data();
}

template <class Args>
std::uint64_t workspace_bytes(const Args&) {
  return 0;
}
std::uint64_t workspace_bytes(const bp_linear_args&);
std::uint64_t workspace_bytes(const bp_attention_args&);
std::uint64_t workspace_bytes(const bp_rope_args&);
std::uint64_t workspace_bytes(const bp_qkv_args&);
std::uint64_t workspace_bytes(const bp_gateup_args&);
std::uint64_t workspace_bytes(const bp_head_argmax_args&);

void run(const Call&, const bp_embed_args&);
void run(const Call&, const bp_norm_args&);
void run(const Call&, const bp_linear_args&);
void run(const Call&, const bp_rope_args&);
void run(const Call&, const bp_kv_write_args&);
void run(const Call&, const bp_attention_args&);
void run(const Call&, const bp_activation_args&);
void run(const Call&, const bp_glu_args&);
void run(const Call&, const bp_binary_args&);
void run(const Call&, const bp_scalar_args&);
void run(const Call&, const bp_gather_args&);
void run(const Call&, const bp_add_norm_args&);
void run(const Call&, const bp_qkv_args&);
void run(const Call&, const bp_gateup_args&);
void run(const Call&, const bp_head_argmax_args&);

// Makes the x of an op whose x_norm is there.
inline void make_x(const Call& call, const bp_norm_args* x_norm, const bp_tensor& x) {
  if (x_norm != nullptr) run(call, plugin::x_norm_of(x_norm, x));
}

// Puts keys and values into the cache of one layer.
class CacheWriter {
 public:
  // Throws BP_INVALID where the step doesn't fit the cache.
  CacheWriter(const Device& device, const bp_kv_write_args& args);
  // One head of token t: k[D], v[Dv].
  void write(std::int64_t t, std::int64_t head, const float* k, const float* v) const;

 private:
  const Device& device_;
  const KvCache& cache_;
  const KvCache::Layer& layer_;
  const std::int64_t* slots_;
};

}  // namespace backplane::onednn
