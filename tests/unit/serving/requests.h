// Many requests of all kinds to a tiny model, and what each would get alone.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/service.h"
#include "models/load.h"

namespace backplane::test {

struct ServedAnswer {
  std::vector<TokenId> ids;
  std::vector<double> logprobs;
  engine::FinishReason finish = engine::FinishReason::kNone;
};

struct ServedRequest {
  engine::Request request;
  int cancel_after = -1;  // so many events; never for -1
  std::vector<ServedAnswer> answers;
  std::atomic<int> events = 0;
};

// Lengths as in the trace, scaled to the context of the tiny Llama; some prompts begin alike, and no two requests are
// asked for alike. A fifth are to be canceled.
void fill(std::vector<ServedRequest>& requests, std::uint32_t seed);

// A tiny Llama with a KV cache of 25 pages, nine more than a single sequence may need, for twelve sequences at once.
models::LoadOptions crowded();
// Which are preempted as soon as there is no page.
engine::ServiceOptions crowded_service(std::size_t max_requests);

// "opaque" or a device's name.
std::unique_ptr<models::LoadedModel> load(const std::string& device, const std::filesystem::path& file,
                                          const models::LoadOptions& options);

// Each answer to each request alone: a fresh sequence in a whole cache.
std::vector<std::vector<ServedAnswer>> serial(const std::string& device, const std::filesystem::path& file,
                                              const std::vector<ServedRequest>& requests);

// Submits all from four threads, cancels those that are to be canceled, and returns when all have ended.
void serve(engine::Service& service, std::vector<ServedRequest>& requests);

// How it ended.
struct Counts {
  int canceled = 0;
  int wrong = 0;  // answers that are not as they should be; of a canceled one, its beginning
};
Counts compare(const std::vector<ServedRequest>& requests, const std::vector<std::vector<ServedAnswer>>& want);

// Nothing is held, free + cached + held = total, each answer has ended once and none has failed.
void expect_all_ended(engine::Service& service, const std::vector<ServedRequest>& requests);

}  // namespace backplane::test
