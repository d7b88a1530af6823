#include "device.h"

#include <charconv>
#include <cstdlib>

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

std::uint64_t number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  sdk::require(error == std::errc() && end == text.data() + text.size(), "an option that is no number");
  return value;
}

std::set<std::string> list(std::string_view text) {
  std::set<std::string> out;
  while (!text.empty()) {
    const auto piece = text.substr(0, text.find('+'));
    out.emplace(piece);
    text.remove_prefix(std::min(text.size(), piece.size() + 1));
  }
  return out;
}

}  // namespace

Options parse_options(const char* text) {
  Options o;
  sdk::for_each_option(text, [&](std::string_view key, std::string_view value) {
    if (key == "without") {
      o.without = list(value);
    } else if (key == "want_f16") {
      o.want_f16 = list(value);
    } else if (key == "fail_at") {
      const auto colon = std::min(value.find(':'), value.size());
      o.fail_at = number(value.substr(0, colon));
      if (colon < value.size()) o.fail_status = static_cast<bp_status>(number(value.substr(colon + 1)));
    } else if (key == "lie") {
      o.lie = value;
    } else if (key == "report") {
      o.report = reinterpret_cast<Report*>(static_cast<std::uintptr_t>(number(value)));
    } else {
      bool* flag = key == "no_weights"      ? &o.no_weights
                   : key == "no_kv"         ? &o.no_kv
                   : key == "no_stream"     ? &o.no_stream
                   : key == "no_transposed" ? &o.no_transposed
                   : key == "no_embed"      ? &o.no_embed
                   : key == "visible"       ? &o.visible
                   : key == "late"          ? &o.late
                                            : nullptr;
      if (!flag) sdk::unknown_option(key);
      *flag = number(value) != 0;
    }
  });
  return o;
}

Device::Device(std::uint32_t index, const bp_open_params* params) : real(index == 1 ? BP_TYPE_F16 : BP_TYPE_F32) {
  sdk::require(index < 2, "there are two devices, 0 and 1");
  const bp_open_params given = params ? sdk::read_struct(params) : bp_open_params{};
  if ((given.flags & ~std::uint64_t{BP_OPEN_DETERMINISTIC}) != 0) sdk::refuse("unknown flags of open");
  // Programs pass no options: a test that drives one has the environment.
  options = parse_options(given.options ? given.options : std::getenv("BACKPLANE_OPAQUE"));
  if (options.report) ++options.report->open;
  try {
    gate();
  } catch (...) {
    if (options.report) --options.report->open;
    throw;
  }
}

Device::~Device() {
  if (!options.report) return;
  options.report->live += memory.live() + objects;
  --options.report->open;
}

std::function<void()> Device::gate(bool on_stream) {
  const std::uint64_t call = ++calls_;
  if (options.report) ++options.report->calls;
  if (lost_) {
    if (options.report) ++options.report->misuse;
    throw sdk::Failure(BP_DEVICE_LOST, "a call on a device that was lost");
  }
  if (call != options.fail_at) return {};
  if (options.fail_status == BP_DEVICE_LOST) lost_ = !(on_stream && options.late);
  const sdk::Failure failure(options.fail_status, "injected failure of call " + std::to_string(call));
  if (!on_stream || !options.late) throw failure;
  return [failure] { throw failure; };
}

template <class Function>
void Device::reporting(Function&& function) {
  try {
    function();
  } catch (const sdk::Failure& failure) {
    if (failure.status() == BP_DEVICE_LOST) lost_ = true;
    throw;
  }
}

void Device::enqueue(bp_stream stream, std::function<void()> work) {
  reporting([&] {
    if (!stream || options.no_stream) return work();
    reinterpret_cast<Stream*>(stream)->push(std::move(work));
  });
}

void Device::sync(bp_stream stream) {
  reporting([&] { reinterpret_cast<Stream*>(stream)->sync(); });
}

}  // namespace opaque
