// The buffer table: bytes come back as they went in, nothing else changes, and what can't be is refused.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/base/abi_call.h"
#include "tests/conformance/stream.h"
#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

std::vector<std::byte> random_bytes(Random& random, std::uint64_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.bits() >> 24);
  return bytes;
}

void expect_same(const std::vector<std::byte>& actual, const std::vector<std::byte>& expected,
                 const std::string& what) {
  const auto wrong = std::mismatch(actual.begin(), actual.end(), expected.begin()).first;
  require(wrong == actual.end(), fmt::format("{}: byte {} of {} differs", what, wrong - actual.begin(), actual.size()));
}

std::vector<std::byte> download_all(device::Device& device, const device::Buffer& buffer) {
  std::vector<std::byte> bytes(buffer.bytes());
  device.download(buffer, 0, bytes);
  return bytes;
}

// A whole buffer, then a part of it at an odd place: what lies around the part stays.
void try_round_trip(Trial& trial, std::uint64_t size) {
  device::Device& device = trial.subject.device();
  const device::Buffer buffer = device.alloc(size, "a case");
  std::vector<std::byte> image = random_bytes(trial.random, size);
  device.upload(buffer, 0, image);
  expect_same(download_all(device, buffer), image, "the whole buffer");
  const std::uint64_t begin = size / 3, count = std::max<std::uint64_t>(1, size / 5);
  const std::vector<std::byte> part = random_bytes(trial.random, count);
  device.upload(buffer, begin, part);
  std::copy(part.begin(), part.end(), image.begin() + static_cast<std::ptrdiff_t>(begin));
  expect_same(download_all(device, buffer), image, "after an upload to its middle");
  std::vector<std::byte> read(count);
  device.download(buffer, begin, read);
  expect_same(read, part, "a part");
}

// Many buffers at a time, freed in an order that has nothing to do with the one they were made in.
void try_many(Trial& trial) {
  device::Device& device = trial.subject.device();
  std::vector<std::pair<device::Buffer, std::vector<std::byte>>> all;
  for (int i = 0; i < 40; ++i) {
    const std::uint64_t size = 1 + static_cast<std::uint64_t>(trial.random.below(3000));
    all.emplace_back(device.alloc(size, "a case"), random_bytes(trial.random, size));
    device.upload(all.back().first, 0, all.back().second);
  }
  while (!all.empty()) {
    const auto at = trial.random.below(static_cast<std::int64_t>(all.size()));
    std::swap(all[static_cast<std::size_t>(at)], all.back());
    expect_same(download_all(device, all.back().first), all.back().second, "a buffer among others");
    all.pop_back();
  }
}

