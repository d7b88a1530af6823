// The number of threads changes no bit.
#include "plugins/host/host_table.h"
#include "tests/unit/device/runs.h"

namespace backplane {
namespace {

TEST(Threads, OneToFourGiveTheSameBits) {
  const test::TempFolder folder;
  const auto path = test::write_tiny_llama(folder, {.layers = 3});
  for (const char* device : {"cpu:f32", "cpu:f64"}) {
    std::vector<test::Outputs> outputs;
    for (unsigned threads = 1; threads <= 4; ++threads) {
      plugins::set_host_threads(threads);
      const auto cpu = test::open_device(device);
      const auto model = test::load_on(path, cpu, {}, cpu);
      outputs.push_back(test::run_all(*model));
      EXPECT_EQ(plugins::host_threads(), threads);
      EXPECT_EQ(outputs.back(), outputs.front()) << device << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace backplane
