// What the host asks of the GPU: one struct and one function for each kind of launch. Pointers are the device's,
// strides are bytes, activations are F32 or BF16 as the call's `activation` says. Each function enqueues and returns at
// once, and enqueues nothing where there is nothing to store: a product without columns still is its bias.
// `kernel_name` says what a call takes, for the core's ledger.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "plugins/abi/backplane_plugin.h"

namespace backplane::cuda {

// Asks the driver for a kernel's code: fails where this build has none for the current GPU.
cudaError_t probe_kernels();

// The rows of a tensor, numbered in row-major order of all dimensions but the innermost.
struct Rows {
  std::byte* data = nullptr;
  std::int64_t inner = 1, middle = 1;  // sizes of the second and third dimension from the right
  std::int64_t inner_stride = 0, middle_stride = 0, outer_stride = 0;
  bool flat = false;  // row n begins n * inner_stride after the first: no divisions to find it
};

// What a kernel found wrong with its input. It can't fail, so it says so here and leaves the element alone.
enum Fault : int { kNoFault = 0, kIdFault = 1, kPageFault = 2, kSlotFault = 3, kIndexFault = 4, kSampleFault = 5 };

// ---- elementwise.cu

enum class Elementwise : int { kAdd, kMul, kScale, kSoftcap, kActivate, kGate };

struct ElementwiseCall {
  bp_type activation = BP_TYPE_F32;
  Elementwise op = Elementwise::kAdd;
  std::uint32_t kind = 0;  // BP_ACT_*
  float value = 1;         // alpha, the factor or the cap
  Rows a, b, out;          // b: the second operand, or `up` of a gate
  std::int64_t rows = 0, columns = 0;
};
cudaError_t enqueue(cudaStream_t stream, const ElementwiseCall& call);
inline const char* kernel_name(const ElementwiseCall&) { return "elementwise"; }

// ---- norm.cu: NORM, and ADD_NORM where `a` is given: x = a + alpha * b is stored to sum first.

struct NormCall {
  bp_type activation = BP_TYPE_F32;
  Rows x, out;
  Rows a, b, sum;
  float alpha = 1;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float eps = 0, unit_offset = 0;
  bool layer = false;
  std::int64_t rows = 0, columns = 0;
};
cudaError_t enqueue(cudaStream_t stream, const NormCall& call);
inline const char* kernel_name(const NormCall&) { return "norm"; }

// ---- linear.cu, linear_narrow.cu, linear_many.cu, embed.cu

// A weight matrix: floats, or quantized rows in the planes of layout.h.
struct Matrix {
  bp_type type = BP_TYPE_NONE;
  const std::byte* data = nullptr;
  std::int64_t pitch = 0;  // from row to row
  std::int64_t step = 0;   // from column to column, of floats: one element, unless they are stored transposed
  std::int64_t rows = 0, columns = 0;
  bool vectors = false;  // floats whose rows can be read 16 bytes at a time; what is beyond the last column then is 0
  std::uint32_t second = 0, scales = 0, last = 0;  // planes of a quantized row
};

// A norm that products of few tokens make of their activations themselves.
struct XNorm {
  Rows x;  // [T,C]; no data: no norm
  const float* weight = nullptr;
  const float* bias = nullptr;
  float eps = 0, unit_offset = 0;
  bool layer = false;
};

struct LinearCall {
  bp_type activation = BP_TYPE_F32;
  Matrix weight;
  Rows x, out, residual;  // residual.data is null for LINEAR
  XNorm x_norm;           // only where path_of is kFew; then `x` is of no account
  const float* bias = nullptr;
  float alpha = 1;
  std::uint32_t kind = 0;  // BP_ACT_* of the result, or 0
  std::int64_t tokens = 0;
  bool invariant = false;  // one order of sums for every number of tokens
  int processors = 1;      // that the GPU has
  int shared_bytes = 0;    // of shared memory that a block can have
  bool blas = false;       // it may go to cuBLASLt (cublaslt.h)
};
// Whether cuBLASLt can take a product: one type, no steps between elements, and a bias of the results' type that
// `alpha` doesn't multiply.
constexpr bool suits_blas(const LinearCall& call) {
  const Matrix& weight = call.weight;
  const std::int64_t element = call.activation == BP_TYPE_BF16 ? 2 : 4, most = INT32_MAX;
  if (weight.type != call.activation || weight.step != element) return false;
  const auto is_pitch = [element](std::int64_t bytes, std::int64_t columns) {
    return bytes % element == 0 && bytes >= columns * element;
  };
  if (!is_pitch(call.x.inner_stride, weight.columns) || !is_pitch(call.out.inner_stride, weight.rows)) return false;
  if (weight.rows > 1 && !is_pitch(weight.pitch, weight.columns)) return false;
  if (call.residual.data != nullptr && !is_pitch(call.residual.inner_stride, weight.rows)) return false;
  if (call.bias != nullptr && (element == 2 || (call.residual.data != nullptr && call.alpha != 1.0f))) return false;
  return weight.columns > 0 && weight.columns <= most && weight.rows <= most && call.tokens <= most;
}

// Whether eight columns of a token and of a row of weights can each be read 16 bytes at a time.
inline __host__ __device__ bool reads_vectors(const LinearCall& call) {
  const auto places = reinterpret_cast<std::uintptr_t>(call.x.data) | static_cast<std::uintptr_t>(call.x.inner_stride);
  return places % 16 == 0 && call.weight.vectors && call.weight.columns % 8 == 0;
}

// Whether the kernel for some tokens can take it, which counts bytes from a block's first row, and token, in 32 bits.
inline bool suits_narrow(const LinearCall& call) {
  const auto is_near = [](std::int64_t step) { return step >= 0 && step < std::int64_t{1} << 26; };
  return reads_vectors(call) && is_near(call.weight.pitch) && is_near(call.x.inner_stride) &&
         is_near(call.weight.columns);
}

// How a product is computed, decided here alone. From nine tokens on, tensor cores: what padding to eight tokens wastes
// of them costs less than the multiplications of the ordinary cores. Blocks of 128 tokens only pay once there are more
// than 64. What cuBLASLt refuses comes again without `blas`.
enum class LinearPath { kFew, kNarrow, kWide, kBlas };
constexpr std::int64_t kMostFewTokens = 8, kFewestBlasTokens = 17, kMostNarrowTokens = 64;
inline LinearPath path_of(const LinearCall& call) {
  if (call.tokens <= kMostFewTokens || call.invariant) return LinearPath::kFew;
  if (call.blas && call.tokens >= kFewestBlasTokens && suits_blas(call)) return LinearPath::kBlas;
  return call.tokens <= kMostNarrowTokens && suits_narrow(call) ? LinearPath::kNarrow : LinearPath::kWide;
}
cudaError_t enqueue(cudaStream_t stream, const LinearCall& call);
const char* kernel_name(const LinearCall& call);

// What a block of rows leaves for HEAD_ARGMAX: the largest, or the one with the lowest index of several.
struct alignas(8) Candidate {
  float value;
  std::int32_t index;  // -1: none. Where one of the block's isn't a number, -2 less the index instead
};
constexpr std::int64_t kLargestRows = 32;  // of a block

// Up to three products of the same few activations: matrices of one type over the same columns, their rows one after
// another in the grid.
struct ProductsCall {
  enum class Purpose : int {
    kStore,   // out = f(product + bias), or residual + alpha * that
    kGate,    // the first part's out = f(first product + bias) * (second + bias); both have the same rows
    kLargest  // the first part's candidates, [tokens, blocks]
  };
  struct Part {
    Matrix weight;
    Rows out;
    const float* bias = nullptr;
  };
  ProductsCall() = default;
  explicit ProductsCall(const LinearCall& first)
      : activation(first.activation),
        x(first.x),
        residual(first.residual),
        x_norm(first.x_norm),
        alpha(first.alpha),
        kind(first.kind),
        tokens(first.tokens),
        processors(first.processors) {
    add(first);
  }
  void add(const LinearCall& next) { parts[count++] = {next.weight, next.out, next.bias}; }

