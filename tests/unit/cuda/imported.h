// A matrix that the CUDA backend on the emulation has imported.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "core/base/abi_call.h"
#include "tests/unit/cuda/emulated.h"

namespace backplane::test {

struct Shape {
  std::int64_t rows, columns;
};

// Of bytes that a seed makes, none of which is more than 0x3f, so that every scale is finite.
class Imported {
 public:
  Imported(std::shared_ptr<device::Device> on, bp_type type, const Shape& shape, unsigned seed = 0)
      : on_(std::move(on)) {
    const std::uint64_t row = *plugin::row_bytes(type, static_cast<std::uint64_t>(shape.columns));
    bp_weight_part part{};
    part.size = sizeof(part);
    part.type = type;
    part.rows = static_cast<std::uint64_t>(shape.rows);
    part.columns = static_cast<std::uint64_t>(shape.columns);
    bp_weight_desc desc{};
    desc.size = sizeof(desc);
    desc.uses = BP_USE_LINEAR | BP_USE_EMBED;
    desc.parts = &part;
    desc.part_count = 1;
    desc.part_stride = sizeof(part);
    const bp_weights_table& table = *on_->tables().weights;
    AbiCall creating, importing, finishing;
    creating.check(table.create(on_->handle(), creating.context(), &desc, &matrix.weight), "create");
    std::vector<std::byte> bytes(row * part.rows);
    std::mt19937 random(seed);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0x3f);
    importing.check(table.import_rows(on_->handle(), on_->stream(), importing.context(), matrix.weight, 0, 0, part.rows,
                                      bytes.data(), bytes.size()),
                    "import_rows");
    finishing.check(table.finish(on_->handle(), on_->stream(), finishing.context(), matrix.weight), "finish");
    matrix.tensor.type = type;
    matrix.tensor.rank = 2;
    std::fill(std::begin(matrix.tensor.shape), std::end(matrix.tensor.shape), 1);
    matrix.tensor.shape[0] = shape.rows;
    matrix.tensor.shape[1] = shape.columns;
    matrix.tensor.stride[0] = static_cast<std::int64_t>(row);
    matrix.tensor.stride[1] = plugin::type_info(type).block_bytes;
  }
  ~Imported() { on_->tables().weights->destroy(on_->handle(), matrix.weight); }
  Imported(const Imported&) = delete;
  Imported& operator=(const Imported&) = delete;

  bp_matrix matrix{};

 private:
  std::shared_ptr<device::Device> on_;
};

}  // namespace backplane::test
