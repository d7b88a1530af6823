// Copies of an op's arguments, down to the arrays of its step.
#include <memory>

#include "faulty.h"

namespace faulty {
namespace {

template <class T>
const T* keep(std::vector<T>& copy, const T* from, std::uint64_t count) {
  if (!from) return nullptr;
  copy.assign(from, from + count);
  return copy.data();
}

class HeldStep {
 public:
  const bp_step* hold(const bp_step* from) {
    if (!from) return nullptr;
    step_ = sdk::read_struct(from);
    const std::uint64_t t = step_.tokens, b = step_.sequences, g = step_.groups;
    step_.token = keep(token_, from->token, t);
    step_.pos = keep(pos_, from->pos, t);
    step_.q_start = keep(q_start_, from->q_start, b + 1);
    step_.kv_len = keep(kv_len_, from->kv_len, b);
    step_.page_table = keep(table_, from->page_table, g * b * step_.max_pages);
    step_.slot = keep(slot_, from->slot, g * t);
    step_.rope_row = keep(rope_row_, from->rope_row, t);
    return &step_;
  }

  // What the arrays on the device hold now.
  void refresh() {
    if (!step_.buffer) return;
    const auto at = [&]<class T>(const T*& pointer, std::uint64_t offset) {
      bp_tensor start{};
      start.buffer = step_.buffer;
      start.offset = offset;
      if (pointer) pointer = reinterpret_cast<const T*>(address_of(start));
    };
    at(step_.pos, step_.pos_offset);
    at(step_.q_start, step_.q_start_offset);
    at(step_.kv_len, step_.kv_len_offset);
    at(step_.page_table, step_.page_table_offset);
    at(step_.slot, step_.slot_offset);
  }

 private:
  bp_step step_{};
  std::vector<std::int32_t> token_, pos_, q_start_, kv_len_, table_, rope_row_;
  std::vector<std::int64_t> slot_;
};

struct HeldBase {
  HeldStep step;
  bp_norm_args norms[2], x_norm;
  bp_rope_args rope;
  bp_kv_write_args write;
  bp_glu_args glu;
  virtual ~HeldBase() = default;

  template <class T>
  const T* copy(const T* from, T& to) {
    if (!from) return nullptr;
    to = sdk::read_struct(from);
    return &to;
  }
  void deepen(bp_kv_write_args& a) { a.step = step.hold(a.step); }
  void deepen(bp_attention_args& a) { a.step = step.hold(a.step); }
  void deepen(bp_add_norm_args& a) { a.norm = copy(a.norm, norms[0]); }
  void deepen(bp_linear_args& a) { a.x_norm = copy(a.x_norm, x_norm); }
  void deepen(bp_gateup_args& a) {
    a.x_norm = copy(a.x_norm, x_norm);
    a.glu = copy(a.glu, glu);
  }
  void deepen(bp_qkv_args& a) {
    a.x_norm = copy(a.x_norm, x_norm);
    a.q_norm = copy(a.q_norm, norms[0]);
    a.k_norm = copy(a.k_norm, norms[1]);
    a.rope = copy(a.rope, rope);
    if ((a.write = copy(a.write, write))) deepen(write);
  }
  template <class Args>
  void deepen(Args&) {}
};

template <class Args>
struct Held : HeldBase {
  Args args;
};

}  // namespace

Work hold(Device& device, const bp_op& from, bool stale) {
  const bp_op op = sdk::read_struct(&from);
  return sdk::visit_args(op.code, op.args, [&](const auto& args) -> Work {
    auto held = std::make_shared<Held<std::decay_t<decltype(args)>>>();
    held->args = args;
    held->deepen(held->args);
    return [&device, op, held, stale] {
      if (!stale) held->step.refresh();
      bp_op now = op;
      now.args = &held->args;
      run_with_fault(device, now);
    };
  });
}

}  // namespace faulty
