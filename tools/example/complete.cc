// Completes several texts at once with the engine as a library.
//   complete MODEL DEVICE PLUGIN_FOLDER TEXT...
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/service.h"
#include "core/formats/tokenizer_bundle.h"
#include "models/load.h"
#include "plugins/host/registry.h"

namespace bp = backplane;

namespace {

std::shared_ptr<bp::device::Device> open(const bp::plugins::Registry& registry, const std::string& name) {
  const bp::plugins::DeviceRef ref = registry.find_device(name);
  return bp::device::Device::open({&ref.plugin->tables(), ref.plugin->name()}, ref.index);
}

int run(const std::string& path, const std::string& device, const std::string& plugins,
        const std::vector<std::string>& texts) {
  const bp::plugins::Registry registry(bp::plugins::default_search({plugins}));
  const bp::models::ModelFile file(path);
  bp::models::LoadOptions options;
  options.context = 256;
  options.max_sequences = 4;  // at once; the others wait
  const auto model = bp::models::load(file, open(registry, device), open(registry, "cpu:f32"), options);
  const std::shared_ptr<const bp::text::Tokenizer> tokenizer = bp::formats::load_tokenizer(path).tokenizer;

  bp::engine::Service service(*model, {.engine = {.tokenizer = tokenizer}});
  std::vector<bp::engine::EventStream> streams;
  for (const std::string& text : texts) {
    bp::engine::Request request;
    request.prompt = tokenizer->encode(text, {.add_special = true});
    request.sampling.temperature = 0;
    request.max_tokens = 16;
    request.eos_ids = tokenizer->special().end_of_generation;
    streams.push_back(service.stream(std::move(request)));
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    std::printf("%s", texts[i].c_str());
    while (const auto event = streams[i].next()) {
      if (event->error) throw *event->error;
      std::printf("%s", event->text.c_str());
    }
    std::printf("\n");
  }
  const bp::engine::ServiceStats stats = service.stats();
  std::fprintf(stderr, "%zu texts, %llu steps\n", texts.size(), static_cast<unsigned long long>(stats.steps));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: complete MODEL DEVICE PLUGIN_FOLDER TEXT...\n");
    return 2;
  }
  try {
    return run(argv[1], argv[2], argv[3], {argv + 4, argv + argc});
  } catch (const bp::Error& error) {
    std::fprintf(stderr, "complete: error: %s\n", error.what());
    return error.exit_status();
  }
}
