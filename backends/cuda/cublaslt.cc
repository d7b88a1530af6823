#include "backends/cuda/cublaslt.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "backends/cuda/runtime.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#ifdef BACKPLANE_CUDA_EMULATED
#include <cuda_emulation/blas.h>
#else
#include <dlfcn.h>
#endif

namespace backplane::cuda {
namespace {

#ifdef BACKPLANE_CUDA_EMULATED
void* open_library(const char* name) { return cuda_emulation::open_blas(name); }
void* find_function(void* library, const char* name) { return cuda_emulation::find_blas(library, name); }
#else
// Never closed: it starts threads of its own.
void* open_library(const char* name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }
void* find_function(void* library, const char* name) { return dlsym(library, name); }
#endif

// The functions in use, of the header's types.
struct Functions {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;

  // Why the library can't be used, empty if it can.
  std::string load(const char* name) {
    void* library = open_library(name);
    if (library == nullptr) return std::string(name) + " is not there";
    const char* missing = nullptr;
    const auto find = [&]<class F>(F& function, const char* symbol) {
      function = reinterpret_cast<F>(find_function(library, symbol));
      if (function == nullptr) missing = symbol;
    };
    find(create, "cublasLtCreate");
    find(destroy, "cublasLtDestroy");
    find(matmul, "cublasLtMatmul");
    find(get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(desc_create, "cublasLtMatmulDescCreate");
    find(desc_destroy, "cublasLtMatmulDescDestroy");
    find(desc_set, "cublasLtMatmulDescSetAttribute");
    find(layout_create, "cublasLtMatrixLayoutCreate");
    find(layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(preference_create, "cublasLtMatmulPreferenceCreate");
    find(preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(preference_set, "cublasLtMatmulPreferenceSetAttribute");
    return missing == nullptr ? std::string() : std::string(name) + " has no " + missing;
  }
};

// A call of the library that failed. What it means is decided where it is caught.
struct Refusal {
  cublasStatus_t status;
};
void must(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Refusal{status};
}

// Columns are the library's rows: out is [N,T] with leading dimension `out`, the weight [C,N] taken transposed, x
// [C,T]. `tokens` may be those of the whole class, where an algorithm is chosen.
struct Shape {
  bool bf16, bias, residual;
  std::int64_t rows, columns, tokens;
  std::int64_t weight_pitch, x_pitch, residual_pitch, out_pitch;  // elements
  std::int64_t alignment;                                         // bytes, of all addresses

  using Key = std::array<std::int64_t, 11>;
  Key key() const {
    return {bf16, bias, residual, rows, columns, tokens, weight_pitch, x_pitch, residual_pitch, out_pitch, alignment};
  }
  cudaDataType_t type() const { return bf16 ? CUDA_R_16BF : CUDA_R_32F; }
};

Shape shape_of(const LinearCall& call) {
  const std::int64_t element = call.activation == BP_TYPE_BF16 ? 2 : 4;
  Shape shape{};
  shape.bf16 = call.activation == BP_TYPE_BF16;
  shape.bias = call.bias != nullptr;
  shape.residual = call.residual.data != nullptr;
  shape.rows = call.weight.rows;
  shape.columns = call.weight.columns;
  shape.tokens = call.tokens;
  shape.weight_pitch = call.weight.rows == 1 ? call.weight.columns : call.weight.pitch / element;
  shape.x_pitch = call.x.inner_stride / element;
  shape.residual_pitch = shape.residual ? call.residual.inner_stride / element : 0;
  shape.out_pitch = call.out.inner_stride / element;
  std::uintptr_t bits = 256;
  for (const void* address : {static_cast<const void*>(call.weight.data), static_cast<const void*>(call.x.data),
                              static_cast<const void*>(call.out.data), static_cast<const void*>(call.residual.data),
                              static_cast<const void*>(call.bias)}) {
    bits |= reinterpret_cast<std::uintptr_t>(address);
  }
  shape.alignment = std::int64_t{1} << std::countr_zero(bits);
  return shape;
}

// Descriptions of one product, destroyed with it.
class Description {
 public:
  Description(const Functions& library, const Shape& shape, const float* bias) : library_(library) {
    try {
      build(shape, bias);
    } catch (...) {
      release();
      throw;
    }
  }
  ~Description() { release(); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, residual = nullptr, out = nullptr;

 private:
  // F32 products are F32: never in fewer bits, whatever is faster.
  void build(const Shape& shape, const float* bias) {
    must(library_.desc_create(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    must(library_.desc_set(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
    if (shape.bias) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      must(library_.desc_set(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
      must(library_.desc_set(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)));
    }
    const auto rows = static_cast<std::uint64_t>(shape.rows), columns = static_cast<std::uint64_t>(shape.columns),
               tokens = static_cast<std::uint64_t>(shape.tokens);
    const std::int64_t residual_pitch = shape.residual ? shape.residual_pitch : shape.out_pitch;
    must(library_.layout_create(&weight, shape.type(), columns, rows, shape.weight_pitch));
    must(library_.layout_create(&x, shape.type(), columns, tokens, shape.x_pitch));
    must(library_.layout_create(&residual, shape.type(), rows, tokens, residual_pitch));
    must(library_.layout_create(&out, shape.type(), rows, tokens, shape.out_pitch));
  }
  void release() {
    for (const cublasLtMatrixLayout_t layout : {weight, x, residual, out}) {
      if (layout != nullptr) library_.layout_destroy(layout);
    }
    if (product != nullptr) library_.desc_destroy(product);
  }

  const Functions& library_;
};

// The library's first choice. None where it has none.
std::optional<cublasLtMatmulAlgo_t> choose(const Functions& library, cublasLtHandle_t handle, const Shape& shape,
                                           const float* bias, std::uint64_t workspace) {
  const Description description(library, shape, bias);
  cublasLtMatmulPreference_t preference = nullptr;
  must(library.preference_create(&preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return library.preference_set(preference, attribute, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  };
  const auto alignment = static_cast<std::uint32_t>(shape.alignment);
  const std::uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;  // of parts of the columns: in F32, in one order
  bool ready = set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
  ready = ready && set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, sums);
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    ready = ready && set(attribute, alignment);
  }
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  if (ready) {
    status = library.get_heuristic(handle, description.product, description.weight, description.x, description.residual,
                                   description.out, preference, 1, &result, &found);
  }
  library.preference_destroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || found < 1 || result.state != CUBLAS_STATUS_SUCCESS) return std::nullopt;
  return result.algo;
}

}  // namespace

struct Blas::State {
  explicit State(Recordings& of_gpu) : recordings(of_gpu) {}
  // While somebody records, a handle is left behind rather than destroyed.
  ~State() {
    if (handle != nullptr) recordings.in_quiet([this] { functions.destroy(handle); });
  }

  Recordings& recordings;
  std::mutex mutex;  // guards all but `functions` and `handle`, which stay once they are there
  bool asked = false, usable = false, told = false;
  Functions functions;
  cublasLtHandle_t handle = nullptr;
  std::map<Shape::Key, std::optional<cublasLtMatmulAlgo_t>> chosen;  // for a class
  std::set<Shape::Key> refused;                                      // of a class that has an algorithm

  void tell(const std::string& why) {
    if (!std::exchange(told, true)) {
      plugin::log(BP_LOG_WARNING, "cuda", "products take this plugin's own kernels instead of cuBLASLt's: " + why);
    }
  }

  // The newest there is that works with this driver.
  void load() {
    asked = true;
    std::string why;
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
      functions = {};
      std::string problem = functions.load(name);
      if (problem.empty() && functions.create(&handle) != CUBLAS_STATUS_SUCCESS) {
        handle = nullptr;
        problem = std::string("cublasLtCreate of ") + name + " failed";
      }
      usable = problem.empty();
      if (usable) return;
      why += (why.empty() ? "" : ", ") + problem;
    }
    tell(why);
  }

  // The algorithm of a shape's class, which is that of the next power of two of tokens.
  std::optional<cublasLtMatmulAlgo_t> algorithm(Shape shape, const float* bias, std::uint64_t workspace,
                                                bool recording) {
    const std::lock_guard lock(mutex);
    if (!asked && (recording || !recordings.in_quiet([this] { load(); }))) return std::nullopt;
    if (!usable || refused.contains(shape.key())) return std::nullopt;
    shape.tokens = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(shape.tokens)));
    const auto known = chosen.find(shape.key());
    if (known != chosen.end()) return known->second;
    if (recording) return std::nullopt;
    std::optional<cublasLtMatmulAlgo_t> found;
    try {
      found = choose(functions, handle, shape, bias, workspace);
    } catch (const Refusal&) {
    }
    if (!found) tell(text(shape));
    return chosen.emplace(shape.key(), found).first->second;
  }

  // The algorithm of its class doesn't take this one: others of the class keep theirs.
  void refuse(const Shape& shape) {
    const std::lock_guard lock(mutex);
    refused.insert(shape.key());
    tell(text(shape));
  }

  static std::string text(const Shape& shape) {
    return "it has no algorithm for " + std::to_string(shape.tokens) + " x " + std::to_string(shape.columns) + " by " +
           std::to_string(shape.rows) + (shape.bf16 ? " in BF16" : " in F32");
  }
};

Blas::Blas(Recordings& recordings) : state_(std::make_unique<State>(recordings)) {}
Blas::~Blas() = default;

bool Blas::multiply(cudaStream_t stream, const LinearCall& call, void* workspace, std::uint64_t bytes, bool recording) {
  const Shape shape = shape_of(call);
  if (bytes < kWorkspaceBytes) return false;
  const auto algorithm = state_->algorithm(shape, call.bias, kWorkspaceBytes, recording);
  if (!algorithm) return false;
  const Functions& library = state_->functions;
  const float alpha = call.alpha, beta = shape.residual ? 1.0f : 0.0f;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  try {
    const Description description(library, shape, call.bias);
    const void* residual = shape.residual ? call.residual.data : call.out.data;
    status = library.matmul(state_->handle, description.product, &alpha, call.weight.data, description.weight,
                            call.x.data, description.x, &beta, residual, description.residual, call.out.data,
                            description.out, &*algorithm, workspace, kWorkspaceBytes, stream);
  } catch (const Refusal& refusal) {
    status = refusal.status;
  }
  if (status == CUBLAS_STATUS_SUCCESS) return true;
  check(cudaPeekAtLastError(), "cublasLtMatmul");
  if (status == CUBLAS_STATUS_EXECUTION_FAILED || status == CUBLAS_STATUS_INTERNAL_ERROR) {
    throw plugin::Failure(BP_INTERNAL, "cublasLtMatmul: status " + std::to_string(static_cast<int>(status)));
  }
  if (status != CUBLAS_STATUS_ALLOC_FAILED) state_->refuse(shape);  // memory may be there the next time
  return false;
}

}  // namespace backplane::cuda

#else

namespace backplane::cuda {

struct Blas::State {};
Blas::Blas(Recordings&) {}
Blas::~Blas() = default;
bool Blas::multiply(cudaStream_t, const LinearCall&, void*, std::uint64_t, bool) { return false; }

}  // namespace backplane::cuda

#endif
