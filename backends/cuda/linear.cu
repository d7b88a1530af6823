// Products for few tokens, and the way to the kernels for more.
#include "backends/cuda/few_ring.cuh"

namespace backplane::cuda {
namespace {

// The sums of a block's rows, [tokens][kResultLine], to where the call wants them: neighbors to neighbors.
template <class A>
__device__ __forceinline__ void finish(const ProductsCall& call, const BlockRows& block, std::int64_t first_token,
                                       int tokens, const float* sums) {
  const ProductsCall::Part& part = call.parts[block.part];
  const std::int64_t rows = part.weight.rows;
  const int shift = __ffs(block.count) - 1;
  for (int i = static_cast<int>(threadIdx.x); i < tokens << shift; i += static_cast<int>(blockDim.x)) {
    const int t = i >> shift, number = i & (block.count - 1);
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
        result = to_float(cu::ld_global(token_of<A>(call.residual, token) + row)) + call.alpha * result;
      }
    }
    cu::st_global(token_of<A>(part.out, token) + row, from_float<A>(result));
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

template <class A, bp_type kType, int kTokens, bool kVectors>
__global__ void __launch_bounds__(kMostWarps * 32, 1) few_kernel(const ProductsCall call, const Grid grid) {
  using Layout = XLayout<A, kType, kTokens>;
  using Weights = Ring<kType, kTokens, kVectors>;
  static_assert(Layout::kChunks % Weights::kSize == 0);
  CU_SHARED(float4, x, [kTokens * Layout::kPitch]);
  CU_SHARED(float, x_sums, [Layout::kSpan == 0 ? 1 : kTokens * Layout::kSumPitch]);
  CU_SHARED(float, results, [kTokens * kResultLine]);
  CU_SHARED(Moments, moments, [kTokens]);
  CU_SHARED(BlockRows, rows_of_block);  // for the end, where registers have become free
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const std::int64_t first_token = std::int64_t{blockIdx.y} * kTokens;
  const BlockRows block = block_rows(call, grid);
  if (threadIdx.x == 0) cu::st_shared(&rows_of_block, block);
  Weights weights;
  weights.start(call, block);

  if (call.x_norm.x.data != nullptr) find_moments<A, kTokens>(call, first_token, results, moments);
  const bool whole = has_whole_fours<A>(call);
  constexpr int kValues = kRowsPerWarp * kTokens;
  float sums[kValues] = {};
  const std::int64_t columns = call.parts[0].weight.columns;  // as all parts have
  for (std::int64_t begin = 0; begin < columns; begin += kPieceColumns<kTokens>) {
    __syncthreads();  // everybody is done with the columns before
    if (whole) {
      stage<A, kType, kTokens, true>(call, moments, first_token, begin, x, x_sums);
    } else {
      stage<A, kType, kTokens, false>(call, moments, first_token, begin, x, x_sums);
    }
    if (!CU_FAULT("few.dropped_barrier")) __syncthreads();
    const std::int64_t left = (columns - begin + Layout::kColumns - 1) / Layout::kColumns;
    const int chunks = left < Layout::kChunks ? static_cast<int>(left) : Layout::kChunks;
    for (int chunk = 0; chunk < chunks; chunk += Weights::kSize) {
#pragma unroll
      for (int place = 0; place < Weights::kSize; ++place) {
        if (chunk + place >= chunks) break;
        multiply<A, kType, kTokens>(weights.raw[place], x + (chunk + place) * Layout::kChunk,
                                    x_sums + (chunk + place) * Layout::kSumChunk, sums);
        weights.load(call.parts[0].weight, place);
      }
      weights.advance();
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
    find_largest<A>(call, cu::ld_shared(&rows_of_block), first_token, tokens, results);
  } else {
    finish<A>(call, cu::ld_shared(&rows_of_block), first_token, tokens, results);
  }
}

// The fewest tokens that a kernel is made for and that are no fewer than these; more than eight go eight at a time.
constexpr int instance_for(std::int64_t tokens) {
  return tokens <= 2 ? static_cast<int>(tokens) : tokens <= 4 ? 4 : kFewTokens;
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

template <class A, bp_type kType, int kTokens, bool kVectors = true>
cudaError_t launch_some(cudaStream_t stream, const ProductsCall& call) {
  const int warps = warps_for(call, call.processors);
  const bool gate = call.purpose == Purpose::kGate;
  Grid grid;
  for (int part = 0; part < (gate ? 1 : call.count); ++part) {
    grid.first[part] = grid.blocks;
    grid.blocks += blocks_for(call.parts[part].weight.rows, gate ? warps : warps * kRowsPerWarp);
  }
  return launch(stream, few_kernel<A, kType, kTokens, kVectors>, dim3(grid.blocks, blocks_for(call.tokens, kTokens)),
                static_cast<unsigned>(warps) * 32, 0, call, grid);
}

template <class A, bp_type kType>
cudaError_t launch_few(cudaStream_t stream, const ProductsCall& call) {
  if constexpr (block_shape(kType).columns == 0) {
    if (!call.parts[0].weight.vectors) return launch_some<A, kType, kFewTokens, false>(stream, call);
  }
  switch (instance_for(call.tokens)) {
    case 1:
      return launch_some<A, kType, 1>(stream, call);
    case 2:
      return launch_some<A, kType, 2>(stream, call);
    case 4:
      return launch_some<A, kType, 4>(stream, call);
    default:
      return launch_some<A, kType, kFewTokens>(stream, call);
  }
}

// Floats that don't lie as vectors always take the largest instance.
bool is_gathered(const Matrix& weight) { return block_shape(weight.type).columns == 0 && !weight.vectors; }

const char* few_name(const Matrix& weight, std::int64_t tokens) {
  switch (is_gathered(weight) ? kFewTokens : instance_for(tokens)) {
    case 1:
      return "few, 1 token";
    case 2:
      return "few, 2 tokens";
    case 4:
      return "few, 4 tokens";
    default:
      return "few, 8 tokens";
  }
}

}  // namespace

const char* kernel_name(const LinearCall& call) {
  if (path_of(call) == LinearPath::kNarrow) return "mma, 32 x 32";
  if (path_of(call) == LinearPath::kWide) return "mma, 128 x 128";
  if (path_of(call) == LinearPath::kBlas) return "cuBLASLt";
  return few_name(call.weight, call.tokens);
}

const char* kernel_name(const ProductsCall& call) { return few_name(call.parts[0].weight, call.tokens); }

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
