// What a GPU can do at most, as tools/gpu_check measures it: bytes per second copied and read, and operations per
// second of a product of bf16 matrices with float sums. Prints one JSON object. Exit status: 0, 1 where something
// failed, 2 without a GPU.
//
//   roofs [CUBLAS]   the path of libcublas, which is loaded when it is there; products are not measured without it
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr int kWarmUp = 3, kRounds = 5, kTimes = 10;
constexpr std::size_t kMostBytes = std::size_t{4} << 30;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "roofs: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// The least time of one call, in seconds, over rounds of several each.
template <typename Call>
double seconds_of(const Call& call) {
  cudaEvent_t begin{}, end{};
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  for (int i = 0; i < kWarmUp; ++i) call();
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    check(cudaEventRecord(begin), "event");
    for (int i = 0; i < kTimes; ++i) call();
    check(cudaEventRecord(end), "event");
    check(cudaEventSynchronize(end), "running");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "time");
    best = std::min(best, milliseconds / 1e3 / kTimes);
  }
  return best;
}

__global__ void copy_words(const uint4* from, uint4* to, std::size_t count) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) to[i] = from[i];
}

// Four loads are under way in each thread; what is read counts only so that it has to be.
__global__ void read_words(const uint4* from, std::uint32_t* sink, std::size_t count) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  std::uint32_t all = 0;
  for (; i + 3 * step < count; i += 4 * step) {
    const uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    all ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  for (; i < count; i += step) all ^= from[i].x ^ from[i].y ^ from[i].z ^ from[i].w;
  if (all == 0x5eed1e55u) *sink = all;
}

// Pairs of bf16 between -1 and 1 with random bits: products of zeros take less power, and so run faster than real ones.
__global__ void fill_random(std::uint32_t* to, std::size_t count) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761u + 12345u;
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu, x ^= x >> 16;
    to[i] = (x & 0x80ff80ffu) | 0x3f003f00u;
  }
}

struct Memory {
  double copy = 0, read = 0;
  const char* copied_by = "";
};

Memory measure_memory(unsigned char* memory, std::size_t half, int processors) {
  const std::size_t words = half / sizeof(uint4);
  const auto* from = reinterpret_cast<const uint4*>(memory);
  auto* to = reinterpret_cast<uint4*>(memory + half);
  const double driver =
      seconds_of([&] { check(cudaMemcpyAsync(to, from, half, cudaMemcpyDeviceToDevice, nullptr), "copying"); });
  const double kernel = seconds_of([&] { copy_words<<<processors * 16, 512>>>(from, to, words); });
  const double read = seconds_of(
      [&] { read_words<<<processors * 16, 512>>>(from, reinterpret_cast<std::uint32_t*>(to), 2 * words - 1); });
  check(cudaGetLastError(), "launching");
  const double bytes = static_cast<double>(half);
  return {2 * bytes / std::min(driver, kernel), 2 * bytes / read, driver < kernel ? "cudaMemcpyAsync" : "a kernel"};
}

// The few functions of cuBLAS that are used, with its own numbers of types: its headers need not be there.
using Create = int (*)(void** handle);
using Gemm = int (*)(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha,
                     const void* a, int a_type, int lda, const void* b, int b_type, int ldb, const void* beta, void* c,
                     int c_type, int ldc, int compute, int algorithm);
constexpr int kTranspose = 1, kPlain = 0, kBf16 = 14, kComputeF32 = 68, kDefault = -1;

struct Products {
  double flops = 0;
  int m = 0, n = 0, k = 0;
  std::string reason;
};

Products measure_products(const char* path, unsigned char* memory, std::size_t bytes) {
  void* library = nullptr;
  for (const char* name : {path, "libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
    if (!library && name) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (!library) return {.reason = "there is no libcublas"};
  const auto create = reinterpret_cast<Create>(dlsym(library, "cublasCreate_v2"));
  const auto gemm = reinterpret_cast<Gemm>(dlsym(library, "cublasGemmEx"));
  void* handle = nullptr;
  if (!create || !gemm || create(&handle) != 0) return {.reason = "cuBLAS can't be initialized"};
  Products best;
  const float one = 1, zero = 0;
  for (const auto& [m, n, k] :
       {std::array{4096, 4096, 4096}, {8192, 8192, 8192}, {14336, 4096, 4096}, {4096, 4096, 14336}}) {
    const std::size_t a = std::size_t{2} * m * k, b = std::size_t{2} * n * k, c = std::size_t{2} * m * n;
    if (a + b + c > bytes) continue;
    int status = 0;
    const double seconds = seconds_of([&] {
      status |= gemm(handle, kTranspose, kPlain, m, n, k, &one, memory, kBf16, k, memory + a, kBf16, k, &zero,
                     memory + a + b, kBf16, m, kComputeF32, kDefault);
    });
    if (status != 0) return {.reason = "cublasGemmEx failed with status " + std::to_string(status)};
    const double flops = 2.0 * m * n * k / seconds;
    if (flops > best.flops) best = {flops, m, n, k, {}};
  }
  if (best.flops == 0) best.reason = "there is too little memory";
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  cudaDeviceProp device{};
  if (const cudaError_t error = cudaGetDeviceProperties(&device, 0); error != cudaSuccess) {
    std::fprintf(stderr, "roofs: there is no GPU: %s\n", cudaGetErrorString(error));
    return 2;
  }
  std::size_t free_bytes = 0, total = 0;
  check(cudaMemGetInfo(&free_bytes, &total), "memory");
  const std::size_t half = std::min(kMostBytes, free_bytes / 4) & ~std::size_t{0xffff};
  void* memory = nullptr;
  check(cudaMalloc(&memory, 2 * half), "memory");
  auto* bytes = static_cast<unsigned char*>(memory);
  fill_random<<<device.multiProcessorCount * 16, 512>>>(reinterpret_cast<std::uint32_t*>(bytes), 2 * half / 4);
  check(cudaDeviceSynchronize(), "filling");
  const Products products = measure_products(argc > 1 ? argv[1] : nullptr, bytes, 2 * half);
  const Memory rates = measure_memory(bytes, half, device.multiProcessorCount);
  std::printf("{\"copy_bytes_per_s\": %.6g, \"copied_by\": \"%s\", \"read_bytes_per_s\": %.6g, ", rates.copy,
              rates.copied_by, rates.read);
  if (products.reason.empty()) {
    std::printf("\"matmul_flops_per_s\": %.6g, \"matmul\": \"%d x %d x %d\"}\n", products.flops, products.m, products.n,
                products.k);
  } else {
    std::printf("\"matmul_flops_per_s\": null, \"matmul_reason\": \"%s\"}\n", products.reason.c_str());
  }
  return 0;
}
