#include "tools/check_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "tools/check_bound.h"

namespace backplane::tools::check {
namespace {

namespace dev = backplane::device;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double relative_error(const Array& got, const Array& want) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < want.data.size(); ++i) {
    const double g = got.data[i], w = want.data[i];
    if (std::isfinite(g) != std::isfinite(w)) return kInfinity;
    if (!std::isfinite(w)) continue;
    error += (g - w) * (g - w);
    size += w * w;
  }
  if (error == 0) return 0;
  return size == 0 ? kInfinity : std::sqrt(error / size);
}

double kl_divergence(std::span<const double> p, std::span<const double> q) {
  const auto log_sum = [](std::span<const double> x) {
    const double largest = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const double v : x) sum += std::exp(v - largest);
    return largest + std::log(sum);
  };
  const double p_sum = log_sum(p), q_sum = log_sum(q);
  double kl = 0;
  for (std::size_t i = 0; i < p.size(); ++i) kl += std::exp(p[i] - p_sum) * ((p[i] - p_sum) - (q[i] - q_sum));
  return std::max(0.0, kl);
}

conformance::Shape place_of(std::size_t index, const conformance::Shape& shape) {
  conformance::Shape place(shape.size());
  auto rest = static_cast<std::int64_t>(index);
  for (std::size_t d = shape.size(); d-- > 0; rest /= std::max<std::int64_t>(1, shape[d])) {
    place[d] = rest % std::max<std::int64_t>(1, shape[d]);
  }
  return place;
}

// Of every run of an op that both traces hold.
void accumulate(const StepTrace& trace, const StepTrace& exact, std::vector<OpResult>& ops, double OpResult::*error) {
  for (const auto& [key, values] : exact.ops) {
    const auto found = trace.ops.find(key);
    if (found == trace.ops.end()) continue;
    double& largest = ops[key.site].*error;
    largest = std::max(largest, relative_error(found->second.out, values.out));
  }
}

}  // namespace

PairModel::PairModel(models::LoadedModel& subject, models::LoadedModel& reference)
    : subject_(subject),
      reference_(reference),
      exact_kv_(zero_kv(reference.executor().kv())),
      source_kv_(exact_kv_),
      own_kv_(exact_kv_) {
  if (subject.page_size() != reference.page_size() ||
      subject.executor().sites().size() != reference.executor().sites().size()) {
    throw Error(ErrorCode::kInternal, "two loads of one model differ");
  }
  const dev::Devices& devices = subject.executor().devices();
  result_.logits.deterministic = std::all_of(devices.begin(), devices.end(), [](const auto& device) {
    return (device->caps().flags & BP_CAP_DETERMINISTIC) != 0;
  });
  for (const dev::Site& site : subject.executor().sites()) {
    OpResult& op = result_.ops.emplace_back();
    op.name = site.name;
    op.op = dev::op_name(site.code);
    if (site.layer != dev::kNoLayer) op.layer = site.layer;
    if (!site.native) continue;
    const auto a = conformance::arithmetic_of(site.support, subject.executor().activation_type());
    result_.logits.allowance = std::max(result_.logits.allowance, a.sum.unit / a.out.unit);
  }
  for (std::uint32_t i = 0; i < exact_kv_.size(); ++i) result_.kv.push_back({i, 0, 0});
}

std::int32_t PairModel::acquire_rope_row(std::uint64_t planned_length) {
  const std::int32_t row = reference_.acquire_rope_row(planned_length);
  if (subject_.acquire_rope_row(planned_length) != row) {
    throw Error(ErrorCode::kInternal, "two loads of one model have other rope rows");
  }
  return row;
}

void PairModel::release_rope_row(std::int32_t row) noexcept {
  reference_.release_rope_row(row);
  subject_.release_rope_row(row);
}

void PairModel::copy_pages(std::uint32_t, std::span<const std::int32_t>, std::span<const std::int32_t>) {
  throw Error(ErrorCode::kInternal, "pages were to be copied in a check");
}

