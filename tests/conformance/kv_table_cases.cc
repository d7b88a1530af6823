// The plugin's own KV cache: canonical bytes in and out, copies inside, and its native form.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/base/abi_call.h"
#include "tests/conformance/paged.h"
#include "tests/conformance/stream.h"
#include "tests/conformance/suite.h"

namespace backplane::conformance {
namespace {

constexpr std::uint64_t kPages = 7;
constexpr std::uint32_t kLayer = PagedStep::kLayer;

struct Pages {
  std::vector<std::byte> k, v;
};

std::size_t k_bytes(const CacheSpec& spec) {
  return *row_bytes(spec.type, static_cast<std::uint64_t>(spec.page_size * spec.kv_heads * spec.dim));
}
std::size_t v_bytes(const CacheSpec& spec) {
  return *row_bytes(spec.type, static_cast<std::uint64_t>(spec.page_size * spec.kv_heads * spec.value_dim));
}

Pages random_pages(Trial& trial, const CacheSpec& spec, std::size_t count) {
  const auto pages = static_cast<std::int64_t>(count);
  const Shape k = {pages, spec.page_size, spec.kv_heads, spec.dim};
  const Shape v = {pages, spec.page_size, spec.kv_heads, spec.value_dim};
  const DType drawn = is_quantized(spec.type) ? DType::kF32 : spec.type;
  return {encode(spec.type, trial.random.array(k, drawn)), encode(spec.type, trial.random.array(v, drawn))};
}

Pages read_pages(OwnCache& cache, const CacheSpec& spec, const std::vector<std::int32_t>& which) {
  Pages out{std::vector<std::byte>(which.size() * k_bytes(spec)), std::vector<std::byte>(which.size() * v_bytes(spec))};
  cache.export_pages(kLayer, which, out.k, out.v);
  return out;
}

// Page `at` of a list.
std::span<const std::byte> page(const std::vector<std::byte>& all, std::size_t at, std::size_t bytes) {
  return std::span(all).subspan(at * bytes, bytes);
}

void expect_page(Trial& trial, const CacheSpec& spec, const Pages& actual, std::size_t at, const Pages& expected,
                 std::size_t from, const char* what) {
  trial.same_bytes(fmt::format("K of {}", what), spec.type, page(actual.k, at, k_bytes(spec)),
                   page(expected.k, from, k_bytes(spec)));
  trial.same_bytes(fmt::format("V of {}", what), spec.type, page(actual.v, at, v_bytes(spec)),
                   page(expected.v, from, v_bytes(spec)));
}

// Pages written in one order and read in another; one is then overwritten alone.
void try_round_trip(Trial& trial, const CacheSpec& spec) {
  OwnCache cache(trial.subject.device(), spec, kPages);
  const std::vector<std::int32_t> order = {3, 0, 6, 1}, back = {6, 3};
  const Pages first = random_pages(trial, spec, order.size()), second = random_pages(trial, spec, 1);
  cache.import_pages(kLayer, order, first.k, first.v);
  Pages read = read_pages(cache, spec, back);
  expect_page(trial, spec, read, 0, first, 2, "page 6");
  expect_page(trial, spec, read, 1, first, 0, "page 3");
  cache.import_pages(kLayer, {0}, second.k, second.v);
  read = read_pages(cache, spec, order);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] == 0) {
      expect_page(trial, spec, read, i, second, 0, "the overwritten page");
    } else {
      expect_page(trial, spec, read, i, first, i, "a page beside the overwritten one");
    }
  }
}

void try_copy_pages(Trial& trial, const CacheSpec& spec) {
  device::Device& device = trial.subject.device();
  OwnCache cache(device, spec, kPages);
  const std::vector<std::int32_t> order = {2, 5, 4};
  const Pages pages = random_pages(trial, spec, order.size());
  cache.import_pages(kLayer, order, pages.k, pages.v);
  const std::int32_t from[] = {5, 2}, to[] = {0, 6};
  AbiCall call;
  call.check(device.tables().kv->copy_pages(device.handle(), device.stream(), call.context(), cache.handle(),
                                            PagedStep::kGroup, from, to, 2),
             "copy_pages");
  device.sync();
  const Pages read = read_pages(cache, spec, {0, 6, 2, 5, 4});
  expect_page(trial, spec, read, 0, pages, 1, "the copy of page 5");
  expect_page(trial, spec, read, 1, pages, 0, "the copy of page 2");
  expect_page(trial, spec, read, 2, pages, 0, "page 2, which was copied");
  expect_page(trial, spec, read, 4, pages, 2, "page 4, which was not");
}

