// The weights table: what was imported comes out again, bit for bit; several parts make one weight.
#include <fmt/format.h>

#include "core/base/abi_call.h"
#include "tests/conformance/stream.h"
#include "tests/conformance/suite.h"
#include "tests/conformance/weights.h"

namespace backplane::conformance {
namespace {

void expect_bits(const std::vector<std::byte>& actual, std::span<const std::byte> expected, const std::string& what) {
  require(std::equal(actual.begin(), actual.end(), expected.begin(), expected.end()),
          what + " is not what was imported");
}

void try_round_trip(Trial& trial, DType type, bool transposed) {
  const std::int64_t columns = is_quantized(type) ? 3 * dtype_info(type).block_elements : 37;
  const Weight weight = random_weight(trial, type, 11, columns);
  ImportedWeight imported(trial.subject, {&weight}, BP_USE_LINEAR, transposed);
  const std::vector<std::byte> stored = transposed ? transposed_bytes(weight) : weight.bytes;
  const std::int64_t rows = transposed ? columns : 11;
  const std::size_t row = stored.size() / static_cast<std::size_t>(rows);
  expect_bits(imported.export_rows(0, 0, rows), stored, "the whole weight");
  expect_bits(imported.export_rows(0, 4, 3), std::span(stored).subspan(4 * row, 3 * row), "a run of rows");
  expect_bits(imported.export_rows(0, rows - 1, 1), std::span(stored).subspan((rows - 1) * row), "the last row");
}

// q, k and v as one weight, of different types even.
void try_parts(Trial& trial, DType first, DType second) {
  const std::int64_t columns = 512;
  const Weight a = random_weight(trial, first, 5, columns), b = random_weight(trial, second, 3, columns);
  const Weight c = random_weight(trial, first, 7, columns);
  ImportedWeight imported(trial.subject, {&a, &b, &c}, BP_USE_LINEAR, false);
  expect_bits(imported.export_rows(2, 0, 7), c.bytes, "the third part");
  expect_bits(imported.export_rows(0, 1, 4), std::span(a.bytes).subspan(a.bytes.size() / 5), "the first part");
  expect_bits(imported.export_rows(1, 0, 3), b.bytes, "the second part");
}

void try_bad_rows(Trial& trial, DType type) {
  device::Device& device = trial.subject.device();
  const Weight weight = random_weight(trial, type, 6, 64);
  const ImportedWeight imported(trial.subject, {&weight}, BP_USE_LINEAR, false);
  std::vector<std::byte> room(weight.bytes.size() * 2);
  const auto refused = [&](std::uint64_t part, std::uint64_t row, std::uint64_t count, std::uint64_t bytes) {
    const bp_status status = settled(device, [&](bp_stream stream, bp_context context) {
      return device.tables().weights->export_rows(device.handle(), stream, context, imported.handle(), part, row, count,
                                                  room.data(), bytes);
    });
    require(status == BP_INVALID, fmt::format("export_rows of part {}, rows {} to {}, {} bytes: {} instead of {}", part,
                                              row, row + count, bytes, status_text(status), status_text(BP_INVALID)));
  };
  const std::uint64_t row = weight.bytes.size() / 6;
  refused(0, 5, 2, 2 * row);
  refused(0, 6, 1, row);
  refused(1, 0, 1, row);
  refused(0, 0, 2, row);
}

void try_unknown_type(Trial& trial) {
  device::Device& device = trial.subject.device();
  bp_weight_part part{};
  part.size = sizeof(part);
  part.type = 250;
  part.rows = part.columns = 256;
  bp_weight_desc desc{};
  desc.size = sizeof(desc);
  desc.uses = BP_USE_LINEAR;
  desc.parts = &part;
  desc.part_count = 1;
  desc.part_stride = sizeof(part);
  std::uint64_t bytes = 0;
  AbiCall call;
  const bp_status status = device.tables().weights->packed_bytes(device.handle(), call.context(), &desc, &bytes);
  require(status == BP_UNSUPPORTED, "packed_bytes of type 250: " + status_text(status));
  require(!call.text().empty(), "packed_bytes of type 250 was refused without a reason");
}

}  // namespace

void add_weight_cases(Suite& suite) {
  if (!has_weights(suite.device())) {
    suite.add("weights", [](Trial&) { throw Skipped{"the plugin has no weights table"}; });
    return;
  }
  for (const DType type : weight_types()) {
    const std::string name(dtype_name(type));
    suite.add("weights/round_trip/" + name, [type](Trial& trial) { try_round_trip(trial, type, false); });
    if (is_quantized(type)) continue;
    suite.add("weights/round_trip/" + name + "/transposed",
              [type](Trial& trial) { try_round_trip(trial, type, true); });
    suite.add("weights/bad_rows/" + name, [type](Trial& trial) { try_bad_rows(trial, type); });
  }
  suite.add("weights/parts/F32", [](Trial& trial) { try_parts(trial, DType::kF32, DType::kF32); });
  suite.add("weights/parts/F16", [](Trial& trial) { try_parts(trial, DType::kF16, DType::kF16); });
  suite.add("weights/parts/Q4_K_Q6_K", [](Trial& trial) { try_parts(trial, DType::kQ4_K, DType::kQ6_K); });
  suite.add("weights/parts/Q4_0_F32", [](Trial& trial) { try_parts(trial, DType::kQ4_0, DType::kF32); });
  suite.add("weights/unknown_type", try_unknown_type);
}

}  // namespace backplane::conformance