  bp_type activation = BP_TYPE_F32;
  Purpose purpose = Purpose::kStore;
  Part parts[3];
  int count = 0;
  Rows x, residual;  // residual.data may be null
  XNorm x_norm;
  float alpha = 1;
  std::uint32_t kind = 0;  // BP_ACT_* of kGate, or of kStore, there 0 for none
  std::int64_t tokens = 0;
  Candidate* largest = nullptr;
  int processors = 1;
};
cudaError_t enqueue(cudaStream_t stream, const ProductsCall& call);
const char* kernel_name(const ProductsCall& call);

struct EmbedCall {
  bp_type activation = BP_TYPE_F32;
  Matrix table;
  const std::int32_t* ids = nullptr;
  Rows out;
  std::int64_t tokens = 0;
  int* fault = nullptr;
};
cudaError_t enqueue(cudaStream_t stream, const EmbedCall& call);
inline const char* kernel_name(const EmbedCall&) { return "embed"; }

// ---- repack.cu: quantized rows from the file's bytes to planes, or back. Both are contiguous and on the device.

struct RepackCall {
  bp_type type = BP_TYPE_NONE;
  bool pack = true;
  std::byte* file = nullptr;
  std::byte* planes = nullptr;
  std::int64_t rows = 0, columns = 0;
};
cudaError_t enqueue(cudaStream_t stream, const RepackCall& call);

// ---- select.cu

// The k largest of each row. Ids and values are [R,k].
struct TopkCall {
  bp_type activation = BP_TYPE_F32;
  Rows x, ids, values;
  std::int64_t rows = 0, columns = 0, k = 0;
};
cudaError_t enqueue(cudaStream_t stream, const TopkCall& call);
inline const char* kernel_name(const TopkCall&) { return "topk"; }

struct GatherCall {
  Rows x, out;
  const std::int32_t* index = nullptr;
  std::int64_t rows = 0, row_bytes = 0;  // of out
  std::int64_t sources = 0;              // rows of x
  int* fault = nullptr;
};
cudaError_t enqueue(cudaStream_t stream, const GatherCall& call);
inline const char* kernel_name(const GatherCall&) { return "gather"; }

struct AdvanceCall {
  const std::int32_t* ids = nullptr;
  const std::int32_t* target = nullptr;
  std::int32_t* token = nullptr;
  std::int64_t rows = 0, tokens = 0;
  int* fault = nullptr;
};
cudaError_t enqueue(cudaStream_t stream, const AdvanceCall& call);
inline const char* kernel_name(const AdvanceCall&) { return "advance"; }

// ---- sample.cu

struct SampleCall {
  bp_type activation = BP_TYPE_F32;
  Rows logits;
  const double* temperature = nullptr;  // [R], as are the others
  const double* top_p = nullptr;
  const double* min_p = nullptr;
  const std::int32_t* top_k = nullptr;
  const std::uint64_t* seed = nullptr;
  const std::uint64_t* counter = nullptr;
  std::int32_t* ids = nullptr;
  std::int64_t rows = 0, columns = 0;
  int* fault = nullptr;
};
cudaError_t enqueue(cudaStream_t stream, const SampleCall& call);
inline const char* kernel_name(const SampleCall&) { return "sample"; }

// ---- move.cu

// Rows of blocks (elements, or blocks of a quantized type) from x, or where x.data is null, of one value.
struct CopyCall {
  Rows x, out;
  std::int64_t x_step = 0, out_step = 0;  // from block to block
  std::int64_t rows = 0, blocks = 0, block_bytes = 0;
  std::uint64_t value = 0;  // of block_bytes, the lowest first
};
cudaError_t enqueue(cudaStream_t stream, const CopyCall& call);
inline const char* kernel_name(const CopyCall&) { return "copy"; }

// From a float type to another; rows without gaps.
struct CastCall {
  Rows x, out;
  bp_type from = BP_TYPE_NONE, to = BP_TYPE_NONE;
  std::int64_t rows = 0, columns = 0;
};
cudaError_t enqueue(cudaStream_t stream, const CastCall& call);
inline const char* kernel_name(const CastCall&) { return "cast"; }

// ---- rope.cu

struct RopeCall {
  bp_type activation = BP_TYPE_F32;
  Rows x;  // numbered by token, then head
  const std::int32_t* pos = nullptr;
  const std::int32_t* row = nullptr;
  const double* inv_freq = nullptr;
  std::int64_t inv_freq_stride = 0;
  const double* scale = nullptr;
  std::int64_t tables = 0;  // rows of inv_freq
  std::int64_t tokens = 0, heads = 0;
  std::int32_t n_dims = 0;
  bool interleaved = false;
  int* fault = nullptr;
};
cudaError_t enqueue(cudaStream_t stream, const RopeCall& call);
inline const char* kernel_name(const RopeCall&) { return "rope"; }

// K or V of one layer: [pages][Hk][S] rows of `pitch` elements, a multiple of 16 bytes, of which all from `dim` on are
// zero. In Q8_0 a row has the quants, and the F16 scales of its blocks lie apart, [pages][Hk][S][dim / 32].
struct CacheSide {
  std::byte* data = nullptr;
  std::byte* scales = nullptr;
  std::int64_t dim = 0, pitch = 0;
};

// One layer's cache. There are fewer than 2^31 rows.
struct CacheView {
  bp_type type = BP_TYPE_NONE;
  CacheSide k, v;
  std::int64_t heads = 0, pages = 0, page_size = 0;
};

struct KvWriteCall {
  bp_type activation = BP_TYPE_F32;
  CacheView cache;
  Rows k, v;  // numbered by token, then head
  const std::int64_t* slots = nullptr;
  std::int64_t tokens = 0;
  int* fault = nullptr;
};
cudaError_t enqueue(cudaStream_t stream, const KvWriteCall& call);
inline const char* kernel_name(const KvWriteCall&) { return "kv_write"; }

// ---- heads.cu: what follows the products of QKV_ROPE_WRITE.

struct HeadsCall {
  bp_type activation = BP_TYPE_F32;
  Rows q;                  // numbered by token, then head; in place
  std::int64_t heads = 0;  // of q
  KvWriteCall write;       // with k and v as the products left them
  RopeCall rope;           // of both, whose x is of no account; n_dims of 0: none
  bool normalizes_q = false, normalizes_k = false;
  NormCall q_norm, k_norm;  // whose tensors are of no account
};
cudaError_t enqueue(cudaStream_t stream, const HeadsCall& call);
inline const char* kernel_name(const HeadsCall&) { return "heads"; }

// ---- largest.cu

// The candidates of logits that lie in memory, [tokens, blocks] with kLogitsOfBlock columns for each block.
constexpr std::int64_t kLogitsOfBlock = 4096;
struct LogitsCall {
  bp_type activation = BP_TYPE_F32;
  Rows logits;
  Candidate* largest = nullptr;
  std::int64_t tokens = 0, columns = 0;
};
cudaError_t enqueue(cudaStream_t stream, const LogitsCall& call);
inline const char* kernel_name(const LogitsCall&) { return "logits"; }

struct LargestCall {
  bp_type activation = BP_TYPE_F32;
  const Candidate* candidates = nullptr;  // [tokens, blocks]
  std::int32_t* ids = nullptr;
  std::byte* values = nullptr;  // of the activations' type
  std::int64_t tokens = 0, blocks = 0;
};
cudaError_t enqueue(cudaStream_t stream, const LargestCall& call);
inline const char* kernel_name(const LargestCall&) { return "largest"; }

// ---- pages.cu

// Pages between one side of a layer and canonical bytes [count,S,Hk,dim] in device memory.
struct PageMoveCall {
  static constexpr std::uint64_t kMost = 256;  // pages a launch
  CacheSide side;
  std::byte* canonical = nullptr;
  std::int64_t heads = 0, page_size = 0;
  std::int64_t row_bytes = 0;    // of a canonical row
  std::int64_t pitch_bytes = 0;  // of a row of side.data
  std::int64_t count = 0;
  bool out = false;  // to canonical bytes
  std::int32_t pages[kMost];
};
cudaError_t enqueue(cudaStream_t stream, const PageMoveCall& call);

// What pages have in one array: page n of `from` begins n * from_step bytes after its begin.
struct PagePlane {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::int64_t from_step = 0, to_step = 0, bytes = 0;
};

// Pages from[i] to pages to[i] in several arrays, of which none overlaps another.
struct PageCopyCall {
  static constexpr std::uint64_t kMost = 128;  // pages a launch
  static constexpr int kMostPlanes = 48;
  PagePlane planes[kMostPlanes];
  int plane_count = 0;
  std::int64_t count = 0;
  std::int32_t from[kMost], to[kMost];
};
static_assert(sizeof(PageCopyCall) < 4096, "what a launch can carry");
cudaError_t enqueue(cudaStream_t stream, const PageCopyCall& call);

// ---- attention.cu

// Keys go by chunks that begin at multiples of kChunk, whoever asks; results of chunks are combined in their order.
constexpr std::int64_t kChunk = 256;
constexpr std::int64_t kMostHeadDim = 256;

// Floats that a chunk of one row leaves: out[Dv], and in the last eight the largest score and the sum of weights.
constexpr std::int64_t partial_floats(std::int64_t value_dim) { return (value_dim + 7) / 8 * 8 + 8; }

// Blocks for the rows of one sequence and KV head.
std::int64_t attention_tiles(std::int64_t tokens, std::int64_t group);

struct AttentionCall {
  bp_type activation = BP_TYPE_F32;
  CacheView cache;
  Rows q, out;  // numbered by token, then head
  const float* sinks = nullptr;
  const std::int32_t* q_start = nullptr;
  const std::int32_t* pos = nullptr;
  const std::int32_t* page_table = nullptr;  // of the group: [B,M]
  std::int64_t max_pages = 0;
  std::int64_t first_sequence = 0, last_sequence = 0;
  std::int64_t tokens = 0;  // of the step
  std::int64_t max_q = 0;
  std::int64_t chunks = 0;  // of the longest sequence
  std::int64_t heads = 0;   // Hq
  std::int64_t window = 0;
  float scale = 1, softcap = 0;
  // Over how many blocks the chunks of a sequence are spread. Above 1, these need room for the results of all chunks,
  // [tokens of these sequences, Hq, chunks] of partial_floats(Dv), and counters: one, zero, for each KV head and each
  // of attention_tiles(max_q, Hq / Hk) of each sequence.
  std::int64_t parts = 1;
  float* partial = nullptr;
  std::int64_t partial_step = 0;  // partial_floats(Dv)
  unsigned* counters = nullptr;
  int shared_bytes = 0;  // of shared memory that a block can have
  int* fault = nullptr;
};
cudaError_t enqueue(cudaStream_t stream, const AttentionCall& call);
const char* kernel_name(const AttentionCall& call);

// ---- attention_prefill.cu: the same for prompts, in tiles of 64 rows on tensor cores.

struct PrefillCall : AttentionCall {};  // without `partial`
cudaError_t enqueue(cudaStream_t stream, const PrefillCall& call);
inline const char* kernel_name(const PrefillCall&) { return "mma, paged"; }
std::uint64_t prefill_shared_bytes(const AttentionCall& call);  // that a block needs

// Which of the two a prompt takes: tiles, unless they would be mostly padding, or so few over so long a text that most
// of the GPU would wait for them, where the other kernel spreads the keys over blocks.
enum class AttentionPath { kChunks, kTiles };
constexpr std::int64_t kTileRows = 64, kFewestTileRows = 16, kChunksOfShortText = 8;
constexpr AttentionPath prompt_path(const AttentionCall& call, std::int64_t processors) {
  if (call.cache.heads == 0) return AttentionPath::kChunks;
  const std::int64_t rows = call.max_q * (call.heads / call.cache.heads);
  const std::int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  const std::int64_t blocks = tiles * call.cache.heads * (call.last_sequence - call.first_sequence);
  const bool fills = 2 * blocks >= processors || call.chunks <= kChunksOfShortText;
  return rows >= kFewestTileRows && fills ? AttentionPath::kTiles : AttentionPath::kChunks;
}

}  // namespace backplane::cuda
