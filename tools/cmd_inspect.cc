// backplane inspect: what is in a model file, and what it takes to run it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/error.h"
#include "core/formats/container.h"
#include "core/text/utf8.h"
#include "models/load.h"
#include "plugins/host/host_table.h"
#include "plugins/host/registry.h"
#include "tools/commands.h"
#include "tools/json_lines.h"
#include "tools/memory_report.h"
#include "tools/model_source.h"
#include "tools/near_names.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/runtime.h"
#include "tools/support.h"
#include "tools/tensor_values.h"

namespace backplane::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kArrayLimit = 16;
constexpr std::size_t kTensorValues = 64;

struct InspectOptions {
  std::string file;
  std::optional<std::string> tensor;
  DeviceOptions device;
  bool json = false;
};

struct Inspection {
  std::shared_ptr<const formats::Container> container;
  std::optional<models::ModelFile> model;
  std::string why_no_model;
  std::uint64_t parameters = 0;
  std::optional<models::MemoryEstimate> memory;
  std::uint32_t context = 0;
  std::vector<DeviceSupport> support;
};

TypeNames types_of(const formats::Container& container) {
  TypeNames types;
  for (const formats::TensorInfo& tensor : container.tensors()) types.emplace(tensor.type_name, tensor.type);
  return types;
}

Inspection look(const InspectOptions& options) {
  Inspection seen;
  seen.container = formats::open_container(resolve_model(options.file, !options.device.no_progress));
  for (const formats::TensorInfo& tensor : seen.container->tensors()) seen.parameters += tensor.elements();
  try {
    seen.model.emplace(seen.container);
    seen.parameters = seen.model->parameters();
  } catch (const Error& error) {
    seen.why_no_model = error.what();
  }
  if (seen.model) {
    models::LoadOptions load;
    load.context = options.device.context.value_or(0);
    load.kv_type = options.device.kv();
    seen.memory = seen.model->estimate(load);
    seen.context = load.context != 0 ? load.context : seen.model->spec().max_context;
  }
  const plugins::Registry registry(options.device.plugins.search());
  const TypeNames types = types_of(*seen.container);
  if (!options.device.device) {
    seen.support = support_by_manifests(registry, types, seen.why_no_model);
  } else if (seen.model) {
    seen.support = {support_by_planning(registry, options.device, types, *seen.model)};
    seen.memory = *seen.support.front().memory;
  }
  return seen;
}

Json support_json(const DeviceSupport& support) {
  Json types = Json::object();
  for (const auto& [name, takes] : support.types) types[name] = takes ? Json(*takes) : Json();
  Json out = {{"device", support.device},
              {"plugin", support.plugin},
              {"runs", support.runs ? Json(*support.runs) : Json()},
              {"reason", support.reason.empty() ? Json() : Json(support.reason)},
              {"types", types}};
  if (support.ops.empty()) return out;
  out["ops"] = Json::array();
  for (const OpPlacement& op : support.ops) {
    out["ops"].push_back({{"op", op.op},
                          {"device", op.device},
                          {"count", op.count},
                          {"reason", op.reason.empty() ? Json() : Json(op.reason)}});
  }
  return out;
}

// Tensors are written one by one: a file may list very many.
void write_json(Output& out, const Inspection& seen) {
  Json head = {{"format", seen.container->format()},
               {"architecture", seen.container->architecture()},
               {"parameters", seen.parameters},
               {"model", {{"supported", seen.model.has_value()}, {"reason", nullptr}}},
               {"memory", nullptr},
               {"support", Json::array()}};
  if (!seen.model) head["model"]["reason"] = seen.why_no_model;
  if (seen.memory) {
    head["memory"] = {{"weights", seen.memory->weights},
                      {"kv", seen.memory->kv},
                      {"workspace", seen.memory->workspace},
                      {"total", seen.memory->total()},
                      {"context", seen.context}};
  }
  for (const DeviceSupport& support : seen.support) head["support"].push_back(support_json(support));
  std::string text = json_text(head);
  text.pop_back();
  out << text << ",\"metadata\":" << json_text(seen.container->metadata(kArrayLimit)) << ",\"tensors\":[";
  const char* separator = "";
  for (const formats::TensorInfo& tensor : seen.container->tensors()) {
    out << separator << "{\"name\":" << json_string(tensor.name) << ",\"type\":" << json_string(tensor.type_name)
        << fmt::format(",\"shape\":[{}]}}", fmt::join(tensor.shape, ","));
    separator = ",";
  }
  out << "]}\n";
}

