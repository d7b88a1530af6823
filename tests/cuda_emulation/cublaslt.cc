// cuBLASLt on the host. Descriptions are checked as far as the backend uses them; whatever else is asked for is not
// supported. An algorithm is marked with the shape that it was chosen for, and one of another shape is refused.
#include "tests/cuda_emulation/include/cuda_emulation/blas.h"

#include "tests/cuda_emulation/capture.h"
#include "tests/cuda_emulation/runtime.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <string_view>

namespace cuda_emulation {

namespace {

struct Product {
  bool transposed = false;  // the first factor
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const float* bias = nullptr;
};
struct Layout {
  cudaDataType type;
  std::uint64_t rows, columns;
  std::int64_t pitch;
};
struct Preference {
  std::uint64_t workspace = 0;
};

// What is left of cublasLtMatmulAlgo_t to a library.
struct Algorithm {
  std::uint64_t mark, rows, depth, workspace;
};
constexpr std::uint64_t kMark = 0xb1a5b1a5b1a5b1a5;
constexpr std::uint64_t kWorkspace = 4096;

template <class Handle, class Own>
Own& own(Handle handle) {
  return *reinterpret_cast<Own*>(handle);
}
Product& product_of(cublasLtMatmulDesc_t handle) { return own<cublasLtMatmulDesc_t, Product>(handle); }
Layout& layout_of(cublasLtMatrixLayout_t handle) { return own<cublasLtMatrixLayout_t, Layout>(handle); }

struct Operation {
  Product product;
  Layout a, b, c, d;
  const void *first, *second, *before;
  void* out;
  float alpha, beta;
};

bool agrees(const Product& product, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const auto fits = [&](const Layout& x) {
    return x.type == a.type && x.pitch >= static_cast<std::int64_t>(x.rows) && x.rows != 0 && x.columns != 0;
  };
  const bool known = a.type == CUDA_R_32F || a.type == CUDA_R_16BF;
  const bool shapes =
      a.rows == b.rows && a.columns == d.rows && b.columns == d.columns && c.rows == d.rows && c.columns == d.columns;
  const bool bias = product.epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
                    (product.epilogue == CUBLASLT_EPILOGUE_BIAS && product.bias != nullptr && a.type == CUDA_R_32F);
  return product.transposed && known && shapes && bias && fits(a) && fits(b) && fits(c) && fits(d);
}

float element(const Layout& layout, const void* data, std::uint64_t row, std::uint64_t column) {
  const std::uint64_t at = column * static_cast<std::uint64_t>(layout.pitch) + row;
  if (layout.type == CUDA_R_32F) return static_cast<const float*>(data)[at];
  return std::bit_cast<float>(std::uint32_t{static_cast<const std::uint16_t*>(data)[at]} << 16);
}

void store(const Layout& layout, void* data, std::uint64_t row, std::uint64_t column, float value) {
  const std::uint64_t at = column * static_cast<std::uint64_t>(layout.pitch) + row;
  if (layout.type == CUDA_R_32F) {
    static_cast<float*>(data)[at] = value;
    return;
  }
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = value == value ? bits + 0x7fff + (bits >> 16 & 1) : bits | 0x400000;
  static_cast<std::uint16_t*>(data)[at] = static_cast<std::uint16_t>(rounded >> 16);
}

void multiply(const Operation& op) {
  for (std::uint64_t column = 0; column < op.d.columns; ++column) {
    for (std::uint64_t row = 0; row < op.d.rows; ++row) {
      float sum = 0;
      for (std::uint64_t k = 0; k < op.a.rows; ++k) {
        sum += element(op.a, op.first, k, row) * element(op.b, op.second, k, column);
      }
      sum *= op.alpha;
      if (op.beta != 0) sum += op.beta * element(op.c, op.before, row, column);
      if (op.product.epilogue == CUBLASLT_EPILOGUE_BIAS) sum += op.product.bias[row];
      store(op.d, op.out, row, column, sum);
    }
  }
}

// Whether a matrix lies in memory of a device.
bool lies(const Layout& layout, const void* data) {
  const std::uint64_t size = layout.type == CUDA_R_32F ? 4 : 2;
  const std::uint64_t bytes = ((layout.columns - 1) * static_cast<std::uint64_t>(layout.pitch) + layout.rows) * size;
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  return find_memory(data, bytes) != nullptr;
}

cublasStatus_t multiply_on(const Call& call, Operation op, cudaStream_t handle) {
  const auto stream = find_stream(handle);
  const bool there =
      lies(op.a, op.first) && lies(op.b, op.second) && lies(op.d, op.out) && (op.beta == 0 || lies(op.c, op.before));
  if (stream == nullptr || !there || !agrees(op.product, op.a, op.b, op.c, op.d)) return CUBLAS_STATUS_INVALID_VALUE;
  const cudaError_t status = enqueue(stream, [op] {
    bool runs = false;
    {
      State& shared = state();
      const std::lock_guard lock(shared.mutex);
      runs = shared.config.run_kernels;
    }
    if (runs) multiply(op);
  });
  return call.result(status) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

Blas blas() {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  return shared.config.blas;
}

std::atomic<bool> opened_newer{true};  // of the two versions, the last time

}  // namespace

void* open_blas(const char* name) {
  const std::string_view asked = name;
  const bool is_newer = asked == "libcublasLt.so.13";
  opened_newer = is_newer;
  const bool is_there = is_newer ? blas() != Blas::kMissing : asked == "libcublasLt.so.12" && blas() == Blas::kTooNew;
  return is_there ? &state() : nullptr;
}

void* find_blas(void* library, const char* function) {
  if (library != &state()) return nullptr;
  const struct {
    std::string_view name;
    void* address;
  } functions[] = {
      {"cublasLtCreate", reinterpret_cast<void*>(cublasLtCreate)},
      {"cublasLtDestroy", reinterpret_cast<void*>(cublasLtDestroy)},
      {"cublasLtMatmul", reinterpret_cast<void*>(cublasLtMatmul)},
      {"cublasLtMatmulAlgoGetHeuristic", reinterpret_cast<void*>(cublasLtMatmulAlgoGetHeuristic)},
      {"cublasLtMatmulDescCreate", reinterpret_cast<void*>(cublasLtMatmulDescCreate)},
      {"cublasLtMatmulDescDestroy", reinterpret_cast<void*>(cublasLtMatmulDescDestroy)},
      {"cublasLtMatmulDescSetAttribute", reinterpret_cast<void*>(cublasLtMatmulDescSetAttribute)},
      {"cublasLtMatrixLayoutCreate", reinterpret_cast<void*>(cublasLtMatrixLayoutCreate)},
      {"cublasLtMatrixLayoutDestroy", reinterpret_cast<void*>(cublasLtMatrixLayoutDestroy)},
      {"cublasLtMatmulPreferenceCreate", reinterpret_cast<void*>(cublasLtMatmulPreferenceCreate)},
      {"cublasLtMatmulPreferenceDestroy", reinterpret_cast<void*>(cublasLtMatmulPreferenceDestroy)},
      {"cublasLtMatmulPreferenceSetAttribute", reinterpret_cast<void*>(cublasLtMatmulPreferenceSetAttribute)},
  };
  for (const auto& known : functions) {
    if (known.name == function) return known.address;
  }
  return nullptr;
}

}  // namespace cuda_emulation

using namespace cuda_emulation;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const Call call("cublasLtCreate");
  if (call.refused()) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (disturbs_captures_of(call.device())) return CUBLAS_STATUS_INTERNAL_ERROR;
  if (blas() == Blas::kTooNew && opened_newer) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = reinterpret_cast<cublasLtHandle_t>(&state());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  const Call call("cublasLtDestroy");
  if (call.refused()) return CUBLAS_STATUS_NOT_INITIALIZED;
  return disturbs_captures_of(call.device()) ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute, cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Product);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete &product_of(product);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  Product& product = product_of(handle);
  const auto take = [&](auto& to) {
    if (bytes != sizeof(to)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) return take(product.epilogue);
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) return take(product.bias);
  if (attribute != CUBLASLT_MATMUL_DESC_TRANSA) return CUBLAS_STATUS_NOT_SUPPORTED;
  cublasOperation_t operation = CUBLAS_OP_N;
  const cublasStatus_t status = take(operation);
  product.transposed = operation == CUBLAS_OP_T;
  return status;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t pitch) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, pitch});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &layout_of(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete &own<cublasLtMatmulPreference_t, Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  if (attribute != CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return CUBLAS_STATUS_SUCCESS;
  auto& workspace = own<cublasLtMatmulPreference_t, Preference>(preference).workspace;
  if (bytes != sizeof(workspace)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&workspace, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  const Call call("cublasLtMatmulAlgoGetHeuristic");
  if (call.refused()) return CUBLAS_STATUS_NOT_INITIALIZED;
  *found = 0;
  const bool known = agrees(product_of(product), layout_of(a), layout_of(b), layout_of(c), layout_of(d));
  const std::uint64_t workspace = own<cublasLtMatmulPreference_t, Preference>(preference).workspace;
  if (blas() == Blas::kRefuses || !known || most < 1 || workspace < kWorkspace) return CUBLAS_STATUS_NOT_SUPPORTED;
  *results = {};
  const Algorithm algorithm{kMark, layout_of(d).rows, layout_of(a).rows, kWorkspace};
  static_assert(sizeof(algorithm) <= sizeof(results->algo));
  std::memcpy(&results->algo, &algorithm, sizeof(algorithm));
  results->workspaceSize = kWorkspace;
  results->state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha, const void* first,
                              cublasLtMatrixLayout_t a, const void* second, cublasLtMatrixLayout_t b, const void* beta,
                              const void* before, cublasLtMatrixLayout_t c, void* out, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* chosen, void* workspace, std::size_t bytes,
                              cudaStream_t stream) {
  const Call call("cublasLtMatmul");
  if (call.refused()) return CUBLAS_STATUS_EXECUTION_FAILED;
  Algorithm algorithm{};
  if (chosen != nullptr) std::memcpy(&algorithm, chosen, sizeof(algorithm));
  const bool meant = algorithm.mark == kMark && algorithm.rows == layout_of(d).rows &&
                     algorithm.depth == layout_of(a).rows && workspace != nullptr && bytes >= algorithm.workspace;
  if (!meant) return CUBLAS_STATUS_INVALID_VALUE;
  if (blas() == Blas::kRefusesOdd && layout_of(d).columns % 2 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  return multiply_on(call,
                     {product_of(product), layout_of(a), layout_of(b), layout_of(c), layout_of(d), first, second,
                      before, out, *static_cast<const float*>(alpha), *static_cast<const float*>(beta)},
                     stream);
}

}  // extern "C"

#else

namespace cuda_emulation {
void* open_blas(const char*) { return nullptr; }
void* find_blas(void*, const char*) { return nullptr; }
}  // namespace cuda_emulation

#endif
