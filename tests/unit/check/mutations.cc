#include "tests/unit/check/mutations.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "plugins/sdk/backplane_plugin.hpp"
#include "tests/conformance/numbers.h"

namespace backplane::tools::check {
namespace {

bool is_attention(const bp_op& op) { return op.code == BP_OP_ATTN_PREFILL || op.code == BP_OP_ATTN_DECODE; }

template <class Args, class Change>
bp_status changed(const bp_op& op, const Run& run, Change&& change) {
  Args args = *static_cast<const Args*>(op.args);
  change(args);
  bp_op other = op;
  other.args = &args;
  return run(other);
}

// Attention with the positions of its queries moved, where they stay inside their pages.
bp_status move_positions(const bp_op& op, const Run& run, std::int32_t by) {
  if (!is_attention(op)) return run(op);
  const bp_step& given = *static_cast<const bp_attention_args*>(op.args)->step;
  bp_step step = given;
  std::vector<std::int32_t> pos(given.pos, given.pos + given.tokens);
  std::vector<std::int32_t> lengths(given.kv_len, given.kv_len + given.sequences);
  const auto page = static_cast<std::int32_t>(given.page_size);
  for (std::int32_t& p : pos) {
    if ((p + by) / page == p / page && p + by >= 0) p += by;
  }
  for (std::int32_t& length : lengths) {
    if (by > 0 && length % page != 0) length += by;
  }
  step.pos = pos.data();
  step.kv_len = lengths.data();
  if (by > 0) step.max_kv += 1;
  return changed<bp_attention_args>(op, run, [&](bp_attention_args& args) { args.step = &step; });
}

// Memory of the test as a tensor's.
template <class T>
plugin::HostBuffer host_buffer(std::vector<T>& data) {
  return {reinterpret_cast<std::byte*>(data.data()), data.size() * sizeof(T), false, true};
}
template <class T>
const T* data_of(const bp_tensor& tensor) {
  return reinterpret_cast<const T*>(plugin::host_buffer(tensor.buffer).data + tensor.offset);
}

}  // namespace

bp_status see_the_future(const bp_op& op, const Run& run) { return move_positions(op, run, 1); }
bp_status miss_the_last_key(const bp_op& op, const Run& run) { return move_positions(op, run, -1); }

bp_status take_another_rope_base(const bp_op& op, const Run& run) {
  if (op.code != BP_OP_ROPE) return run(op);
  const auto& given = *static_cast<const bp_rope_args*>(op.args);
  const std::int64_t pairs = given.inv_freq.shape[1];
  std::vector<double> frequencies(static_cast<std::size_t>(given.inv_freq.shape[0] * pairs));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {  // 5e5 instead of 1e4
    const double part = static_cast<double>(i % static_cast<std::size_t>(pairs)) / static_cast<double>(pairs);
    frequencies[i] = data_of<double>(given.inv_freq)[i] * std::pow(50, -part);
  }
  plugin::HostBuffer memory = host_buffer(frequencies);
  return changed<bp_rope_args>(op, run, [&](bp_rope_args& args) {
    args.inv_freq.buffer = reinterpret_cast<bp_buffer>(&memory);
    args.inv_freq.offset = 0;
  });
}

bp_status interleave(const bp_op& op, const Run& run) {
  if (op.code != BP_OP_ROPE) return run(op);
  return changed<bp_rope_args>(op, run, [](bp_rope_args& args) { args.interleaved ^= 1; });
}

bp_status forget_the_scale(const bp_op& op, const Run& run) {
  if (!is_attention(op)) return run(op);
  return changed<bp_attention_args>(op, run, [](bp_attention_args& args) { args.scale = 1; });
}

bp_status lose_writes_of_decodes(const bp_op& op, const Run& run) {
  const bool decode = op.code == BP_OP_KV_WRITE && static_cast<const bp_kv_write_args*>(op.args)->step->n_decode == 1;
  return decode ? BP_OK : run(op);
}

// Every sequence reads the pages of the first one, as far as those go.
bp_status confuse_pages(const bp_op& op, const Run& run) {
  if (!is_attention(op)) return run(op);
  const bp_step& given = *static_cast<const bp_attention_args*>(op.args)->step;
  bp_step step = given;
  std::vector<std::int32_t> table(given.page_table,
                                  given.page_table + std::size_t{given.groups} * given.sequences * given.max_pages);
  for (std::size_t i = given.max_pages; i < table.size(); ++i) {
    const std::int32_t first = table[i % given.max_pages];
    if (table[i] >= 0 && first >= 0) table[i] = first;
  }
  step.page_table = table.data();
  return changed<bp_attention_args>(op, run, [&](bp_attention_args& args) { args.step = &step; });
}

// Query head h reads KV head h % Hk: each head by itself, with the pages of one KV head.
bp_status take_turns_at_kv_heads(const bp_op& op, const Run& run) {
  if (!is_attention(op)) return run(op);
  const auto& given = *static_cast<const bp_attention_args*>(op.args);
  for (std::int64_t h = 0; h < given.q.shape[1]; ++h) {
    const auto take = [](bp_tensor& t, int dimension, std::int64_t index) {
      t.offset += static_cast<std::uint64_t>(index * t.stride[dimension]);
      t.shape[dimension] = 1;
    };
    const bp_status status = changed<bp_attention_args>(op, run, [&](bp_attention_args& args) {
      take(args.q, 1, h);
      take(args.out, 1, h);
      take(args.k_pages, 2, h % given.kv_heads);
      take(args.v_pages, 2, h % given.kv_heads);
      args.kv_heads = 1;
    });
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

// exp in F16 of the scores as they are: coarse, and infinite from 12 on.
bp_status attend_in_halves(const bp_op& op, const Run& run) {
  if (!is_attention(op)) return run(op);
  const auto& a = *static_cast<const bp_attention_args*>(op.args);
  const bp_step& step = *a.step;
  const std::int64_t dim = a.q.shape[2], group = a.q.shape[1] / a.kv_heads;
  const auto at = [](const bp_tensor& t, std::int64_t i, std::int64_t j, std::int64_t k) {
    auto* row = plugin::host_buffer(t.buffer).data + t.offset + i * t.stride[0] + j * t.stride[1] + k * t.stride[2];
    return reinterpret_cast<float*>(row);
  };
  for (std::uint32_t b = a.first_sequence; b < a.last_sequence; ++b) {
    const std::int32_t* pages = step.page_table + (a.group * step.sequences + b) * step.max_pages;
    for (std::int32_t t = step.q_start[b]; t < step.q_start[b + 1]; ++t) {
      for (std::int64_t h = 0; h < a.q.shape[1]; ++h) {
        std::vector<double> sums(static_cast<std::size_t>(dim));
        double total = 0;
        for (std::int64_t j = 0; j <= step.pos[t]; ++j) {
          const std::int64_t page = pages[j / step.page_size], place = j % step.page_size;
          double score = 0;
          for (std::int64_t d = 0; d < dim; ++d) {
            score += at(a.q, t, h, 0)[d] * at(a.k_pages, page, place, h / group)[d];
          }
          const double p = conformance::round_to(DType::kF16, std::exp(score * a.scale));
          total += p;
          for (std::int64_t d = 0; d < dim; ++d) {
            sums[static_cast<std::size_t>(d)] += p * at(a.v_pages, page, place, h / group)[d];
          }
        }
        for (std::int64_t d = 0; d < dim; ++d) {
          at(a.out, t, h, 0)[d] = static_cast<float>(sums[static_cast<std::size_t>(d)] / total);
        }
      }
    }
  }
  return BP_OK;
}

bp_status take_another_eps(const bp_op& op, const Run& run) {
  if (op.code != BP_OP_NORM) return run(op);
  return changed<bp_norm_args>(op, run, [](bp_norm_args& args) { args.eps = args.eps == 1e-6 ? 1e-5 : 1e-6; });
}

bp_status take_the_other_gelu(const bp_op& op, const Run& run) {
  if (op.code != BP_OP_ACT) return run(op);
  return changed<bp_activation_args>(op, run, [](bp_activation_args& args) { args.kind = BP_ACT_GELU_ERF; });
}

bp_status forget_the_bias(const bp_op& op, const Run& run) {
  if (op.code != BP_OP_LINEAR) return run(op);
  return changed<bp_linear_args>(op, run, [](bp_linear_args& args) { args.bias = {}; });
}

// The numbers of a row's last group are off by one step of 1/1000.
bp_status shift_a_group(const bp_op& op, const Run& run) {
  const bp_status status = run(op);
  if (op.code != BP_OP_LINEAR || std::strcmp(op.name, "layers.1.mlp.down") != 0) return status;
  const auto& args = *static_cast<const bp_linear_args*>(op.args);
  const auto row = [](const bp_tensor& t, std::int64_t number) {
    return reinterpret_cast<float*>(plugin::host_buffer(t.buffer).data + t.offset + number * t.stride[0]);
  };
  for (std::int64_t t = 0; t < args.x.shape[0]; ++t) {
    float sum = 0;
    for (std::int64_t c = args.x.shape[1] - 32; c < args.x.shape[1]; ++c) sum += row(args.x, t)[c];
    row(args.out, t)[3] += sum / 1000;
  }
  return status;
}

}  // namespace backplane::tools::check
