#include "tools/check_trace.h"

#include <algorithm>
#include <numeric>

#include "tests/conformance/random.h"

namespace backplane::tools::check {
namespace {

namespace dev = backplane::device;

conformance::Shape shape_of(const dev::Tensor& t) { return {t.shape.begin(), t.shape.begin() + t.rank}; }

// Calls visit(number of the element, its byte in the storage).
template <class Visit>
void for_each_element(const dev::Tensor& t, Visit&& visit) {
  std::size_t number = 0;
  for (std::int64_t a = 0; a < t.shape[0]; ++a) {
    for (std::int64_t b = 0; b < (t.rank > 1 ? t.shape[1] : 1); ++b) {
      for (std::int64_t c = 0; c < (t.rank > 2 ? t.shape[2] : 1); ++c) {
        for (std::int64_t d = 0; d < (t.rank > 3 ? t.shape[3] : 1); ++d) {
          visit(number++, t.offset + static_cast<std::size_t>(a * t.stride[0] + b * t.stride[1] + c * t.stride[2] +
                                                              d * t.stride[3]));
        }
      }
    }
  }
}

std::vector<std::byte> storage_bytes(const dev::Tensor& t) {
  std::vector<std::byte> bytes(t.end());
  t.storage->get_host(0, bytes);
  return bytes;
}

std::vector<std::int32_t> all_pages(const dev::KvPool& pool, std::uint32_t layer) {
  std::vector<std::int32_t> pages(pool.spec().pages[pool.spec().layers[layer].group]);
  std::iota(pages.begin(), pages.end(), 0);
  return pages;
}

KvValues shaped_kv(const dev::KvPool& pool, std::uint32_t layer) {
  const dev::KvLayer& l = pool.spec().layers[layer];
  const auto pages = static_cast<std::int64_t>(pool.spec().pages[l.group]);
  return {Array({pages, pool.spec().page_size, l.kv_heads, l.head_dim}),
          Array({pages, pool.spec().page_size, l.kv_heads, l.value_dim})};
}

bool is_attention(std::uint32_t code) { return code == BP_OP_ATTN_PREFILL || code == BP_OP_ATTN_DECODE; }

}  // namespace

Array read_tensor(const dev::Tensor& tensor) {
  Array out(shape_of(tensor));
  if (out.data.empty()) return out;
  const std::vector<std::byte> bytes = storage_bytes(tensor);
  for_each_element(tensor, [&](std::size_t i, std::size_t at) {
    out.data[i] = conformance::read_number(tensor.type, bytes.data() + at);
  });
  return out;
}

void write_tensor(const dev::Tensor& tensor, const Array& values) {
  if (values.data.empty()) return;
  std::vector<std::byte> bytes = storage_bytes(tensor);  // what lies between its rows stays
  for_each_element(tensor, [&](std::size_t i, std::size_t at) {
    conformance::write_number(tensor.type, values.data[i], bytes.data() + at);
  });
  tensor.storage->put_host(0, bytes);
}

KvValues read_kv(dev::KvPool& pool, std::uint32_t layer) {
  KvValues values = shaped_kv(pool, layer);
  const std::vector<std::int32_t> pages = all_pages(pool, layer);
  std::vector<std::byte> k(pages.size() * pool.k_page_bytes(layer)), v(pages.size() * pool.v_page_bytes(layer));
  pool.read_pages(layer, pages, k, v);
  return {conformance::decode(pool.spec().type, values.k.shape, k),
          conformance::decode(pool.spec().type, values.v.shape, v)};
}

void write_kv(dev::KvPool& pool, std::uint32_t layer, const KvValues& values) {
  pool.write_pages(layer, all_pages(pool, layer), conformance::encode(pool.spec().type, values.k),
                   conformance::encode(pool.spec().type, values.v));
}

KvState read_kv(dev::KvPool& pool) {
  KvState state;
  for (std::uint32_t i = 0; i < pool.spec().layers.size(); ++i) state.push_back(read_kv(pool, i));
  return state;
}

void write_kv(dev::KvPool& pool, const KvState& state) {
  for (std::uint32_t i = 0; i < state.size(); ++i) write_kv(pool, i, state[i]);
}

KvState zero_kv(const dev::KvPool& pool) {
  KvState state;
  for (std::uint32_t i = 0; i < pool.spec().layers.size(); ++i) state.push_back(shaped_kv(pool, i));
  return state;
}

Array own_rows(std::uint32_t code, const sched::Step& step, const Array& out) {
  if (!is_attention(code) || out.shape.empty()) return out;
  const std::int64_t border = step.q_start[step.n_decode], all = out.shape[0];
  const std::int64_t begin = code == BP_OP_ATTN_DECODE ? 0 : border, end = code == BP_OP_ATTN_DECODE ? border : all;
  Array part;
  part.shape = out.shape;
  part.shape[0] = end - begin;
  const auto row = static_cast<std::ptrdiff_t>(out.data.size()) / std::max<std::ptrdiff_t>(1, all);
  part.data.assign(out.data.begin() + begin * row, out.data.begin() + end * row);
  return part;
}

void Tap::before(const dev::Site& site, const std::vector<dev::Seen>& seen) {
  key_.site = static_cast<std::size_t>(&site - executor_.sites().data());
  key_.visit = visits_[key_.site]++;
  entering(site, key_, seen);
}

void Tap::after(const dev::Site& site, const std::vector<dev::Seen>& seen) { left(site, key_, seen); }

Array Tap::output(const dev::Site& site, const std::vector<dev::Seen>& seen) const {
  for (const dev::Seen& each : seen) {
    if (each.written) return own_rows(site.code, step_, read_tensor(each.tensor));
  }
  return {};
}

void OutputTap::left(const dev::Site& site, const OpKey& key, const std::vector<dev::Seen>& seen) {
  trace_.ops[key].out = output(site, seen);
}

bool SourceTap::quantized(const OpKey& key) const {
  const dev::Site& site = subject_.sites()[key.site];
  return site.native && site.code == BP_OP_LINEAR && site.support.quantized_activation_type != BP_TYPE_NONE;
}

void SourceTap::entering(const dev::Site&, const OpKey& key, const std::vector<dev::Seen>& seen) {
  OpValues& values = trace_.ops[key];
  for (const dev::Seen& each : seen) values.before.push_back(each.read ? read_tensor(each.tensor) : Array());
  if (!quantized(key)) return;
  Array ties;
  const auto type = static_cast<DType>(subject_.sites()[key.site].support.quantized_activation_type);
  write_tensor(seen.front().tensor, conformance::quantize_activations(values.before.front(), type, ties));
}

void SourceTap::left(const dev::Site& site, const OpKey& key, const std::vector<dev::Seen>& seen) {
  OpValues& values = trace_.ops[key];
  if (quantized(key)) write_tensor(seen.front().tensor, values.before.front());
  for (const dev::Seen& each : seen) {
    if (!each.written) continue;
    Array all = read_tensor(each.tensor);
    values.out = own_rows(site.code, step_, all);
    conformance::round_to(subject_.activation_type(), all);
    write_tensor(each.tensor, all);
  }
  if (site.code != BP_OP_KV_WRITE) return;
  KvValues kv = read_kv(executor_.kv(), site.layer);
  conformance::round_to(subject_.kv().spec().type, kv.k);
  conformance::round_to(subject_.kv().spec().type, kv.v);
  write_kv(executor_.kv(), site.layer, kv);
  trace_.kv[site.layer] = std::move(kv);
}

void IsolatedTap::entering(const dev::Site& site, const OpKey& key, const std::vector<dev::Seen>& seen) {
  const auto found = source_.ops.find(key);
  if (found == source_.ops.end()) return;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (seen[i].read) write_tensor(seen[i].tensor, found->second.before[i]);
  }
  const auto kv = source_.kv.find(site.layer);
  if (is_attention(site.code) && kv != source_.kv.end()) write_kv(executor_.kv(), site.layer, kv->second);
}

void IsolatedTap::left(const dev::Site& site, const OpKey& key, const std::vector<dev::Seen>& seen) {
  trace_.ops[key].out = output(site, seen);
  if (site.code == BP_OP_KV_WRITE) trace_.kv[site.layer] = read_kv(executor_.kv(), site.layer);
}

}  // namespace backplane::tools::check
