// What the engine needs of a model that is loaded on a device. models/ implements it; tests fake it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/sched/step.h"

namespace backplane::engine {

// Layers that keep the same pages: full attention, or one window size.
struct KvGroup {
  std::uint32_t window = 0;  // tokens a query sees, its own included; 0: all
  std::uint32_t layers = 0;
};

struct ModelShape {
  std::string architecture;
  std::uint32_t vocab_size = 0;
  std::uint32_t max_context = 0;  // positions the model was made for
  std::uint32_t layers = 0;
  std::vector<KvGroup> groups;  // at least one
};

// Rows of logits, [rows, vocab_size], row-major. Kept in double so that an f64 device loses nothing.
struct Logits {
  std::uint32_t vocab_size = 0;
  DType type = DType::kF32;  // what the device computed them in
  std::vector<double> values;

  std::uint32_t rows() const { return vocab_size ? static_cast<std::uint32_t>(values.size() / vocab_size) : 0; }
  std::span<const double> row(std::uint32_t r) const {
    return {values.data() + std::size_t{r} * vocab_size, vocab_size};
  }
};

// The largest logit of a row and its token, of equal ones the lowest. NaN where any logit of the row is.
struct Pick {
  TokenId id = 0;
  double logit = 0;
};

// Thrown by Model::forward and copy_pages instead of doing it: the model lost its device and goes on elsewhere. The
// contents of all KV pages are gone; shape, limits and rope rows are as before. Whoever computes on the model computes
// what it needs in the cache again, from tokens.
class ModelReplaced : public Error {
 public:
  explicit ModelReplaced(std::string_view cause)
      : Error(ErrorCode::kDevice, cause, {}, "what was computed must be computed again") {}
};

// Used by one thread at a time. Throws Error: kDevice when the device failed, kCapacity when it ran out of memory; the
// KV pages that the step was to write are then undefined, all others are intact.
class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelShape& shape() const = 0;

  // The most tokens and sequences a step may have, and the page size and number of pages of each group, all fixed when
  // the model was planned on its device.
  virtual std::uint32_t max_step_tokens() const = 0;
  virtual std::uint32_t max_step_sequences() const = 0;
  virtual std::uint32_t page_size() const = 0;
  virtual std::uint32_t pages(std::uint32_t group) const = 0;

  // The row of rope tables for a request that will be at most `planned_length` tokens long (prompt plus max tokens):
  // some models choose their factors by length, and the choice holds for the request's whole life. Pair with
  // release_rope_row.
  virtual std::int32_t acquire_rope_row(std::uint64_t planned_length) = 0;
  virtual void release_rope_row(std::int32_t row) noexcept = 0;

  // Equal for planned lengths that give the same factors, and only for these, as long as the process lives: K of one
  // request is of use to another only where it is equal.
  virtual std::uint64_t rope_identity(std::uint64_t planned_length) const = 0;

  // Copies pages from[i] of a group to its pages to[i], in all layers that keep them; no page occurs in both. Before
  // the steps that are run after it. Throws as forward does; the pages `to` are then undefined.
  virtual void copy_pages(std::uint32_t group, std::span<const std::int32_t> from,
                          std::span<const std::int32_t> to) = 0;

  // Runs one step: writes K and V of all its tokens, returns logits for step.out_row, in that order.
  // May throw ModelReplaced.
  virtual Logits forward(const sched::Step& step) = 0;

  // Steps of which only picks are wanted, as of sequences that decode greedily: the logits stay on the device, and the
  // caller may go on while the device works. Where can_pick() is false, nothing of this is called.
  virtual bool can_pick() const { return false; }
  // Begins a step of decoding sequences, one token and one row each. At most two are under way; `step` stays as it is
  // until the end of this one. With `targets`, the pick of row r of the step begun before, which may still be under
  // way, becomes this step's token targets[r], unless that is -1; what step.token has there doesn't matter.
  virtual void begin_pick(const sched::Step&, std::span<const std::int32_t> /*targets*/) {}
  // Waits for the earlier one of the steps under way: its rows in order.
  virtual std::vector<Pick> end_pick() { return {}; }
  // Forgets all steps under way, once nothing works on them any more.
  virtual void abandon_picks() noexcept {}
};

}  // namespace backplane::engine
