// Steps that end with each row's largest logit instead of all of them, and that are left while the device works.
#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "models/decoder.h"

namespace backplane::models {
namespace {

namespace dev = backplane::device;

// For Executor::begin_step: steps that end with picks, and of these such as begin with those of another.
constexpr std::uint32_t kPicks = 1, kFollows = 2;

}  // namespace

void Decoder::create_picking() {
  const std::shared_ptr<dev::Device>& device = executor_.devices().front();
  const std::int64_t n = limits_.sequences;
  picking_ = std::make_unique<DecoderPicking>();
  picking_->rows = executor_.scratch("rows for the head", {n, spec_.hidden});
  picking_->ids = executor_.scratch("picked tokens", {n}, DType::kI32);
  picking_->values = executor_.scratch("their logits", {n});
  picking_->targets = executor_.host_table("places of picked tokens", DType::kI32, {n});
  if (!dev::Event::available(*device)) return;
  const std::uint64_t bytes = picking_->ids.end() + picking_->values.end();
  for (DecoderPicking::Slot& slot : picking_->slots) {
    slot.room = dev::Landing(*device, bytes);
    slot.done = std::make_unique<dev::Event>(device);
  }
}

// The first op of all: rows of the step before give tokens to this one. All rows that there can be, so that a recorded
// step serves whatever the step before had.
void Decoder::follow_picks() {
  if (!executor_.planning() && !picking_->follows) return executor_.seek(executor_.cursor() + 1);
  dev::advance(executor_, {"pick.advance"}, picking_->ids, picking_->targets);
}

// Planned behind the ops that give logits, on every device, so that all have the same ops; a step runs one of the two.
void Decoder::run_picks() {
  if (executor_.planning()) {
    picking_->ops = executor_.cursor();
  } else {
    executor_.seek(picking_->ops);
  }
  const std::int64_t count = std::min<std::int64_t>(executor_.counts().rows, limits_.sequences);
  const dev::Tensor rows = picking_->rows.rows(0, count);
  dev::gather_rows(executor_, {"pick.rows"}, x_.rows(0, executor_.counts().tokens), 0, rows);
  dev::norm(executor_, {"pick.norm"}, rows, final_norm_, rows);
  dev::head_argmax(executor_, {"pick"}, rows, head_, picking_->ids.rows(0, count), picking_->values.rows(0, count));
}

// Bringing them to the device waits for the step before, so it is only done when they change.
void Decoder::set_targets(std::span<const std::int32_t> targets) {
  std::vector<std::int32_t>& set = picking_->targets_set;
  std::vector<std::int32_t> wanted(targets.begin(), targets.end());
  wanted.resize(limits_.sequences, -1);
  if (wanted == set) return;
  set = std::move(wanted);
  const auto bytes = std::as_bytes(std::span(set));
  picking_->targets.storage->set_host({bytes.begin(), bytes.end()});
}

void Decoder::begin_pick(const sched::Step& step, std::span<const std::int32_t> targets) {
  DecoderPicking::Slot& slot = picking_->slots[picking_->next];
  const dev::Device& device = executor_.chosen();
  if (picking_->under_way == picking_->slots.size() || !device.stream()) {
    throw Error(ErrorCode::kInternal, "more steps under way than there can be");
  }
  executor_.begin_step(step, true, targets.empty() ? kPicks : kFollows);
  picking_->follows = !targets.empty();
  if (!targets.empty()) set_targets(targets);
  executor_.issue([this] {
    run_layers();
    run_picks();
  });
  if (!targets.empty()) executor_.tokens_changed();
  picking_->follows = false;
  executor_.leave_step();
  slot.rows = step.rows();
  std::uint64_t staged = 0;
  const std::span<std::byte> bytes = slot.room.bytes();
  const std::uint64_t ids = picking_->ids.rows(0, slot.rows).end(), values = picking_->values.rows(0, slot.rows).end();
  // Logits come first: they are read where they are. The other bytes are no token: what doesn't arrive must not pass
  // for one.
  const std::span<std::byte> tokens = bytes.subspan(picking_->values.end(), ids);
  std::memset(tokens.data(), 0xff, ids);
  executor_.chosen().download_async(picking_->ids.storage->read(0, staged), 0, tokens);
  executor_.chosen().download_async(picking_->values.storage->read(0, staged), 0, bytes.first(values));
  slot.done->record();
  picking_->next = 1 - picking_->next;
  ++picking_->under_way;
}

std::vector<engine::Pick> Decoder::end_pick() {
  if (picking_->under_way == 0) throw Error(ErrorCode::kInternal, "no step is under way");
  DecoderPicking::Slot& slot = picking_->slots[picking_->under_way == 1 ? 1 - picking_->next : picking_->next];
  slot.done->wait();
  --picking_->under_way;
  const std::span<const std::byte> bytes = slot.room.bytes();
  const std::size_t element = dtype_info(picking_->values.type).block_bytes;
  std::vector<double> logits;
  append_values(bytes.first(slot.rows * element), picking_->values.type, logits);
  const std::byte* tokens = bytes.data() + picking_->values.end();
  std::vector<engine::Pick> picks(slot.rows);
  for (std::uint32_t r = 0; r < slot.rows; ++r) {
    std::int32_t id = 0;
    std::memcpy(&id, tokens + r * sizeof(id), sizeof(id));
    if (id < 0 || static_cast<std::uint32_t>(id) >= spec_.vocab_size) {
      throw Error(ErrorCode::kDevice, "a picked token is outside the vocabulary", executor_.chosen().name());
    }
    picks[r] = {id, logits[r]};
  }
  return picks;
}

void Decoder::abandon_picks() noexcept {
  executor_.abandon_step();
  picking_->under_way = 0;
  picking_->follows = false;
  picking_->targets_set.clear();
}

}  // namespace backplane::models
