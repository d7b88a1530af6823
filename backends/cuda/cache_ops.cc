// The ops on the KV cache.
#include <algorithm>
#include <limits>

#include "backends/cuda/device_compat.cuh"
#include "backends/cuda/ops.h"

namespace backplane::cuda {
namespace {

// The layer's cache for kernels, of the shape that an op says.
CacheView view_of(const KvCache& cache, std::uint32_t index, std::uint32_t group, const bp_step& step,
                  std::int64_t heads, std::int64_t dim, std::int64_t value_dim) {
  const KvCache::Layer& layer = cache.layer(index);
  plugin::require(step.page_size == cache.page_size, "the step's pages are of another size than the cache's");
  plugin::require(
      layer.heads == heads && layer.k.view.dim == dim && layer.v.view.dim == value_dim && layer.group == group,
      "an op on heads of another shape or group than this layer's cache");
  return {cache.type, layer.k.view, layer.v.view, heads, layer.pages, cache.page_size};
}

constexpr std::uint64_t kMostPartialBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kMostParts = 65535;  // what a grid can have there
// Four or five times what fits at once, so that the last blocks to end leave few multiprocessors without work.
constexpr std::uint64_t kBlocksPerProcessor = 16;

// The most tokens of one of these sequences. The step's own number counts prompts beside sequences that decode, for
// which there would be many blocks without work; but what is recorded runs for other steps, too.
std::int64_t most_tokens(const bp_step& step, const bp_attention_args& args, bool recording) {
  if (recording || step.q_start == nullptr) return step.max_q;
  std::int64_t most = 0;
  for (std::uint32_t b = args.first_sequence; b < args.last_sequence; ++b) {
    most = std::max(most, std::int64_t{step.q_start[b + 1]} - step.q_start[b]);
  }
  return std::min<std::int64_t>(most, step.max_q);
}

// Floats of results of chunks, for that many tokens.
std::uint64_t partial_bytes(const bp_attention_args& args, std::uint64_t tokens, std::uint64_t chunks) {
  const auto row = static_cast<std::uint64_t>(partial_floats(args.out.shape[2]));
  plugin::Bytes bytes = plugin::checked_multiply(tokens, static_cast<std::uint64_t>(args.q.shape[1]));
  if (bytes) bytes = plugin::checked_multiply(*bytes, chunks);
  if (bytes) bytes = plugin::checked_multiply(*bytes, row * sizeof(float));
  return bytes.value_or(std::numeric_limits<std::uint64_t>::max());
}

std::uint64_t chunks_of(const bp_step& step) { return (std::uint64_t{step.max_kv} + kChunk - 1) / kChunk; }

}  // namespace

std::uint64_t workspace_bytes(const bp_attention_args& args) {
  if (args.step == nullptr) return 0;
  const bp_step step = plugin::step_of(args.step);
  const std::uint64_t bytes = partial_bytes(args, step.tokens, chunks_of(step));
  return std::min(bytes, kMostPartialBytes) + plugin::kHostAlignment;
}

KvWriteCall kv_write_call(const Call& call, const bp_kv_write_args& args) {
  const plugin::Whole<bp_step> whole(args.step);
  const bp_step& step = *whole;
  KvWriteCall kernel;
  kernel.cache =
      view_of(cache_of(args.kv), args.layer, args.group, step, args.k.shape[1], args.k.shape[2], args.v.shape[2]);
  kernel.k = input(args.k, "k");
  kernel.v = input(args.v, "v");
  const std::uint64_t skipped = std::uint64_t{args.group} * step.tokens;
  kernel.slots = step_array<std::int64_t>(step, step.slot_offset + skipped * sizeof(std::int64_t), step.tokens);
  kernel.tokens = step.tokens;
  kernel.fault = call.stream.fault;
  return kernel;
}

void run(const Call& call, const bp_kv_write_args& args) { launch(call, kv_write_call(call, args)); }

namespace {

// Only for the fault below: a copy that stays as it is, and is never freed.
const std::int32_t* frozen(const std::int32_t* table, std::uint64_t count) {
  void* copy = nullptr;
  cudaStream_t stream = nullptr;
  check(cudaMalloc(&copy, std::max<std::uint64_t>(1, count) * sizeof(*table)), "cudaMalloc");
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaMemcpyAsync(copy, table, count * sizeof(*table), cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  cudaStreamDestroy(stream);
  return static_cast<const std::int32_t*>(copy);
}

}  // namespace

void run(const Call& call, const bp_attention_args& args) {
  const plugin::Whole<bp_step> whole(args.step);
  const bp_step& step = *whole;
  AttentionCall kernel;
  kernel.cache =
      view_of(cache_of(args.kv), args.layer, args.group, step, args.kv_heads, args.q.shape[2], args.out.shape[2]);
  kernel.q = input(args.q, "q");
  kernel.out = output(args.out, "out");
  kernel.sinks = vector_of<const float>(args.sinks, "sinks");
  kernel.q_start = step_array<std::int32_t>(step, step.q_start_offset, std::uint64_t{step.sequences} + 1);
  kernel.pos = step_array<std::int32_t>(step, step.pos_offset, step.tokens);
  const std::uint64_t table = std::uint64_t{step.sequences} * step.max_pages;
  kernel.page_table =
      step_array<std::int32_t>(step, step.page_table_offset + args.group * table * sizeof(std::int32_t), table);
  if (call.stream.is_recording() && CU_FAULT("capture.stale_table"))
    kernel.page_table = frozen(kernel.page_table, table);
  kernel.max_pages = step.max_pages;
  kernel.first_sequence = args.first_sequence;
  kernel.last_sequence = args.last_sequence;
  kernel.tokens = step.tokens;
  kernel.max_q = most_tokens(step, args, call.stream.is_recording());
  kernel.heads = args.q.shape[1];
  kernel.window = args.window;
  kernel.scale = static_cast<float>(args.scale);
  kernel.softcap = static_cast<float>(args.softcap);
  kernel.shared_bytes = call.stream.device.shared_bytes;
  kernel.fault = call.stream.fault;
  kernel.activation = call.stream.device.activation;
  const std::uint64_t chunks = chunks_of(step), sequences = args.last_sequence - args.first_sequence;
  kernel.chunks = static_cast<std::int64_t>(chunks);
  const Device& device = call.stream.device;
  if (call.op.code == BP_OP_ATTN_PREFILL && !device.deterministic &&
      prompt_path(kernel, device.processors) == AttentionPath::kTiles &&
      prefill_shared_bytes(kernel) <= static_cast<std::uint64_t>(kernel.shared_bytes)) {
    return launch(call, PrefillCall{kernel});
  }

  // Spread over blocks where sequences alone don't keep the GPU busy, and there is room for the chunks' results.
  const std::int64_t group = args.kv_heads != 0 ? kernel.heads / args.kv_heads : 1;
  const auto blocks = sequences * args.kv_heads * static_cast<std::uint64_t>(attention_tiles(kernel.max_q, group));
  const auto wanted = kBlocksPerProcessor * static_cast<std::uint64_t>(call.stream.device.processors);
  const std::uint64_t tokens =
      std::min<std::uint64_t>(step.tokens, sequences * static_cast<std::uint64_t>(kernel.max_q));
  const std::uint64_t needed = partial_bytes(args, tokens, chunks);
  if (chunks > 1 && blocks > 0 && blocks < wanted && blocks <= Stream::kCounters && needed <= kMostPartialBytes &&
      call.op.workspace != nullptr && needed + plugin::kHostAlignment <= call.op.workspace_bytes) {
    kernel.parts = static_cast<std::int64_t>(std::min({chunks, (wanted + blocks - 1) / blocks, kMostParts}));
    kernel.partial = plugin::Workspace(call.op).take<float>(needed / sizeof(float));
    kernel.partial_step = partial_floats(args.out.shape[2]);
    kernel.counters = call.stream.counters();
  }
  launch(call, kernel);
}

}  // namespace backplane::cuda
