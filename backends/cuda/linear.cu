// Products for few tokens, and EMBED, which reads weights likewise.
#include "backends/cuda/few.cuh"

namespace backplane::cuda {
namespace {

// Where a block's rows are: rows [first, first + count) of a part, and with kGate of the next one too.
struct BlockRows {
  int part;
  std::int64_t first;
  int count;
};

__device__ __forceinline__ BlockRows block_rows(const ProductsCall& call) {
  const int warps = static_cast<int>(blockDim.x / 32);
  if (call.purpose == Purpose::kGate) return {0, std::int64_t{blockIdx.x} * warps, warps};
  const int rows = warps * kRowsPerWarp;
  std::int64_t block = blockIdx.x;
  int part = 0;
  for (; part + 1 < call.count; ++part) {
    const std::int64_t blocks = blocks_for(call.parts[part].weight.rows, rows);
    if (block < blocks) break;
    block -= blocks;
  }
  return {part, block * rows, rows};
}

// What a lane multiplies at once: its columns of both rows.
template <bp_type kType>
struct Batch {
  using F = Format<kType>;
  typename F::Raw raw[F::kBatch][kRowsPerWarp];

  __device__ __forceinline__ void load(const Matrix& matrix, const std::byte* const* rows, int step) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const std::int64_t end = CU_FAULT("few.lost_tail") ? matrix.columns - F::kColumns : matrix.columns;
#pragma unroll
    for (int b = 0; b < F::kBatch; ++b) {
      const int number = (step * F::kBatch + b) * 32 + lane;
      const bool inside = std::int64_t{number} * F::kColumns < end;
#pragma unroll
      for (int r = 0; r < kRowsPerWarp; ++r) {
        raw[b][r] = {};
        if (inside) raw[b][r] = F::load(matrix, rows[r], number);
      }
    }
  }

  // Sums go by columns in one order, for one token as for eight. `x` has the activations from this step's first column
  // on, of which there are `chunks` for all lanes.
  template <int kTokens, int kPitch>
  __device__ __forceinline__ void multiply(int step, int chunks, const float4* x,
                                           float (&sums)[kRowsPerWarp * kTokens]) const {
    using Layout = XLayout<kType>;
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int b = 0; b < F::kBatch; ++b) {
      if (b >= chunks) break;
      decltype(F::scale(raw[0][0], 0)) scales[kRowsPerWarp];
#pragma unroll
      for (int r = 0; r < kRowsPerWarp; ++r) scales[r] = F::scale(raw[b][r], (step * F::kBatch + b) * 32 + lane);
#pragma unroll
      for (int part = 0; part < Layout::kParts; ++part) {
        float w[kRowsPerWarp][4];
#pragma unroll
        for (int r = 0; r < kRowsPerWarp; ++r) F::part(raw[b][r], scales[r], part, w[r]);
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          const float4 four = cu::ld_shared(x + t * kPitch + b * Layout::kChunk + part * Layout::kLine + lane);
#pragma unroll
          for (int r = 0; r < kRowsPerWarp; ++r) {
            sums[r * kTokens + t] = dot(four, w[r], sums[r * kTokens + t]);
          }
        }
      }
    }
  }
};

// The sums of a block's rows, [tokens][kResultLine], to where the call wants them: neighbors to neighbors.
template <class A>
__device__ __forceinline__ void finish(const ProductsCall& call, const BlockRows& block, std::int64_t first_token,
                                       int tokens, const float* sums) {
  const ProductsCall::Part& part = call.parts[block.part];
  const std::int64_t rows = part.weight.rows;
  for (int i = static_cast<int>(threadIdx.x); i < tokens * block.count; i += static_cast<int>(blockDim.x)) {
    const int t = i / block.count, number = i % block.count;
    const std::int64_t row = block.first + number, token = first_token + t;
    if (row >= rows) continue;
    float result;
    if (call.purpose == Purpose::kGate) {
      float gate = cu::ld_shared(sums + t * kResultLine + 2 * number);
      float up = cu::ld_shared(sums + t * kResultLine + 2 * number + 1);
      if (part.bias != nullptr) gate += cu::ld_global(part.bias + row);
      if (call.parts[1].bias != nullptr) up += cu::ld_global(call.parts[1].bias + row);
      result = activate(call.kind, gate) * up;
    } else {
      result = cu::ld_shared(sums + t * kResultLine + number);
      if (part.bias != nullptr && !CU_FAULT("few.forgotten_bias")) result += cu::ld_global(part.bias + row);
      if (call.kind != 0) result = activate(call.kind, result);
      if (call.residual.data != nullptr) {
        result = to_float(cu::ld_global(row_of<A>(call.residual, token) + row)) + call.alpha * result;
      }
    }
    cu::st_global(row_of<A>(part.out, token) + row, from_float<A>(result));
  }
}

