#include "tools/batch_run.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "tools/openai/openai_error.h"
#include "tools/openai/openai_response.h"
#include "tools/signals.h"

namespace backplane::tools {

using openai::ApiError;

// One request. Its choices are the service thread's until all have ended; the rest of it that changes is under the
// mutex.
struct BatchRun::Job {
  std::string custom_id;
  openai::ApiRequest request;  // without prompts and messages
  std::vector<engine::Request> to_submit;
  std::vector<openai::AnsweredPrompt> answers;

  std::vector<engine::RequestId> submitted;
  std::size_t unfinished = 0;  // choices that haven't ended
  bool failed = false;         // nothing more is submitted
  std::optional<ApiError> refusal;
};

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::chrono::milliseconds kBetweenLooks{50};  // at SIGINT, while waiting

std::string random_prefix() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

// FNV-1a over the id, from a start that the seed gives.
std::uint64_t seed_of(std::uint64_t seed, const std::string& custom_id) {
  std::uint64_t hash = 0xcbf29ce484222325 ^ (seed * 0x9E3779B97F4A7C15);
  for (const char c : custom_id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Error interrupted() { return {ErrorCode::kInterrupted, "interrupted"}; }

}  // namespace

BatchRun::BatchRun(engine::Service& service, const openai::ServedModel& model, ResultsFile& results,
                   BatchOptions options)
    : service_(service), model_(model), results_(results), options_(std::move(options)), id_prefix_(random_prefix()) {}

BatchCounts BatchRun::run(LineReader& input) {
  writer_ = std::thread([this] { write_loop(); });
  try {
    read(input);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    stop(std::current_exception());
  }
  if (!wait_until([this] { return open_ == 0 && unwritten_ == 0; })) service_.cancel_all();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_ == 0; });
    reading_ended_ = true;
  }
  changed_.notify_all();
  writer_.join();
  if (error_) std::rethrow_exception(error_);
  counts_.skipped = skipped_;
  return counts_;
}

// False when it all stops.
bool BatchRun::wait_until(const std::function<bool()>& ready) {
  std::unique_lock lock(mutex_);
  while (!stopping_ && !ready()) {
    changed_.wait_for(lock, kBetweenLooks);
    if (CatchInterrupts::pending()) stop(std::make_exception_ptr(interrupted()));
  }
  return !stopping_;
}

void BatchRun::stop(std::exception_ptr error) {
  if (!stopping_) error_ = std::move(error);
  stopping_ = true;
  changed_.notify_all();
}

void BatchRun::read(LineReader& input) {
  std::string line;
  for (std::uint64_t number = 1;; ++number) {
    if (!wait_until([this] { return unwritten_ < options_.max_open; })) return;
    LineReader::Got got{};
    bool too_long = false;
    try {
      got = input.next(line);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUsage) throw;
      too_long = true;
      refuse_line(number, BatchLineError("invalid_json_line", error.what()));
      got = input.skip();
    }
    if (got == LineReader::Got::kEnd) return;
    if (got == LineReader::Got::kInterrupted) throw interrupted();
    if (!too_long) take_line(number, line);
  }
}