engine::Logits PairModel::run(models::LoadedModel& model, const sched::Step& step, KvState& kv,
                              dev::Observer* observer) {
  struct Watch {
    dev::Executor& executor;
    ~Watch() { executor.watch(nullptr); }
  } watch{model.executor()};
  write_kv(model.executor().kv(), kv);
  model.executor().watch(observer);
  engine::Logits logits = model.forward(step);
  kv = read_kv(model.executor().kv());
  return logits;
}

engine::Logits PairModel::forward(const sched::Step& step) {
  dev::Executor &mine = subject_.executor(), &theirs = reference_.executor();
  StepTrace exact, source, isolated, own;
  KvState fed = source_kv_, unwatched_kv = own_kv_;
  OutputTap exact_tap(theirs, step, exact), own_tap(mine, step, own);
  SourceTap source_tap(theirs, mine, step, source);
  IsolatedTap isolated_tap(mine, step, source, isolated);
  const engine::Logits logits = run(reference_, step, exact_kv_, &exact_tap);
  const engine::Logits source_logits = run(reference_, step, source_kv_, &source_tap);
  run(subject_, step, fed, &isolated_tap);
  const engine::Logits watched = run(subject_, step, own_kv_, &own_tap);
  const engine::Logits unwatched = run(subject_, step, unwatched_kv, nullptr);
  own_kv_ = std::move(unwatched_kv);
  compare_isolated(step, source, isolated);
  accumulate(own, exact, result_.ops, &OpResult::accumulated);
  accumulate(source, exact, result_.ops, &OpResult::storage);
  for (KvResult& kv : result_.kv) {
    const auto error = [&](const KvState& state) {
      return std::max(relative_error(state[kv.layer].k, exact_kv_[kv.layer].k),
                      relative_error(state[kv.layer].v, exact_kv_[kv.layer].v));
    };
    kv.accumulated = std::max(kv.accumulated, error(own_kv_));
    kv.storage = std::max(kv.storage, error(source_kv_));
  }
  compare_logits(logits, source_logits, unwatched);
  for (std::size_t i = 0; i < watched.values.size(); ++i) {
    const double a = watched.values[i], b = unwatched.values[i];
    if (a != b && !(std::isnan(a) && std::isnan(b))) result_.logits.changed_by_watching = true;
  }
  ++result_.steps;
  result_.tokens += step.tokens();
  return logits;
}

void PairModel::compare_isolated(const sched::Step& step, const StepTrace& source, const StepTrace& isolated) {
  for (const auto& [key, values] : source.ops) {
    OpResult& op = result_.ops[key.site];
    if (std::string reason = why_not(key, isolated); !reason.empty()) {
      ++op.not_compared;
      op.reason = std::move(reason);
      if (op.shape.empty()) op.shape = values.out.shape;
      continue;
    }
    ++op.compared;
    compare_op(step, key, source, isolated);
  }
  for (const auto& [key, values] : isolated.ops) {
    if (source.ops.count(key)) continue;
    ++result_.ops[key.site].not_compared;
    result_.ops[key.site].reason = "fused: no such op on the other side";
  }
}

std::string PairModel::why_not(const OpKey& key, const StepTrace& isolated) const {
  const dev::Site &mine = subject_.executor().sites()[key.site], &theirs = reference_.executor().sites()[key.site];
  const std::string& my_name = subject_.executor().devices()[mine.slot]->name();
  if (isolated.ops.find(key) == isolated.ops.end()) return "part of a fused op";
  if (!mine.native) return fmt::format("fell back to {}: {}", my_name, mine.reason);
  if (my_name == reference_.executor().devices()[theirs.slot]->name()) return "both sides ran it on " + my_name;
  if (mine.activation != DType::kNone && mine.activation != subject_.executor().activation_type()) {
    return fmt::format("its activations are cast to {} before they can be replaced", dtype_name(mine.activation));
  }
  return {};
}