// A warp for each token. Logits are rounded as LINEAR stores them, so that its ties are ties here.
template <class A>
__device__ __forceinline__ void find_largest(const ProductsCall& call, const BlockRows& block, std::int64_t first_token,
                                             int tokens, const float* sums) {
  const ProductsCall::Part& part = call.parts[block.part];
  const int lane = static_cast<int>(threadIdx.x % 32), warps = static_cast<int>(blockDim.x / 32);
  for (int t = static_cast<int>(threadIdx.x) / 32; t < tokens; t += warps) {
    const std::int64_t row = block.first + lane;
    Candidate own{0.0f, -1};
    if (lane < block.count && row < part.weight.rows) {
      own = {cu::ld_shared(sums + t * kResultLine + lane), static_cast<std::int32_t>(row)};
      if (part.bias != nullptr) own.value += cu::ld_global(part.bias + row);
      own.value = to_float(from_float<A>(own.value));
    }
    const bool is_broken = __any_sync(0xffffffffu, own.value != own.value);
    own = warp_first(own);
    if (is_broken) own.index = -2 - own.index;
    if (lane == 0) cu::st_global(call.largest + (first_token + t) * gridDim.x + blockIdx.x, own);
  }
}

template <class A, bp_type kType, int kTokens>
__global__ void __launch_bounds__(kMostWarps * 32) few_kernel(const ProductsCall call) {
  using F = Format<kType>;
  using Layout = XLayout<kType>;
  constexpr int kPiece = kPieceColumns<kTokens>, kPitch = kPiece / Layout::kColumns * Layout::kChunk;
  CU_SHARED(float4, x, [kTokens * kPitch]);
  CU_SHARED(float, results, [kTokens * kResultLine]);
  CU_SHARED(Moments, moments, [kTokens]);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const std::int64_t first_token = std::int64_t{blockIdx.y} * kTokens;
  const BlockRows block = block_rows(call);
  const Matrix& matrix = call.parts[block.part].weight;
  const std::int64_t columns = matrix.columns;
  const std::byte* rows[kRowsPerWarp];
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const bool gate = call.purpose == Purpose::kGate;
    const std::int64_t row = block.first + (gate ? warp : warp * kRowsPerWarp + r);
    const Matrix& own = gate && r > 0 ? call.parts[1].weight : matrix;
    rows[r] = row_at(own, row < matrix.rows ? row : matrix.rows - 1);  // beyond the last: nobody looks
    if (CU_FAULT("few.same_row") && !gate) rows[r] = rows[0];
  }

  constexpr int kValues = kRowsPerWarp * kTokens;
  float sums[kValues] = {};
  Batch<kType> batch;
  batch.load(matrix, rows, 0);
  if (call.x_norm.x.data != nullptr) find_moments<A, kTokens>(call, first_token, results, moments);
  int step = 0;
  for (std::int64_t begin = 0; begin < columns; begin += kPiece) {
    __syncthreads();  // everybody is done with the columns before
    stage<A, kType, kTokens, kPitch>(call, moments, first_token, begin, x);
    if (!CU_FAULT("few.dropped_barrier")) __syncthreads();
    const std::int64_t end = begin + kPiece < columns ? begin + kPiece : columns;
    const float4* at = x;
    for (std::int64_t column = begin; column < end; column += Layout::kColumns * F::kBatch, ++step) {
      const std::int64_t left = (end - column + Layout::kColumns - 1) / Layout::kColumns;
      const int chunks = left < F::kBatch ? static_cast<int>(left) : F::kBatch;
      if constexpr (kTokens == 1) {
        const Batch<kType> now = batch;
        batch.load(matrix, rows, step + 1);
        now.template multiply<kTokens, kPitch>(step, chunks, at, sums);
      } else {  // other warps multiply long enough meanwhile, and registers are few
        batch.template multiply<kTokens, kPitch>(step, chunks, at, sums);
        batch.load(matrix, rows, step + 1);
      }
      at += F::kBatch * Layout::kChunk;
    }
  }

  // A row's sums lie [row][token] in the order of values, and [token][row] for those who store them.
  const float sum = warp_sums(sums);
  const int number = lane / (32 / kValues);
  if (lane % (32 / kValues) == 0) {
    cu::st_shared(results + number % kTokens * kResultLine + warp * kRowsPerWarp + number / kTokens, sum);
  }
  __syncthreads();
  const std::int64_t left = call.tokens - first_token;
  const int tokens = left < kTokens ? static_cast<int>(left) : kTokens;
  if (call.purpose == Purpose::kLargest) {
    find_largest<A>(call, block, first_token, tokens, results);
  } else {
    finish<A>(call, block, first_token, tokens, results);
  }
}

