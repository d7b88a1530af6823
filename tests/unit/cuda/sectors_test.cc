// What the kernels of a decode step ask of memory: of global memory hardly more sectors than the bytes fill, of shared
// memory hardly more turns than its width takes. Shapes are those of SmolLM2 135M and of a Llama.
#include <map>

#include "tests/unit/cuda/imported.h"

namespace backplane::test {
namespace {

constexpr double kMostWaste = 1.25;

constexpr bp_type kTypes[] = {BP_TYPE_F32,  BP_TYPE_F16,  BP_TYPE_BF16, BP_TYPE_Q4_0, BP_TYPE_Q4_1, BP_TYPE_Q5_0,
                              BP_TYPE_Q5_1, BP_TYPE_Q8_0, BP_TYPE_Q4_K, BP_TYPE_Q5_K, BP_TYPE_Q6_K};

// A tensor of one row as a vector.
bp_tensor as_vector(bp_tensor row) {
  row.rank = 1;
  row.shape[0] = row.shape[1];
  row.stride[0] = row.stride[1];
  row.shape[1] = 1;
  row.stride[1] = 0;
  return row;
}

// On one of the emulated GPU's two devices, for F32 (0) and BF16 (1) activations.
class CudaSectors : public testing::TestWithParam<std::uint32_t> {
 protected:
  CudaSectors() {
    cuda_emulation::Config config;
    config.count_accesses = true;
    cuda_emulation::configure(config);
    on = open_emulated(GetParam());
  }
  ~CudaSectors() override {
    on.reset();
    cuda_emulation::configure({});
  }

  Tensor activations(std::int64_t rows, std::int64_t columns) const {
    Tensor tensor(on, GetParam() == 0 ? BP_TYPE_F32 : BP_TYPE_BF16, rows, columns);
    const std::vector<std::byte> bytes(tensor.buffer.bytes(), std::byte{0x3d});
    on->upload(tensor.buffer, 0, bytes);
    return tensor;
  }
  Tensor parameters(std::int64_t count) const {
    Tensor tensor(on, 1, std::vector<float>(static_cast<std::size_t>(count), 1.0f));
    tensor.view = as_vector(tensor.view);
    return tensor;
  }

  // Whatever ran of the kernel since the device was opened. `of_loads`: of those of global memory, too.
  void expect_little_waste(const std::string& kernel, bool of_loads = true) const {
    on->sync();
    const cuda_emulation::KernelCounts counts = cuda_emulation::kernel_counts(kernel);
    EXPECT_GT(counts.global_loads.requests, 0u) << kernel;
    EXPECT_GT(counts.global_stores.requests, 0u) << kernel;
    const std::pair<const char*, const cuda_emulation::AccessCounts*> all[] = {
        {"global loads", &counts.global_loads},
        {"global stores", &counts.global_stores},
        {"shared loads", &counts.shared_loads},
        {"shared stores", &counts.shared_stores}};
    for (const auto& [name, of] : all) {
      if (of == &counts.global_loads && !of_loads) continue;
      EXPECT_LE(static_cast<double>(of->cost), kMostWaste * static_cast<double>(of->minimum))
          << kernel << ": " << name << "\n"
          << cuda_emulation::count_report();
    }
  }

  void run_linear(bp_type type, const Shape& shape, std::int64_t tokens, bool adds) const {
    const Imported weight(on, type, shape);
    const Tensor x = activations(tokens, shape.columns), out = activations(tokens, shape.rows);
    const Tensor residual = activations(tokens, shape.rows), bias = parameters(shape.rows);
    bp_linear_args args{};
    args.x = x.view;
    args.weight = weight.matrix;
    args.out = out.view;
    if (adds) {
      args.bias = bias.view;
      args.residual = residual.view;
      args.alpha = 1;
    }
    enqueue(*on, adds ? BP_OP_LINEAR_ADD : BP_OP_LINEAR, args);
    on->sync();
  }