void write_support(Output& out, const DeviceSupport& support) {
  const char* verdict = !support.runs ? "not known" : *support.runs ? "runs" : "can't run";
  out << fmt::format("  {:<12} {}", support.device, verdict);
  std::string converted;
  for (const auto& [name, takes] : support.types) {
    if (takes && !*takes) converted += (converted.empty() ? "" : ", ") + name;
  }
  if (support.runs.value_or(false) && !converted.empty()) out << fmt::format(" (converts {} first)", converted);
  if (!support.reason.empty()) out << ": " << support.reason;
  out << '\n';
  for (const OpPlacement& op : support.ops) {
    out << fmt::format("    {:<16} {:>5} x on {}{}{}\n", op.op, op.count, op.device, op.reason.empty() ? "" : ": ",
                       op.reason);
  }
}

void write_text(Output& out, const Inspection& seen) {
  out << fmt::format("format        {}\n", seen.container->format());
  out << "architecture  "
      << (seen.container->architecture().empty() ? "not said" : json_string(seen.container->architecture())) << '\n';
  out << fmt::format("parameters    {}\n", seen.parameters);
  if (seen.memory) out << "memory        " << describe_memory(*seen.memory, seen.context) << '\n';
  if (!seen.model) out << "not a model that can run: " << seen.why_no_model << '\n';
  out << "devices\n";
  for (const DeviceSupport& support : seen.support) write_support(out, support);
  out << "metadata\n";
  const nlohmann::json metadata = seen.container->metadata(kArrayLimit);
  for (const auto& [key, value] : metadata.items()) {
    std::string text = json_text(value);
    if (text.size() > 100) text = text::to_valid_utf8(text.substr(0, 97)) + "...";
    out << "  " << key << " = " << text << '\n';
  }
  out << fmt::format("tensors ({})\n", seen.container->tensors().size());
  for (const formats::TensorInfo& tensor : seen.container->tensors()) {
    out << fmt::format("  {:<6} {:<20} ", tensor.type_name, fmt::format("[{}]", fmt::join(tensor.shape, ", ")))
        << json_string(tensor.name) << '\n';
  }
}

const formats::TensorInfo& find_tensor(const formats::Container& container, const std::string& name) {
  if (const formats::TensorInfo* found = container.find(name)) return *found;
  std::vector<std::string> names;
  for (const formats::TensorInfo& tensor : container.tensors()) names.push_back(tensor.name);
  const std::vector<std::string> near = near_names(name, names);
  throw Error(ErrorCode::kBadFile, fmt::format("there is no tensor '{}'", name), container.path().string(),
              near.empty() ? "`backplane inspect FILE` lists them all"
                           : fmt::format("did you mean {}?", fmt::join(near, ", ")));
}

void show_tensor(Output& out, const InspectOptions& options) {
  const auto container = formats::open_container(resolve_model(options.file, !options.device.no_progress));
  const formats::TensorInfo& tensor = find_tensor(*container, *options.tensor);
  plugins::set_host_threads(1);  // writing the numbers takes longer than making them
  const plugins::Registry registry(options.device.plugins.search());
  const auto reference = open_device(registry.find_device(reference_name(DType::kF32)));
  if (options.json) {
    write_tensor_json(out, *reference, tensor);
  } else {
    write_tensor_text(out, *reference, tensor, kTensorValues);
  }
}

int inspect(const InspectOptions& options) {
  Output out;
  if (options.tensor) {
    show_tensor(out, options);
  } else {
    const Inspection seen = look(options);
    options.json ? write_json(out, seen) : write_text(out, seen);
  }
  out.flush();
  return 0;
}

}  // namespace

void add_inspect(CommandLine& line) {
  auto options = std::make_shared<InspectOptions>();
  Command command = line.command("inspect", "Show what a model file holds, the memory it takes and where it runs");
  command
      .option("file", options->file, "FILE",
              "GGUF (any architecture), safetensors, a safetensors index, or a Hugging Face folder")
      .option("--tensor", options->tensor, "NAME", "Show the values of this tensor, dequantized")
      .option(
          "-d,--device", options->device.device, "DEVICE",
          "Open this device, plan the model on it and say where each op runs; without it no device driver is opened")
      .option("-c,--ctx", options->device.context, "TOKENS", "Context to compute the memory for")
      .option("--kv-type", options->device.kv_type, "TYPE",
              "Type of the KV cache: f16, bf16, f32, f64, f8_e4m3, q8_0; default that of the activations")
      .flag("--json", options->json, "One JSON object")
      .required("file")
      .example("backplane inspect model.gguf --ctx 4096")
      .action([options] { return inspect(*options); });
  add_options(command, options->device.plugins);
}

}  // namespace backplane::tools
