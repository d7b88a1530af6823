// What is built ahead: single ops, and lists of them.
#include "device.h"

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

using Compiled = std::shared_ptr<const std::vector<Device::Work>>;

bp_status prepare(bp_device device, bp_context context, const bp_op_query* query, bp_prepared* prepared) {
  return sdk::guard(context, [&] {
    const bp_op_query given = sdk::read_struct(query);
    self(device).gate();
    sdk::require(given.largest != nullptr, "a query without its largest shapes");
    *prepared = self(device).add_prepared(given.code);
  });
}

void unprepare(bp_device device, bp_prepared prepared) { self(device).remove_prepared(prepared); }

bp_status compile(bp_device device, bp_context context, const bp_op* ops, std::uint64_t count, std::uint64_t stride,
                  bp_compiled* compiled) {
  return sdk::guard(context, [&] {
    self(device).gate();
    std::vector<Device::Work> work;
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto* op = reinterpret_cast<const bp_op*>(reinterpret_cast<const char*>(ops) + i * stride);
      work.push_back(op_work(self(device), sdk::read_struct(op)));
    }
    auto kept = std::make_shared<const std::vector<Device::Work>>(std::move(work));
    *compiled = self(device).give<bp_compiled>(std::make_unique<Compiled>(std::move(kept)));
  });
}

bp_status run_compiled(bp_device handle, bp_stream stream, bp_context context, bp_compiled compiled) {
  return sdk::guard(context, [&] {
    Device& device = self(handle);
    device.submit(stream, [&device, work = *reinterpret_cast<Compiled*>(compiled)] {
      for (const Device::Work& item : *work) device.perform(item);
    });
  });
}

void uncompile(bp_device device, bp_compiled compiled) { self(device).take(reinterpret_cast<Compiled*>(compiled)); }

}  // namespace

void fill_built(bp_device_table& table) {
  table.prepare = prepare;
  table.unprepare = unprepare;
  table.compile = compile;
  table.run_compiled = run_compiled;
  table.uncompile = uncompile;
}

}  // namespace opaque