  std::shared_ptr<device::Device> on;
};

TEST_P(CudaSectors, ProductsReadWeightsOnceAndWhole) {
  const std::string activation = GetParam() == 0 ? "float" : "__nv_bfloat16";
  for (const bp_type type : kTypes) {
    const bool super = plugin::type_info(type).block_elements == 256;
    for (const Shape& shape : {super ? Shape{96, 256} : Shape{96, 576}, Shape{64, 1536}, Shape{48, 2048}}) {
      for (const std::int64_t tokens : {1, 2, 4, 8}) {
        SCOPED_TRACE(std::string(plugin::type_info(type).name) + ", " + std::to_string(shape.columns) + " columns");
        run_linear(type, shape, tokens, shape.columns == 2048);
        expect_little_waste("few_kernel<" + activation + ", " + std::to_string(type) + "u, " + std::to_string(tokens));
      }
    }
  }
}

// In shared memory, or where they store. Of what they load a request has half a sector, and one soon after it the
// other.
TEST_P(CudaSectors, ProductsOfMoreTokensMeetNoConflicts) {
  const std::string activation = GetParam() == 0 ? "float" : "__nv_bfloat16";
  for (const bp_type type : kTypes) {
    for (const auto& [kernel, tokens] : {std::pair{"narrow_kernel<", 24}, std::pair{"wide_kernel<", 72}}) {
      SCOPED_TRACE(std::string(plugin::type_info(type).name) + ", " + kernel);
      run_linear(type, {64, 512}, tokens, false);
      expect_little_waste(kernel + activation + ", " + std::to_string(type) + "u", false);
    }
  }
}

// Gate and up in one launch, whose results are as many rows as a block has warps, with the norm of what they read.
TEST_P(CudaSectors, GatedProductsToo) {
  for (const bp_type type : {BP_TYPE_BF16, BP_TYPE_Q4_K}) {
    for (const std::int64_t tokens : {1, 8}) {
      const Shape shape{64, 1536};
      const Imported gate(on, type, shape), up(on, type, shape);
      const Tensor x = activations(tokens, shape.columns), out = activations(tokens, shape.rows);
      const Tensor scratch = activations(tokens, shape.rows), stream = activations(tokens, shape.columns);
      const Tensor norm_weight = parameters(shape.columns);
      bp_norm_args norm{};
      norm.size = sizeof(norm);
      norm.x = stream.view;
      norm.out = x.view;
      norm.weight = norm_weight.view;
      norm.eps = 1e-5;
      norm.kind = tokens == 1 ? BP_NORM_RMS : BP_NORM_LAYER;
      bp_glu_args glu{};
      glu.size = sizeof(glu);
      glu.gate = glu.out = out.view;
      glu.up = scratch.view;
      glu.kind = BP_ACT_SILU;
      bp_gateup_args args{};
      args.x = x.view;
      args.gate_weight = gate.matrix;
      args.up_weight = up.matrix;
      args.out = out.view;
      args.glu = &glu;
      args.x_norm = &norm;
      enqueue(*on, BP_OP_GATEUP_GLU, args);
      expect_little_waste(", " + std::to_string(type) + "u, " + std::to_string(tokens) + ", ");
    }
  }
}

// For few rows from the candidates that the products leave, for more from logits.
TEST_P(CudaSectors, TheLargestIsFoundInWholeRows) {
  const Shape shape{2048, 256};
  const Imported weight(on, BP_TYPE_BF16, shape);
  const device::Buffer room = on->alloc(8 << 20, "workspace");
  for (const std::int64_t tokens : {2, 16}) {
    const Tensor x = activations(tokens, shape.columns), values = activations(1, tokens);
    Tensor ids(on, BP_TYPE_I32, 1, tokens);
    bp_head_argmax_args args{};
    args.x = x.view;
    args.weight = weight.matrix;
    args.ids = as_vector(ids.view);
    args.values = as_vector(values.view);
    enqueue(*on, BP_OP_HEAD_ARGMAX, args, &room);
    expect_little_waste(tokens == 2 ? "largest_kernel" : "logits_kernel");
  }
}

TEST_P(CudaSectors, EmbeddingsAreStoredWhole) {
  const std::string activation = GetParam() == 0 ? "float" : "__nv_bfloat16";
  for (const bp_type type : kTypes) {
    const bool super = plugin::type_info(type).block_elements == 256;
    const Shape shape{8, super ? 2048 : 576};
    const Imported table(on, type, shape);
    Tensor ids(on, BP_TYPE_I32, 1, 4);
    ids.view = as_vector(ids.view);
    const std::vector<std::int32_t> values = {3, 0, 7, 3};
    on->upload(ids.buffer, 0, std::as_bytes(std::span(values)));
    const Tensor out = activations(4, shape.columns);
    bp_embed_args args{};
    args.ids = ids.view;
    args.table = table.matrix;
    args.out = out.view;
    enqueue(*on, BP_OP_EMBED, args);
    expect_little_waste("embed_kernel<" + activation + ", " + std::to_string(type) + "u");
  }
}

TEST_P(CudaSectors, NormsReadRowsWhole) {
  for (const std::int64_t columns : {576, 2048, 8192}) {
    const Tensor x = activations(2, columns), b = activations(2, columns), out = activations(2, columns);
    const Tensor weight = parameters(columns);
    bp_norm_args norm{};
    norm.size = sizeof(norm);
    norm.x = x.view;
    norm.out = out.view;
    norm.weight = weight.view;
    norm.eps = 1e-5;
    norm.kind = BP_NORM_RMS;
    enqueue(*on, BP_OP_NORM, norm);
    bp_add_norm_args add{};
    add.a = add.sum = x.view;
    add.b = b.view;
    add.alpha = 1;
    add.norm = &norm;
    enqueue(*on, BP_OP_ADD_NORM, add);
    on->sync();
  }
  expect_little_waste("norm_kernel");
}

INSTANTIATE_TEST_SUITE_P(Activations, CudaSectors, testing::Values(0u, 1u));

}  // namespace
}  // namespace backplane::test