// Warps of a block: as many as leave each multiprocessor a block, but no fewer than fill the sectors that several
// tokens' results go to.
int warps_for(const ProductsCall& call, int processors) {
  if (call.purpose == Purpose::kLargest) return kMostWarps;
  const int each = call.purpose == Purpose::kGate ? 1 : kRowsPerWarp;
  const int element = call.activation == BP_TYPE_F32 ? 4 : 2;
  const int least = call.tokens == 1 ? 4 : std::max(4, static_cast<int>(kSector) / element / each);
  std::int64_t rows = 0;
  for (int part = 0; part < call.count; ++part) rows += call.parts[part].weight.rows;
  if (call.purpose == Purpose::kGate) rows /= 2;
  int warps = kMostWarps;
  while (warps > least && rows < std::int64_t{warps} * each * processors) warps /= 2;
  return warps;
}

template <class A, bp_type kType>
cudaError_t launch_few(cudaStream_t stream, const ProductsCall& call) {
  const int warps = warps_for(call, call.processors);
  const int rows = call.purpose == Purpose::kGate ? warps : warps * kRowsPerWarp;
  unsigned blocks = 0;
  for (int part = 0; part < call.count; ++part) blocks += blocks_for(call.parts[part].weight.rows, rows);
  if (call.purpose == Purpose::kGate) blocks /= 2;
  const auto threads = static_cast<unsigned>(warps) * 32;
  if (call.tokens == 1) return launch(stream, few_kernel<A, kType, 1>, dim3(blocks), threads, 0, call);
  const dim3 grid(blocks, blocks_for(call.tokens, kFewTokens));
  return launch(stream, few_kernel<A, kType, kFewTokens>, grid, threads, 0, call);
}

}  // namespace

const char* kernel_name(const LinearCall& call) {
  if (path_of(call) == LinearPath::kNarrow) return "mma, 32 x 32";
  if (path_of(call) == LinearPath::kWide) return "mma, 128 x 128";
  if (path_of(call) == LinearPath::kBlas) return "cuBLASLt";
  return call.tokens == 1 ? "few, 1 token" : "few, 8 tokens";
}

const char* kernel_name(const ProductsCall& call) { return call.tokens == 1 ? "few, 1 token" : "few, 8 tokens"; }

cudaError_t enqueue(cudaStream_t stream, const ProductsCall& call) {
  std::int64_t rows = 0;
  for (int part = 0; part < call.count; ++part) rows += call.parts[part].weight.rows;
  if (call.tokens == 0 || rows == 0) return cudaSuccess;
  return visit_activation(call.activation, [&]<class A>() {
    return visit_format(call.parts[0].weight.type, [&]<bp_type kType>() { return launch_few<A, kType>(stream, call); });
  });
}

cudaError_t enqueue(cudaStream_t stream, const LinearCall& call) {
  if (call.tokens == 0 || call.weight.rows == 0) return cudaSuccess;
  const LinearPath path = path_of(call);
  if (path == LinearPath::kNarrow) return enqueue_narrow(stream, call);
  if (path == LinearPath::kWide) return enqueue_wide(stream, call);
  return enqueue(stream, ProductsCall(call));
}

}  // namespace backplane::cuda
