#include "models/op_compare.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "core/device/reference.h"

namespace backplane::models {
namespace {

namespace dev = backplane::device;

using Values = std::vector<double>;

// The elements of a view in the storage that it is of, in row-major order, by number of element from the start.
std::vector<std::size_t> places(const dev::Tensor& t) {
  const auto size = static_cast<std::int64_t>(dtype_info(t.type).block_bytes);
  std::vector<std::size_t> out;
  for (std::int64_t a = 0; a < t.shape[0]; ++a) {
    for (std::int64_t b = 0; b < (t.rank > 1 ? t.shape[1] : 1); ++b) {
      for (std::int64_t c = 0; c < (t.rank > 2 ? t.shape[2] : 1); ++c) {
        const std::int64_t at = static_cast<std::int64_t>(t.offset) + a * t.stride[0] +
                                (t.rank > 1 ? b * t.stride[1] : 0) + (t.rank > 2 ? c * t.stride[2] : 0);
        out.push_back(static_cast<std::size_t>(at / size));
      }
    }
  }
  return out;
}

// All numbers of the view's storage up to its end.
Values storage_values(dev::Executor& executor, const dev::Tensor& t) {
  std::vector<std::byte> bytes(t.end());
  t.storage->get_host(0, bytes);
  const std::uint64_t count = bytes.size() / dtype_info(t.type).block_bytes;
  if (t.type != DType::kF64) bytes = dev::convert(executor.reference(), {bytes, t.type, 1, count}, DType::kF64);
  Values values(count);
  std::memcpy(values.data(), bytes.data(), count * sizeof(double));
  return values;
}

Values read(dev::Executor& executor, const dev::Tensor& t) {
  if (t.end() == t.offset) return {};
  const Values all = storage_values(executor, t);
  Values values;
  for (const std::size_t at : places(t)) values.push_back(all[at]);
  return values;
}

void write(dev::Executor& executor, const dev::Tensor& t, const Values& values) {
  if (values.empty()) return;
  Values all = storage_values(executor, t);
  const std::vector<std::size_t> at = places(t);
  for (std::size_t i = 0; i < at.size(); ++i) all[at[i]] = values[i];
  const std::span<const std::byte> bytes = std::as_bytes(std::span(all));
  if (t.type == DType::kF64) return t.storage->put_host(0, bytes);
  t.storage->put_host(0, dev::convert(executor.reference(), {bytes, DType::kF64, 1, all.size()}, t.type));
}

struct OpKey {
  std::size_t site = 0;
  std::uint32_t visit = 0;
  auto operator<=>(const OpKey&) const = default;
};

struct OpValues {
  std::vector<Values> inputs, outputs;  // by activation; empty where it isn't one
};
using Trace = std::map<OpKey, OpValues>;

// Numbers the runs of each op in a step.
class Tap : public dev::Observer {
 public:
  explicit Tap(dev::Executor& executor) : executor_(executor) { executor_.watch(this); }
  ~Tap() override { executor_.watch(nullptr); }

  void before(const dev::Site& site, const std::vector<dev::Seen>& seen) final {
    key_.site = static_cast<std::size_t>(&site - executor_.sites().data());
    key_.visit = visits_[key_.site]++;
    entering(seen);
  }

 protected:
  virtual void entering(const std::vector<dev::Seen>& seen) = 0;
  dev::Executor& executor_;
  OpKey key_;

 private:
  std::map<std::size_t, std::uint32_t> visits_;
};

class Recorder final : public Tap {
 public:
  Recorder(dev::Executor& executor, Trace& trace) : Tap(executor), trace_(trace) {}
  void entering(const std::vector<dev::Seen>& seen) override {
    for (const dev::Seen& each : seen) {
      trace_[key_].inputs.push_back(each.read ? read(executor_, each.tensor) : Values());
    }
  }
  void after(const dev::Site&, const std::vector<dev::Seen>& seen) override {
    for (const dev::Seen& each : seen) {
      trace_[key_].outputs.push_back(each.written ? read(executor_, each.tensor) : Values());
    }
  }

 private:
  Trace& trace_;
};

double relative_error(const Values& got, const Values& want) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isfinite(got[i]) != std::isfinite(want[i])) return std::numeric_limits<double>::infinity();
    if (!std::isfinite(want[i])) continue;
    error += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  if (error == 0) return 0;
  return size == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(error / size);
}

class Comparer final : public Tap {
 public:
  Comparer(dev::Executor& executor, const Trace& trace) : Tap(executor), trace_(trace) {}
  void entering(const std::vector<dev::Seen>& seen) override {
    known_ = trace_.find(key_);
    if (known_ == trace_.end()) return;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (seen[i].read) write(executor_, seen[i].tensor, known_->second.inputs[i]);
    }
  }
  void after(const dev::Site& site, const std::vector<dev::Seen>& seen) override {
    if (known_ == trace_.end()) return;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (!seen[i].written) continue;
      const double error = relative_error(known_->second.outputs[i], read(executor_, seen[i].tensor));
      if (worst_.op.empty() || error > worst_.error) worst_ = {site.name, error};
    }
  }
  const OpDifference& worst() const { return worst_; }

 private:
  const Trace& trace_;
  Trace::const_iterator known_;
  OpDifference worst_;
};

}  // namespace

OpDifference compare_ops(LoadedModel& first, LoadedModel& second, const sched::Step& step) {
  Trace trace;
  {
    const Recorder recorder(first.executor(), trace);
    first.forward(step);
  }
  const Comparer comparer(second.executor(), trace);
  second.forward(step);
  return comparer.worst();
}

}  // namespace backplane::models