void try_native(Trial& trial, const CacheSpec& spec) {
  device::Device& device = trial.subject.device();
  const bp_kv_table& table = *device.tables().kv;
  if (!table.native_layout) throw Skipped{"the plugin has no native form of its pages"};
  OwnCache cache(device, spec, kPages);
  char tag[64] = {}, again[64] = {};
  std::uint64_t bytes = 0;
  AbiCall call;
  call.check(table.native_layout(device.handle(), call.context(), cache.handle(), tag), "native_layout");
  call.check(table.native_layout(device.handle(), call.context(), cache.handle(), again), "native_layout");
  require(tag[0] != 0 && std::memchr(tag, 0, sizeof(tag)), "native_layout: the tag is empty or has no end");
  require(std::strcmp(tag, again) == 0, "native_layout: another tag when asked again");
  call.check(table.native_page_bytes(device.handle(), call.context(), cache.handle(), kLayer, &bytes),
             "native_page_bytes");
  require(bytes > 0 && bytes <= (1u << 30), "native_page_bytes: no sensible size");
  const std::int32_t from[] = {1, 4}, to[] = {6, 0};
  const Pages pages = random_pages(trial, spec, 2);
  cache.import_pages(kLayer, {1, 4}, pages.k, pages.v);
  std::vector<std::byte> native(2 * bytes + 16, std::byte{0xa5});
  call.check(table.export_native(device.handle(), device.stream(), call.context(), cache.handle(), kLayer, from, 2,
                                 native.data()),
             "export_native");
  device.sync();
  require(std::all_of(native.end() - 16, native.end(), [](std::byte b) { return b == std::byte{0xa5}; }),
          "export_native: more than native_page_bytes a page");
  call.check(table.import_native(device.handle(), device.stream(), call.context(), cache.handle(), kLayer, to, 2,
                                 native.data()),
             "import_native");
  device.sync();
  const Pages read = read_pages(cache, spec, {6, 0});
  expect_page(trial, spec, read, 0, pages, 0, "a page that went through the native form");
  expect_page(trial, spec, read, 1, pages, 1, "a page that went through the native form");
}

void try_bad_page(Trial& trial, const CacheSpec& spec) {
  device::Device& device = trial.subject.device();
  OwnCache cache(device, spec, kPages);
  Pages room = random_pages(trial, spec, 1);
  for (const std::int32_t number : {-1, static_cast<std::int32_t>(kPages)}) {
    const bp_status status = settled(device, [&](bp_stream stream, bp_context context) {
      return device.tables().kv->import_pages(device.handle(), stream, context, cache.handle(), kLayer, &number, 1,
                                              room.k.data(), room.v.data());
    });
    require(status == BP_INVALID, fmt::format("import_pages of page {} of {}: {} instead of {}", number, kPages,
                                              status_text(status), status_text(BP_INVALID)));
  }
}

}  // namespace

void add_kv_table_cases(Suite& suite) {
  if (!has_kv(suite.device())) {
    suite.add("kv", [](Trial&) { throw Skipped{"the plugin has no kv table"}; });
    return;
  }
  for (const DType type : suite.kv_types()) {
    for (const std::uint32_t page_size : suite.page_sizes()) {
      const CacheSpec spec{
          .where = Cache::kOwn, .type = type, .page_size = page_size, .kv_heads = 3, .dim = 32, .value_dim = 32};
      const std::string name = fmt::format("{}/S{}", dtype_name(type), page_size);
      suite.add("kv/round_trip/" + name, [spec](Trial& trial) { try_round_trip(trial, spec); });
      suite.add("kv/copy_pages/" + name, [spec](Trial& trial) { try_copy_pages(trial, spec); });
      suite.add("kv/native/" + name, [spec](Trial& trial) { try_native(trial, spec); });
      suite.add("kv/bad_page/" + name, [spec](Trial& trial) { try_bad_page(trial, spec); });
    }
  }
}

}  // namespace backplane::conformance
