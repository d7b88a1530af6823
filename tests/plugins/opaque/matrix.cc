// Ops with matrices, whatever form these have: each row is decoded once for all tokens.
#include "numbers.h"
#include "run.h"

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

constexpr std::uint64_t kTile = 16;  // rows of a matrix whose sums run side by side

// Rows [first, first + count) of canonical data, side by side: out is [C,count].
void read_canonical(const Memory& memory, const bp_tensor& t, std::uint64_t first, std::uint64_t count, double* out) {
  const auto info = sdk::type_info(t.type);
  const auto columns = static_cast<std::uint64_t>(t.shape[1]);
  const auto from = memory.at(t.buffer);
  std::vector<std::byte> block(info.block_bytes);
  Values values(info.block_elements);
  for (std::uint64_t r = 0; r < count; ++r) {
    for (std::uint64_t c = 0; c < columns; c += info.block_elements) {
      from->read(t.offset + (first + r) * static_cast<std::uint64_t>(t.stride[0]) +
                     c / info.block_elements * static_cast<std::uint64_t>(t.stride[1]),
                 block.data(), block.size());
      decode_row(t.type, block.data(), values.size(), values.data());
      for (std::uint64_t j = 0; j < values.size(); ++j) out[(c + j) * count + r] = values[j];
    }
  }
}

void read_rows(const Memory& memory, const bp_matrix& matrix, std::uint64_t first, std::uint64_t count, double* out) {
  if (matrix.weight) return reinterpret_cast<const Weight*>(matrix.weight)->read_rows(first, count, out);
  read_canonical(memory, matrix.tensor, first, count, out);
}

// Every sum in the order of the columns, in double: which rows it stands beside changes no bit.
template <std::uint64_t kCount>
void add_products(const double* x, std::uint64_t columns, const double* rows, double* sums) {
  double local[kCount] = {};
  for (std::uint64_t c = 0; c < columns; ++c) {
    for (std::uint64_t r = 0; r < kCount; ++r) local[r] += x[c] * rows[c * kCount + r];
  }
  std::copy(local, local + kCount, sums);
}

void multiply(const double* x, std::uint64_t columns, const double* rows, std::uint64_t count, double* sums) {
  if (count == kTile) return add_products<kTile>(x, columns, rows, sums);
  for (std::uint64_t r = 0; r < count; ++r) {
    double sum = 0;
    for (std::uint64_t c = 0; c < columns; ++c) sum += x[c] * rows[c * count + r];
    sums[r] = sum;
  }
}

// Through the workspace, so that one that is too small or shared is found.
Values by_workspace(const Run& run, const Values& x) {
  const std::uint64_t bytes = x.size() * sizeof(double);
  if (bytes == 0) return x;
  sdk::require(bytes <= run.op.workspace_bytes, "a workspace that is too small");
  sdk::require(run.op.workspace_offset % run.device.options.alignment == 0, "a workspace that is not aligned");
  const auto workspace = run.device.memory.at(run.op.workspace);
  workspace->write(run.op.workspace_offset, x.data(), bytes);
  Values back(x.size());
  workspace->read(run.op.workspace_offset, back.data(), bytes);
  return back;
}

}  // namespace

Values product(const Run& run, const Values& x, const bp_matrix& matrix, const bp_tensor& bias_tensor,
               std::uint64_t first_row) {
  const auto n = static_cast<std::uint64_t>(matrix.tensor.shape[0]);
  const auto columns = static_cast<std::uint64_t>(matrix.tensor.shape[1]);
  const std::uint64_t tokens = columns == 0 ? 0 : x.size() / columns;
  const Values bias = run.load(bias_tensor);
  Values out(tokens * n);
  if (out.empty()) return out;
  sdk::parallel_for((n + kTile - 1) / kTile, 4, [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
    Values rows(columns * kTile);
    double sums[kTile];
    for (std::uint64_t tile = begin; tile < end; ++tile) {
      const std::uint64_t first = tile * kTile, count = std::min(kTile, n - first);
      read_rows(run.device.memory, matrix, first_row + first, count, rows.data());
      for (std::uint64_t t = 0; t < tokens; ++t) {
        multiply(&x[t * columns], columns, rows.data(), count, sums);
        for (std::uint64_t r = 0; r < count; ++r) {
          out[t * n + first + r] = bias.empty() ? sums[r] : sums[r] + bias[first + r];
        }
      }
    }
  });
  return out;
}

void run_op(const Run& run, const bp_embed_args& a) {
  Values out;
  Values row(static_cast<std::size_t>(a.table.tensor.shape[1]));
  for (const std::int32_t id : run.load_raw<std::int32_t>(a.ids)) {
    sdk::require(id >= 0 && id < a.table.tensor.shape[0], "a token outside the vocabulary");
    read_rows(run.device.memory, a.table, static_cast<std::uint64_t>(id), 1, row.data());
    out.insert(out.end(), row.begin(), row.end());
  }
  run.store(a.out, std::move(out));
}

void run_op(const Run& run, const bp_linear_args& a) {
  const bool activates = run.op.code == BP_OP_LINEAR_ACT;
  const Values x = activates ? load_x(run, a.x, a.x_norm) : run.load(a.x);
  Values out = product(run, by_workspace(run, x), a.weight, a.bias);
  if (activates && a.kind != 0) {
    for (double& value : out) value = activate(a.kind, value);
  }
  if (run.op.code == BP_OP_LINEAR_ADD) {
    Values sum = run.load(a.residual);
    add_to(sum, a.alpha, out);
    out = std::move(sum);
  }
  run.store(a.out, std::move(out));
}

}  // namespace opaque
