// A fake model with all that an experiment needs around it.
#pragma once

#include "tests/support/devices.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/engine/fake_model.h"
#include "tools/lab/setup.h"

namespace backplane::lab {

struct Bench {
  test::TempFolder folder;
  std::shared_ptr<device::Device> device = test::open_device("cpu:f32");
  models::ModelFile file{test::write_tiny_llama(folder)};
  StepWork work{file, *device, DType::kF32};  // of another model, as the fake has no sizes
  engine::FakeModel model{{.max_context = 200, .max_step_tokens = 128, .pages = {200}}};
  Prompts prompts{nullptr, 23, 1};
  Trace trace = random_trace(64, 1);
  std::uint64_t progress_calls = 0;
  Setup setup{.model = model,
              .work = work,
              .prompts = prompts,
              .trace = trace,
              .speed = {.token_s = 1e-4, .step_s = 1e-4},
              .room = {.context = 200, .step_tokens = 128, .sequences = 16},
              .progress = [this](std::uint64_t, std::uint64_t) { ++progress_calls; }};
};

}  // namespace backplane::lab