void try_too_much(Trial& trial) {
  device::Device& device = trial.subject.device();
  for (const std::uint64_t bytes : {std::uint64_t{1} << 50, std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
    AbiCall call;
    bp_buffer buffer = nullptr;
    const bp_status status =
        device.tables().buffer->alloc(device.handle(), call.context(), bytes, BP_MEMORY_DEVICE, &buffer);
    require(status == BP_OUT_OF_MEMORY, fmt::format("alloc of {} bytes: {} instead of {}", bytes, status_text(status),
                                                    status_text(BP_OUT_OF_MEMORY)));
  }
  try_round_trip(trial, 1000);  // nothing was changed
}

void try_kinds(Trial& trial) {
  device::Device& device = trial.subject.device();
  for (const bp_memory kind :
       {bp_memory{BP_MEMORY_PINNED}, bp_memory{BP_MEMORY_UNIFIED}, bp_memory{BP_MEMORY_IMPORTED}, bp_memory{77}}) {
    AbiCall call;
    bp_buffer handle = nullptr;
    const bp_status status = device.tables().buffer->alloc(device.handle(), call.context(), 100, kind, &handle);
    if (status == BP_OK && kind <= BP_MEMORY_UNIFIED) {
      const device::Buffer buffer(device.shared_from_this(), handle, 100, nullptr);
      const std::vector<std::byte> image = random_bytes(trial.random, 100);
      device.upload(buffer, 0, image);
      expect_same(download_all(device, buffer), image, fmt::format("memory of kind {}", kind));
    } else {
      require(status == BP_UNSUPPORTED, fmt::format("alloc of memory of kind {}: {}", kind, status_text(status)));
      require(!call.text().empty(), fmt::format("memory of kind {} was refused without a reason", kind));
    }
  }
}

void try_beyond(Trial& trial) {
  device::Device& device = trial.subject.device();
  const device::Buffer buffer = device.alloc(64, "a case");
  std::vector<std::byte> image = random_bytes(trial.random, 64), room(200);
  device.upload(buffer, 0, image);
  const std::pair<std::uint64_t, std::uint64_t> ranges[] = {{0, 65}, {64, 1}, {1, 64}, {~std::uint64_t{0}, 2}};
  for (const auto& [offset, bytes] : ranges) {
    const bp_buffer_table& table = *device.tables().buffer;
    const bp_status up = settled(device, [&](bp_stream stream, bp_context context) {
      return table.upload(device.handle(), stream, context, buffer.handle(), offset, room.data(), bytes);
    });
    const bp_status down = settled(device, [&](bp_stream stream, bp_context context) {
      return table.download(device.handle(), stream, context, buffer.handle(), offset, room.data(), bytes);
    });
    require(up == BP_INVALID && down == BP_INVALID,
            fmt::format("{} bytes at {} of a buffer of 64: upload {}, download {}, both must be {}", bytes, offset,
                        status_text(up), status_text(down), status_text(BP_INVALID)));
  }
  expect_same(download_all(device, buffer), image, "after refused copies");
}

void try_map(Trial& trial) {
  device::Device& device = trial.subject.device();
  if (!device.tables().buffer->map) throw Skipped{"the plugin has no map"};
  const device::Buffer buffer = device.alloc(333, "a case");
  const std::vector<std::byte> image = random_bytes(trial.random, 333), other = random_bytes(trial.random, 100);
  device.upload(buffer, 0, image);
  void *address = nullptr, *again = nullptr;
  AbiCall call;
  const bp_status status = device.tables().buffer->map(device.handle(), call.context(), buffer.handle(), &address);
  if (status == BP_UNSUPPORTED && !device.host_visible() && !call.text().empty()) throw Skipped{call.text()};
  call.check(status, "map");
  call.check(device.tables().buffer->map(device.handle(), call.context(), buffer.handle(), &again), "map");
  require(address != nullptr && address == again, "map: no address, or another one when asked again");
  require(std::memcmp(address, image.data(), image.size()) == 0, "the mapped memory is not what was uploaded");
  if (!device.host_visible()) return;
  std::memcpy(static_cast<std::byte*>(address) + 17, other.data(), other.size());
  std::vector<std::byte> read(other.size());
  device.download(buffer, 17, read);
  expect_same(read, other, "what the host wrote to mapped memory");
}

void try_import(Trial& trial, bool writable) {
  device::Device& device = trial.subject.device();
  if (!device.tables().buffer->import_host) throw Skipped{"the plugin has no import_host"};
  std::vector<std::byte> memory = random_bytes(trial.random, 4096 + 8);
  const std::span<std::byte> range(memory.data() + 8, 4096);  // "may start at any multiple of its element's size"
  bp_buffer handle = nullptr;
  AbiCall call;
  const bp_status status = device.tables().buffer->import_host(device.handle(), call.context(), range.data(),
                                                               range.size(), writable ? 1 : 0, &handle);
  if (status == BP_UNSUPPORTED && !call.text().empty()) throw Skipped{call.text()};
  call.check(status, "import_host");
  {
    const device::Buffer buffer(device.shared_from_this(), handle, range.size(), range.data());
    expect_same(download_all(device, buffer), {range.begin(), range.end()}, "imported memory");
    if (writable) {
      const std::vector<std::byte> part = random_bytes(trial.random, 100);
      device.upload(buffer, 55, part);
      expect_same({range.begin() + 55, range.begin() + 155}, part, "the host's own bytes after an upload");
    }
  }
  memory[8] = std::byte{1};  // still the host's after the buffer is freed
}

void try_copy(Trial& trial) {
  device::Device& device = trial.subject.device();
  if (!device.tables().buffer->copy) throw Skipped{"the plugin has no copy"};
  const device::Buffer from = device.alloc(300, "a case"), to = device.alloc(200, "a case");
  const std::vector<std::byte> source = random_bytes(trial.random, 300);
  std::vector<std::byte> image = random_bytes(trial.random, 200);
  device.upload(from, 0, source);
  device.upload(to, 0, image);
  const auto copy = [&](const device::Buffer& target, std::uint64_t at, std::uint64_t begin, std::uint64_t bytes) {
    AbiCall call;
    call.check(device.tables().buffer->copy(device.handle(), device.stream(), call.context(), target.handle(), at,
                                            from.handle(), begin, bytes),
               "copy");
    device.sync();
  };
  copy(to, 13, 101, 77);
  std::copy_n(source.begin() + 101, 77, image.begin() + 13);
  expect_same(download_all(device, to), image, "the target of a copy");
  copy(from, 0, 150, 150);
  std::vector<std::byte> halves = source;
  std::copy_n(source.begin() + 150, 150, halves.begin());
  expect_same(download_all(device, from), halves, "a copy inside one buffer");
}

}  // namespace

void add_memory_cases(Suite& suite) {
  for (const std::uint64_t size : {1, 2, 3, 7, 63, 64, 65, 255, 4095, 4097, 65537, 3000001}) {
    suite.add(fmt::format("memory/round_trip/{}", size), [size](Trial& trial) { try_round_trip(trial, size); });
  }
  suite.add("memory/many", try_many);
  suite.add("memory/too_much", try_too_much);
  suite.add("memory/kinds", try_kinds);
  suite.add("memory/beyond_the_end", try_beyond);
  suite.add("memory/map", try_map);
  suite.add("memory/import_writable", [](Trial& trial) { try_import(trial, true); });
  suite.add("memory/import_read_only", [](Trial& trial) { try_import(trial, false); });
  suite.add("memory/copy", try_copy);
}

}  // namespace backplane::conformance
