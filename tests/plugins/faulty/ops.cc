// The device table: questions, ops one at a time, and lists of them.
#include <algorithm>
#include <memory>

#include "stream.h"

namespace faulty {
namespace {

constexpr std::uint64_t kFuture = std::uint64_t{0xf} << 60;  // attributes that don't exist yet

bp_status caps(bp_device device, bp_context context, bp_caps* caps) {
  return sdk::guard(context, [&] {
    bp_caps own{};
    own.size = sizeof(own);
    call_cpu([&](bp_context inner) { return cpu().device->caps(self(device).cpu, inner, &own); });
    sdk::copy_text(own.name, self(device).index == 0 ? "0" : "1");
    sdk::copy_text(own.description, "The cpu reference with one fault");
    sdk::fill_struct(caps, own);
  });
}

// A kind that the cpu knows, where the one asked for doesn't exist.
struct KnownKind {
  std::uint32_t known(std::uint32_t kind, std::uint32_t last) const { return std::clamp(kind, 1u, last); }
  void operator()(bp_norm_args& a) const { a.kind = known(a.kind, BP_NORM_LAYER); }
  void operator()(bp_activation_args& a) const { a.kind = known(a.kind, BP_ACT_RELU); }
  void operator()(bp_glu_args& a) const { a.kind = known(a.kind, BP_ACT_RELU); }
  template <class Other>
  void operator()(Other&) const {}
};

bp_status ask_cpu(const Device& device, bp_context context, bp_op_query query, bp_support* own) {
  if (device.has("any_feature")) query.features &= ~kFuture;
  if (!device.has("any_kind")) return cpu().device->supports(device.cpu, context, &query, own);
  return sdk::visit_args(query.code, query.largest, [&](auto args) {
    KnownKind{}(args);
    query.smallest = query.largest = &args;
    return cpu().device->supports(device.cpu, context, &query, own);
  });
}

bp_status supports(bp_device handle, bp_context context, const bp_op_query* query, bp_support* support) {
  return sdk::guard(context, [&]() -> bp_status {
    const Device& device = self(handle);
    bp_support own{};
    own.size = sizeof(own);
    const bp_op_query asked = sdk::read_struct(query);
    if (const bp_status status = ask_cpu(device, context, asked, &own); status != BP_OK) return status;
    own.flags |= BP_SUPPORT_CAPTURE_SAFE;
    if (device.has("any_feature")) own.features |= kFuture;
    if (asked.code == BP_OP_LINEAR) {
      const bool small = device.has("small_workspace");
      own.workspace_bytes +=
          workspace_bytes(small ? sdk::smallest_of<bp_linear_args>(asked) : sdk::largest_of<bp_linear_args>(asked));
      if (device.rounds_to_q8) own.quantized_activation_type = BP_TYPE_Q8_0;
    }
    sdk::fill_struct(support, own);
    return BP_OK;
  });
}

bp_status run(bp_device device, bp_stream stream, bp_context context, const bp_op* op) {
  return sdk::guard(context, [&] { enqueue(stream, hold(self(device), *op, self(device).has("stale_descriptor"))); });
}

// The rows of an op that has them.
struct Rows {
  std::int64_t operator()(const bp_linear_args& a) const { return a.x.shape[0]; }
  template <class Other>
  std::int64_t operator()(const Other&) const {
    return 0;
  }
};

bp_status prepare(bp_device, bp_context context, const bp_op_query* query, bp_prepared* prepared) {
  return sdk::guard(context, [&] {
    const bp_op_query asked = sdk::read_struct(query);
    auto made = std::make_unique<Prepared>();
    made->smallest = sdk::visit_args(asked.code, asked.smallest, Rows{});
    made->largest = sdk::visit_args(asked.code, asked.largest, Rows{});
    *prepared = reinterpret_cast<bp_prepared>(made.release());
  });
}

void unprepare(bp_device, bp_prepared prepared) { delete reinterpret_cast<Prepared*>(prepared); }

using List = std::vector<Work>;

bp_status compile(bp_device device, bp_context context, const bp_op* ops, std::uint64_t count, std::uint64_t stride,
                  bp_compiled* compiled) {
  return sdk::guard(context, [&] {
    auto list = std::make_unique<List>();
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto* op = reinterpret_cast<const bp_op*>(reinterpret_cast<const std::byte*>(ops) + i * stride);
      list->push_back(hold(self(device), *op, self(device).has("list_contents")));
    }
    if (self(device).has("list_order")) std::reverse(list->begin(), list->end());
    *compiled = reinterpret_cast<bp_compiled>(list.release());
  });
}

bp_status run_compiled(bp_device, bp_stream stream, bp_context context, bp_compiled compiled) {
  return sdk::guard(context, [&] {
    for (const Work& work : *reinterpret_cast<List*>(compiled)) enqueue(stream, work);
  });
}

void uncompile(bp_device, bp_compiled compiled) { delete reinterpret_cast<List*>(compiled); }

}  // namespace

void fill_device(bp_device_table& table) {
  table = {0, caps, supports, run, prepare, unprepare, compile, run_compiled, uncompile};
}

}  // namespace faulty
