// Runs the requests of a batch file together.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <thread>

#include "core/engine/service.h"
#include "tools/batch_lines.h"
#include "tools/batch_results.h"
#include "tools/json_lines.h"
#include "tools/openai/openai_prompt.h"

namespace backplane::tools {

struct BatchOptions {
  std::string model_name;        // what answers call the model where the request doesn't
  bool only_model_name = false;  // refuse requests that name another one
  std::uint64_t seed = 0;        // for requests without one, together with their custom_id
  std::size_t max_open = 64;     // as long as fewer choices are in the engine, running or waiting, more are submitted
  // Whether the model can compute no more; called on the service's thread.
  std::function<bool()> lost = {};
  // How many results there are, with those that there were before; called on the writer's thread.
  std::function<void(std::uint64_t)> progress = {};
};

struct BatchCounts {
  std::uint64_t completed = 0;  // with status 200
  std::uint64_t failed = 0;
  std::uint64_t skipped = 0;  // lines that had their result before
  std::uint64_t prompt_tokens = 0, completion_tokens = 0;
};

// Reads, parses and submits on the caller's thread, writes on its own: reading waits when enough is under way, so that
// memory doesn't grow with the input, but for the ids. A request's answer depends on the request alone: without a seed
// it gets one that is made of its custom_id.
class BatchRun {
 public:
  // All must outlive this.
  BatchRun(engine::Service& service, const openai::ServedModel& model, ResultsFile& results, BatchOptions options);
  BatchRun(const BatchRun&) = delete;
  BatchRun& operator=(const BatchRun&) = delete;

  // To be called once. Returns when every line has its result. Throws what reading and writing throw; Error{kDevice}
  // when the model is lost; Error{kInterrupted} on SIGINT inside a CatchInterrupts. Requests that were under way have
  // no result then; what had been answered before is in the file.
  BatchCounts run(LineReader& input);

 private:
  struct Job;
  using JobPtr = std::shared_ptr<Job>;

  // On the caller's thread.
  void read(LineReader& input);
  void take_line(std::uint64_t number, std::string_view text);
  bool is_new(std::uint64_t number, const std::string& custom_id);
  void refuse_line(std::uint64_t number, const BatchLineError& error);
  void take_request(BatchLine line);
  JobPtr make_job(BatchLine& line) const;
  void submit(const JobPtr& job);
  bool submit_prompt(const JobPtr& job, std::size_t prompt);
  bool wait_until(const std::function<bool()>& ready);

  // On any; the lock is held.
  void stop(std::exception_ptr error);
  void fail(Job& job);
  void finish_choices(const JobPtr& job, std::size_t count);
  void to_writer(std::function<void()> work);

  // On the service's.
  void on_event(const JobPtr& job, std::size_t prompt, const engine::Event& event);

  // On the writer's.
  void write_loop();
  void write_job(const Job& job);
  void write_failure(const Job& job, const Error& error);
  void write_answer(const std::string& custom_id, int status, const nlohmann::ordered_json& body);
  void write(const std::string& line, std::uint64_t& counter);
  std::string new_id();

  engine::Service& service_;
  const openai::ServedModel& model_;
  ResultsFile& results_;
  const BatchOptions options_;

  std::uint64_t skipped_ = 0;  // the caller's
  const std::string id_prefix_;
  std::uint64_t last_id_ = 0;  // these three are the writer's
  BatchCounts counts_;
  bool broken_ = false;  // half a line may have been written

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t open_ = 0;       // choices in the engine
  std::size_t unwritten_ = 0;  // results that are to come of what was read
  std::deque<std::function<void()>> to_write_;
  bool stopping_ = false, reading_ended_ = false;
  std::exception_ptr error_;
  std::thread writer_;  // last: it uses the others
};

}  // namespace backplane::tools
