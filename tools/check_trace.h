// What the ops of a step were given and gave, as numbers that two devices can be compared by.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "core/device/executor.h"
#include "core/sched/step.h"
#include "tests/conformance/numbers.h"

namespace backplane::tools::check {

using conformance::Array;

// One run of one op in a step. The sites of a model are the same on every device; the head's ops run several times.
struct OpKey {
  std::size_t site = 0;
  std::uint32_t visit = 0;
  auto operator<=>(const OpKey&) const = default;
};

struct OpValues {
  std::vector<Array> before;  // by activation; without a shape where the op doesn't read it
  Array out;                  // without a shape where it writes only the KV cache
};

// All pages of a layer: [P,S,Hk,D] and [P,S,Hk,Dv].
struct KvValues {
  Array k, v;
};
using KvState = std::vector<KvValues>;  // by layer

struct StepTrace {
  std::map<OpKey, OpValues> ops;
  std::map<std::uint32_t, KvValues> kv;  // of a layer once its K and V are written
};

// Both need contents that are valid somewhere. Numbers are rounded to the tensor's type.
Array read_tensor(const device::Tensor& tensor);
void write_tensor(const device::Tensor& tensor, const Array& values);

KvValues read_kv(device::KvPool& pool, std::uint32_t layer);
void write_kv(device::KvPool& pool, std::uint32_t layer, const KvValues& values);
KvState read_kv(device::KvPool& pool);
void write_kv(device::KvPool& pool, const KvState& state);
KvState zero_kv(const device::KvPool& pool);

// Attention's two ops each write the rows of their own sequences: those rows. Of other ops, all.
Array own_rows(std::uint32_t code, const sched::Step& step, const Array& out);

// Numbers the runs of a step. Watches one executor; a new one for each step.
class Tap : public device::Observer {
 public:
  explicit Tap(device::Executor& executor, const sched::Step& step) : executor_(executor), step_(step) {}
  void before(const device::Site& site, const std::vector<device::Seen>& seen) final;
  void after(const device::Site& site, const std::vector<device::Seen>& seen) final;

 protected:
  virtual void entering(const device::Site&, const OpKey&, const std::vector<device::Seen>&) {}
  virtual void left(const device::Site& site, const OpKey& key, const std::vector<device::Seen>& seen) = 0;

  // What the op has written, its own rows of it.
  Array output(const device::Site& site, const std::vector<device::Seen>& seen) const;

  device::Executor& executor_;
  const sched::Step& step_;

 private:
  std::map<std::size_t, std::uint32_t> visits_;
  OpKey key_;
};

// The chain of a device as it is: outputs only.
class OutputTap : public Tap {
 public:
  OutputTap(device::Executor& executor, const sched::Step& step, StepTrace& trace)
      : Tap(executor, step), trace_(trace) {}

 private:
  void left(const device::Site& site, const OpKey& key, const std::vector<device::Seen>& seen) override;
  StepTrace& trace_;
};

// The reference, storing what the other device would store: all that passes from op to op is rounded to the subject's
// types. So each op's inputs are numbers that both hold exactly, and its output, before it is rounded, is what the
// subject's op is to come close to. Activations that the subject declares to round first are rounded here too.
class SourceTap : public Tap {
 public:
  SourceTap(device::Executor& executor, device::Executor& subject, const sched::Step& step, StepTrace& trace)
      : Tap(executor, step), subject_(subject), trace_(trace) {}

 private:
  void entering(const device::Site& site, const OpKey& key, const std::vector<device::Seen>& seen) override;
  void left(const device::Site& site, const OpKey& key, const std::vector<device::Seen>& seen) override;
  bool quantized(const OpKey& key) const;

  device::Executor& subject_;
  StepTrace& trace_;
};

// The subject, each op of which gets the reference's inputs.
class IsolatedTap : public Tap {
 public:
  IsolatedTap(device::Executor& executor, const sched::Step& step, const StepTrace& source, StepTrace& trace)
      : Tap(executor, step), source_(source), trace_(trace) {}

 private:
  void entering(const device::Site& site, const OpKey& key, const std::vector<device::Seen>& seen) override;
  void left(const device::Site& site, const OpKey& key, const std::vector<device::Seen>& seen) override;
  const StepTrace& source_;
  StepTrace& trace_;
};

}  // namespace backplane::tools::check