void PairModel::note(OpResult& result, const Array& got, const Array& want, const Array& bound) {
  const DType type = subject_.executor().activation_type();
  const conformance::Worst worst = conformance::worst_error(got, want, bound, conformance::precision_of(type));
  if (!result.place.empty() && worst.error <= result.error) return;
  result.error = worst.error;
  result.shape = want.shape;
  if (want.data.empty()) return;
  result.place = place_of(worst.index, want.shape);
  result.got = got.data[worst.index];
  result.want = want.data[worst.index];
  result.bound = bound.data[worst.index];
}

void PairModel::compare_op(const sched::Step& step, const OpKey& key, const StepTrace& source,
                           const StepTrace& isolated) {
  dev::Executor &mine = subject_.executor(), &theirs = reference_.executor();
  const dev::Site &site = mine.sites()[key.site], &reference_site = theirs.sites()[key.site];
  OpResult& result = result_.ops[key.site];
  if (site.code == BP_OP_KV_WRITE) {
    const KvValues &got = isolated.kv.at(site.layer), &want = source.kv.at(site.layer);
    note(result, got.k, want.k, Array(want.k.shape));
    note(result, got.v, want.v, Array(want.v.shape));
    return;
  }
  const OpValues& values = source.ops.at(key);
  const auto kv = source.kv.find(site.layer);
  OpRun op{theirs,
           reference_site,
           step,
           values,
           kv == source.kv.end() ? nullptr : &kv->second,
           site.code == BP_OP_LINEAR ? static_cast<DType>(site.support.quantized_activation_type) : DType::kNone};
  Array bound = bound_of(conformance::arithmetic_of(site.support, mine.activation_type()), op);
  if (theirs.activation_type() != DType::kF64) {  // the reference isn't exact either
    const auto a = conformance::arithmetic_of(reference_site.support, theirs.activation_type());
    const Array more =
        site.code == BP_OP_EMBED ? conformance::elementwise_bound(a, values.out, values.out) : bound_of(a, op);
    for (std::size_t i = 0; i < bound.data.size(); ++i) bound.data[i] += more.data[i];
  }
  Array want = values.out;
  if (is_copy(site.code)) conformance::round_to(mine.activation_type(), want);
  note(result, isolated.ops.at(key).out, want, bound);
}

void PairModel::compare_logits(const engine::Logits& exact, const engine::Logits& source, const engine::Logits& own) {
  LogitsResult& r = result_.logits;
  for (std::uint32_t i = 0; i < exact.rows(); ++i) {
    const auto want = exact.row(i), stored = source.row(i), got = own.row(i);
    bool finite = true;
    for (std::size_t c = 0; c < want.size(); ++c) {
      if (!std::isfinite(want[c]) || !std::isfinite(got[c])) {
        finite = false;
        r.other_class = r.other_class || std::isfinite(want[c]) != std::isfinite(got[c]);
        continue;
      }
      r.largest_difference = std::max(r.largest_difference, std::fabs(got[c] - want[c]));
      r.square_error += (got[c] - want[c]) * (got[c] - want[c]);
      r.storage_square_error += (stored[c] - want[c]) * (stored[c] - want[c]);
    }
    r.values += want.size();
    const std::uint64_t row = r.rows++;
    if (!finite) continue;
    const double kl = kl_divergence(want, got);
    r.kl_sum += kl;
    r.kl_largest = std::max(r.kl_largest, kl);
    const auto best = std::max_element(want.begin(), want.end()) - want.begin();
    const auto chosen = std::max_element(got.begin(), got.end()) - got.begin();
    if (best == chosen) continue;
    // Storing gives the spread of a difference of two logits; the device's own sums are allowed some of that again.
    const double sigma = std::sqrt(r.storage_square_error / static_cast<double>(r.values));
    const double margin = want[static_cast<std::size_t>(best)] - want[static_cast<std::size_t>(chosen)];
    r.flips.push_back({row, static_cast<TokenId>(best), static_cast<TokenId>(chosen), margin,
                       margin <= 16 * std::sqrt(2.0) * sigma * r.allowance});
  }
}

}  // namespace backplane::tools::check