void BatchRun::take_line(std::uint64_t number, std::string_view text) {
  if (number == 1 && text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (text.find_first_not_of(" \t\r") == std::string_view::npos) return;
  BatchLine line;
  try {
    line = parse_batch_line(text);
  } catch (const BatchLineError& error) {
    if (error.custom_id().empty() || is_new(number, error.custom_id())) refuse_line(number, error);
    return;
  }
  if (is_new(number, line.custom_id)) take_request(std::move(line));
}

bool BatchRun::is_new(std::uint64_t number, const std::string& custom_id) {
  const ResultsFile::Known known = results_.meet(custom_id);
  if (known == ResultsFile::Known::kFinished) ++skipped_;
  if (known == ResultsFile::Known::kDuplicate) {
    refuse_line(number, BatchLineError(kDuplicateCustomId, "this custom_id has come before", custom_id));
  }
  return known == ResultsFile::Known::kNew;
}

void BatchRun::refuse_line(std::uint64_t number, const BatchLineError& error) {
  const bool by_line = error.custom_id().empty() || error.code() == kDuplicateCustomId;
  if (by_line && results_.has_line(number)) {
    ++skipped_;
    return;
  }
  const std::lock_guard lock(mutex_);
  ++unwritten_;
  // One of the writer's own: copies of an exception share their text, by a count that race detectors don't see.
  to_writer([this, number, own = BatchLineError(error.code(), error.what(), error.custom_id())] {
    write(error_line(new_id(), own, number), counts_.failed);
  });
}

void BatchRun::take_request(BatchLine line) {
  {
    const std::lock_guard lock(mutex_);
    ++unwritten_;
  }
  const auto refuse = [&](const ApiError& error) {
    const std::lock_guard lock(mutex_);
    to_writer(
        [this, id = line.custom_id, status = error.status(), body = error.body()] { write_answer(id, status, body); });
  };
  JobPtr job;
  try {
    job = make_job(line);
  } catch (const ApiError& error) {
    return refuse(error);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // a bug of ours; the other lines go on
    return refuse(ApiError(500, error.what(), {}, "internal"));
  }
  submit(job);
}

BatchRun::JobPtr BatchRun::make_job(BatchLine& line) const {
  auto job = std::make_shared<Job>();
  job->custom_id = line.custom_id;
  job->request = parse_request(line.endpoint, line.body);
  line.body = nullptr;
  openai::ApiRequest& request = job->request;
  if (request.stream) throw ApiError(400, "stream must be false in a batch", "stream");
  if (options_.only_model_name && !request.model.empty() && request.model != options_.model_name) {
    throw ApiError(404, fmt::format("the model {} is not here; this is {}", request.model, options_.model_name),
                   "model", "model_not_found");
  }
  if (!request.has_seed) request.settings.sampling.seed = seed_of(options_.seed, job->custom_id);
  for (openai::PreparedPrompt& prompt : openai::prepare(request, model_)) {
    openai::AnsweredPrompt& answer = job->answers.emplace_back();
    answer.ids = prompt.request.prompt;
    answer.echo = std::move(prompt.echo);
    answer.echo_offsets = std::move(prompt.echo_offsets);
    answer.choices.resize(prompt.request.n);
    job->to_submit.push_back(std::move(prompt.request));
  }
  request.prompts.clear();
  request.messages.clear();
  job->unfinished = job->answers.size() * request.settings.n;
  return job;
}

void BatchRun::submit(const JobPtr& job) {
  std::size_t prompt = 0;
  while (prompt < job->to_submit.size() && submit_prompt(job, prompt)) ++prompt;
  const std::lock_guard lock(mutex_);
  if (prompt < job->to_submit.size()) finish_choices(job, (job->to_submit.size() - prompt) * job->request.settings.n);
}

// False when neither this nor another one is to be submitted any more.
bool BatchRun::submit_prompt(const JobPtr& job, std::size_t prompt) {
  if (!wait_until([&] { return open_ < options_.max_open || job->failed; })) return false;
  const std::size_t choices = job->request.settings.n;
  {
    const std::lock_guard lock(mutex_);
    if (job->failed) return false;
    open_ += choices;
  }
  std::optional<engine::RequestId> id;
  std::optional<ApiError> refusal;
  try {
    id = service_.submit(std::exchange(job->to_submit[prompt], {}),
                         [this, job, prompt](const engine::Event& event) { on_event(job, prompt, event); });
  } catch (const Error& error) {
    refusal = openai::api_error(error);
  }
  const std::lock_guard lock(mutex_);
  if (id) {
    job->submitted.push_back(*id);
    if (job->failed) service_.cancel(*id);  // by another one, meanwhile
    return true;
  }
  open_ -= choices;
  job->refusal = std::move(refusal);
  fail(*job);
  return false;
}

void BatchRun::fail(Job& job) {
  if (std::exchange(job.failed, true)) return;
  for (const engine::RequestId id : job.submitted) service_.cancel(id);
}

void BatchRun::finish_choices(const JobPtr& job, std::size_t count) {
  job->unfinished -= count;
  if (job->unfinished == 0) to_writer([this, job] { write_job(*job); });
}

void BatchRun::to_writer(std::function<void()> work) {
  to_write_.push_back(std::move(work));
  changed_.notify_all();
}

void BatchRun::on_event(const JobPtr& job, std::size_t prompt, const engine::Event& event) {
  job->answers[prompt].choices[event.answer].add(event);
  if (event.finish == engine::FinishReason::kNone) return;
  const std::lock_guard lock(mutex_);
  if (event.finish == engine::FinishReason::kError) fail(*job);
  --open_;
  finish_choices(job, 1);
  changed_.notify_all();
}

void BatchRun::write_loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !to_write_.empty() || reading_ended_; });
    if (to_write_.empty()) return;
    const auto work = std::move(to_write_.front());
    to_write_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      if (!broken_) work();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) {
      broken_ = true;
      stop(error);
    }
    --unwritten_;
    changed_.notify_all();
  }
}

void BatchRun::write_job(const Job& job) {
  if (job.refusal) return write_answer(job.custom_id, job.refusal->status(), job.refusal->body());
  if (const auto error = openai::error_of(job.answers)) return write_failure(job, *error);
  for (const openai::AnsweredPrompt& prompt : job.answers) {
    for (const openai::Choice& choice : prompt.choices) {
      const bool whole = choice.finish == engine::FinishReason::kStop || choice.finish == engine::FinishReason::kLength;
      if (!whole) return;  // it all stops, and this will be done another time
    }
  }
  const std::string model = job.request.model.empty() ? options_.model_name : job.request.model;
  const openai::Json body =
      openai::response_body(job.request, {new_id(), unix_time(), model}, job.answers, model_.tokenizer);
  counts_.prompt_tokens += body["usage"]["prompt_tokens"].get<std::uint64_t>();
  counts_.completion_tokens += body["usage"]["completion_tokens"].get<std::uint64_t>();
  write_answer(job.custom_id, 200, body);
}

void BatchRun::write_failure(const Job& job, const Error& error) {
  // All requests would fail like this: better to end, and to go on from here another time.
  if (error.code() == ErrorCode::kDevice && options_.lost &&
      service_.between_steps([this](engine::Engine&) { return options_.lost(); })) {
    const std::lock_guard lock(mutex_);
    return stop(std::make_exception_ptr(error));
  }
  const ApiError answer = openai::generation_error(error);
  write_answer(job.custom_id, answer.status(), answer.body());
}

void BatchRun::write_answer(const std::string& custom_id, int status, const nlohmann::ordered_json& body) {
  write(response_line(new_id(), custom_id, status, body), status == 200 ? counts_.completed : counts_.failed);
}

void BatchRun::write(const std::string& line, std::uint64_t& counter) {
  results_.write(line);
  ++counter;
  if (options_.progress) options_.progress(results_.kept() + counts_.completed + counts_.failed);
}

std::string BatchRun::new_id() { return fmt::format("{}{:08x}", id_prefix_, ++last_id_); }

}  // namespace backplane::tools
