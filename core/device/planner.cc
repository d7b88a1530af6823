#include "core/device/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "core/base/error.h"
#include "core/base/log.h"

namespace backplane::device {

void Planner::run() {
  cast_workspace_.resize(executor_.devices_.size());
  if (executor_.kv_) decide_kv_ownership();
  std::vector<Site>& sites = executor_.sites_;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (sites[i].skipped) continue;
    if (sites[i].fused) {
      decide_fused(i);
    } else {
      decide(sites[i]);
    }
  }
  report();
  realize_weights();
  allocate_memory();
  prepare_ops();
  prepare_captures();
}

void Planner::decide_kv_ownership() {
  KvPool& kv = *executor_.kv_;
  std::set<Slot> homes;
  for (std::uint32_t layer = 0; layer < kv.spec().layers.size(); ++layer) homes.insert(kv.home(layer));
  for (const Slot slot : homes) {
    if (!kv.implements_own(slot)) continue;
    std::string why = why_no_own_kv(slot);
    if (why.empty()) {
      kv.create_owned(slot);
    } else {
      no_own_kv_.emplace(slot, std::move(why));
    }
  }
  kv.create_canonical();
}

// The layout belongs to the plugin only if it can do everything that touches it.
std::string Planner::why_no_own_kv(Slot slot) {
  const DType type = executor_.kv_->spec().type;
  if (!executor_.devices_[slot]->takes_kv_type(type)) return fmt::format("none in {}", dtype_name(type));
  for (const Site& site : executor_.sites_) {
    if (site.kv.empty() || site.fused || site.home != slot) continue;
    const auto& allow = executor_.options_.allow;
    if (allow && !allow(site.code)) return fmt::format("{} is turned off by an option", op_name(site.code));
    const Support answer = ask(site, slot, site.features);
    if (!answer.yes) return answer.reason;
    owned_kv_answers_.emplace(&site, answer);
  }
  return {};
}

Support Planner::ask(const Site& site, Slot slot, std::uint64_t features) {
  // On the strength of this answer the plugin got the layout: it is not asked again.
  const auto known = owned_kv_answers_.find(&site);
  if (known != owned_kv_answers_.end() && slot == site.home && features == site.features) return known->second;
  bp_op_query query{};
  query.size = sizeof(query);
  query.code = site.code;
  query.layer = site.layer;
  query.smallest = site.smallest.get();
  query.largest = site.largest.get();
  query.features = features;
  query.name = site.name.c_str();
  const Support support = executor_.devices_[slot]->supports(query);
  return support.yes ? ask_casts(site, slot, support) : support;
}

Support Planner::ask_casts(const Site& site, Slot slot, Support answer) {
  const auto wanted = static_cast<DType>(answer.answer.activation_type);
  if (wanted == DType::kNone) return answer;
  for (const Site::Activation& activation : site.activations) {
    const Tensor& t = activation.largest;
    if (t.type == wanted) continue;
    const Tensor stand_in = like(t, wanted);
    Support cast{true, {}, {}};
    if (activation.read) cast = ask_cast(slot, t, stand_in);
    if (activation.written && cast.yes) cast = ask_cast(slot, stand_in, t);
    if (cast.yes) continue;
    answer.yes = false;
    answer.reason =
        fmt::format("takes activations in {} only, and can't cast them: {}", dtype_name(wanted), cast.reason);
    return answer;
  }
  return answer;
}

Support Planner::ask_cast(Slot slot, const Tensor& from, const Tensor& to) {
  const auto& allow = executor_.options_.allow;
  const Slot last = executor_.devices_.size() - 1;
  if ((slot != last || last == 0) && allow && !allow(BP_OP_CAST)) return {false, "CAST is turned off by an option", {}};
  bp_unary_args args{};
  args.size = sizeof(args);
  args.x = from.abi(nullptr);
  args.out = to.abi(nullptr);
  bp_unary_args least = args;
  least.x.shape[0] = least.out.shape[0] = 1;
  bp_op_query query{};
  query.size = sizeof(query);
  query.code = BP_OP_CAST;
  query.layer = kNoLayer;
  query.smallest = &least;
  query.largest = &args;
  query.features = from.row_contiguous() && to.row_contiguous() ? 0 : BP_FEATURE_STRIDED;
  query.name = "activation cast";
  Support support = executor_.devices_[slot]->supports(query);
  if (support.yes) {
    cast_workspace_[slot] = std::max(cast_workspace_[slot], support.answer.workspace_bytes);
    if ((support.answer.flags & BP_SUPPORT_CAPTURE_SAFE) == 0) casts_capturable_ = false;
  }
  return support;
}

bool Planner::try_forms(Site& site, Slot slot, std::uint64_t features) {
  std::vector<std::vector<WeightForm>> forms;
  std::size_t most = 1;
  for (const Site::MatrixUse& use : site.matrices) {
    forms.push_back(use.weight->forms(slot, use.use));
    if (forms.back().empty()) {
      site.reason = fmt::format("takes no form of {}", use.weight->name());
      return false;
    }
    most = std::max(most, forms.back().size());
  }
  std::string first_reason;
  for (std::size_t k = 0; k < most; ++k) {
    std::uint64_t needed = features;
    for (std::size_t m = 0; m < site.matrices.size(); ++m) {
      const WeightForm& form = forms[m][std::min(k, forms[m].size() - 1)];
      *site.matrices[m].smallest = *site.matrices[m].largest = site.matrices[m].weight->describe(form);
      if (form.transposed) needed |= BP_FEATURE_TRANSPOSED;
    }
    Support support = ask(site, slot, needed);
    if (!support.yes) {
      if (first_reason.empty()) first_reason = support.reason;
      continue;
    }
    for (std::size_t m = 0; m < site.matrices.size(); ++m) {
      const WeightForm& form = forms[m][std::min(k, forms[m].size() - 1)];
      site.matrices[m].form = site.matrices[m].weight->choose(slot, form);
    }
    const auto activation = static_cast<DType>(support.answer.activation_type);
    site.activation = activation == executor_.activation_type() ? DType::kNone : activation;
    site.support = support.answer;
    site.features = needed;
    site.slot = slot;
    site.native = slot == site.home;
    return true;
  }
  site.reason = first_reason;
  return false;
}

bool Planner::try_slot(Site& site, Slot slot) {
  if (slot == site.home && executor_.options_.allow && !executor_.options_.allow(site.code)) {
    site.reason = "turned off by an option";
    return false;
  }
  std::uint64_t features = site.features;
  if (!site.kv.empty()) {
    KvPool& kv = *executor_.kv_;
    const std::uint32_t layer = site.kv.front().layer;
    if (kv.owned(layer) && slot != site.home) {
      site.reason = "the KV cache is in the chosen device's own layout";
      return false;
    }
    if (!kv.owned(layer) && !kv.reachable(layer, slot)) {
      site.reason = "the device doesn't own the KV layout and can't reach the host's";
      return false;
    }
    if (!kv.owned(layer)) features |= BP_FEATURE_KV_CANONICAL;
    set_pages(site);
  }
  if (try_forms(site, slot, features)) return true;
  // It refused pages of the host, and has none because of something else.
  const auto none = no_own_kv_.find(slot);
  if (!site.kv.empty() && none != no_own_kv_.end() && none->second != site.reason) {
    site.reason = fmt::format("{} (it has no KV cache of its own here: {})", site.reason, none->second);
  }
  return false;
}

void Planner::set_pages(Site& site) {
  const KvPool& kv = *executor_.kv_;
  for (const Site::KvUse& use : site.kv) {
    *use.kv = nullptr;
    *use.k_pages = kv.owned(use.layer) ? bp_tensor{} : kv.k_pages(use.layer).abi(nullptr);
    *use.v_pages = kv.owned(use.layer) ? bp_tensor{} : kv.v_pages(use.layer).abi(nullptr);
  }
}

void Planner::decide_fused(std::size_t index) {
  Site& site = executor_.sites_[index];
  if (!try_slot(site, site.home)) {
    for (const Site::MatrixUse& use : site.matrices) use.weight->drop_use(site.home, use.use);
    return;
  }
  for (std::size_t i = index + 1; i < site.after_parts; ++i) executor_.sites_[i].skipped = true;
}

void Planner::decide(Site& site) {
  if (try_slot(site, site.home)) return;
  for (const Site::MatrixUse& use : site.matrices) use.weight->drop_use(site.home, use.use);
  const std::string why = site.reason;
  const Slot last = executor_.devices_.size() - 1;
  const bool at_home = executor_.devices_[last] == executor_.devices_[site.home];
  if (at_home || !try_slot(site, last)) {
    throw Error(
        ErrorCode::kDevice,
        fmt::format("{} ({}) can't run: {}", op_name(site.code), site.name, at_home ? why : why + "; " + site.reason),
        executor_.devices_[last]->name(), "the model needs a feature that no device here has");
  }
  site.reason = why;
}

void Planner::report() const {
  std::set<std::string> ops;
  const Site* example = nullptr;
  for (const Site& site : executor_.sites_) {
    if (site.skipped || site.fused || site.native) continue;
    ops.insert(std::string(op_name(site.code)));
    if (!example) example = &site;
    log(LogLevel::kDebug, "plan", "{} {} runs on {}: {}", op_name(site.code), site.name,
        executor_.devices_[site.slot]->name(), site.reason);
  }
  if (!example || executor_.options_.policy == FallbackPolicy::kAllow) return;
  const std::string& chosen = executor_.devices_[example->home]->name();
  if (executor_.options_.policy == FallbackPolicy::kDeny) {
    throw Error(ErrorCode::kDevice,
                fmt::format("{} ({}) is not supported: {}", op_name(example->code), example->name, example->reason),
                chosen, "choose another device, or --fallback allow to run such ops on the reference");
  }
  log(LogLevel::kWarning, "plan", "{} lacks {}: they run on {} (reasons: --verbose; to silence: --fallback allow)",
      chosen, fmt::join(ops, ", "), executor_.devices_.back()->name());
}

namespace {

bool runs(const Site& site) { return !site.skipped && (!site.fused || site.native); }

}  // namespace

void Planner::realize_weights() {
  std::vector<std::tuple<Weight*, Slot, std::size_t>> wanted;
  std::set<std::tuple<Weight*, Slot, std::size_t>> seen;
  for (const Site& site : executor_.sites_) {
    if (!runs(site)) continue;
    for (const Site::MatrixUse& use : site.matrices) {
      const std::tuple one{use.weight.get(), site.slot, use.form};
      if (seen.insert(one).second) wanted.push_back(one);
    }
  }
  std::uint64_t done = 0;
  for (const auto& [weight, slot, form] : wanted) {
    executor_.weight_bytes_ += weight->realize(slot, form);
    if (executor_.options_.progress) executor_.options_.progress(++done, wanted.size());
  }
}

void Planner::prepare_ops() {
  for (Site& site : executor_.sites_) {
    if (!runs(site)) continue;
    bp_op_query query{};
    query.size = sizeof(query);
    query.code = site.code;
    query.layer = site.layer;
    query.smallest = site.smallest.get();
    query.largest = site.largest.get();
    query.features = site.features;
    query.name = site.name.c_str();
    site.prepared = executor_.devices_[site.slot]->prepare(query);
  }
}

namespace {

bool can_be_recorded(const Site& site) {
  return site.native && site.slot == 0 && (site.support.flags & BP_SUPPORT_CAPTURE_SAFE) != 0;
}

// Executor::optional: without parts.
bool is_optional(const Site& site, const std::vector<Site>& sites) {
  return site.fused && site.after_parts == static_cast<std::size_t>(&site - sites.data()) + 1;
}

}  // namespace

// A recorded step is one device's alone, and all of it is recorded or nothing.
bool Planner::capturable() const {
  if (!executor_.options_.capture || !can_capture(*executor_.devices_.front()) || !casts_capturable_) return false;
  const std::vector<Site>& sites = executor_.sites_;
  return std::all_of(sites.begin(), sites.end(), [&](const Site& site) {
    if (!runs(site) || site.code == BP_OP_ATTN_PREFILL) return true;  // no decode step has one
    if (is_optional(site, sites)) return true;                        // only steps of other variants have one
    return can_be_recorded(site);
  });
}

void Planner::prepare_captures() {
  if (!capturable()) return;
  std::set<std::shared_ptr<Storage>> constants;
  for (const Site& site : executor_.sites_) {
    if (runs(site)) constants.insert(site.constants.begin(), site.constants.end());
  }
  executor_.constants_.assign(constants.begin(), constants.end());
  executor_.captures_ = std::make_unique<Captures>(executor_.devices_.front());
  const std::vector<Site>& sites = executor_.sites_;
  executor_.records_variants_ = std::all_of(sites.begin(), sites.end(), [&](const Site& site) {
    return !runs(site) || !is_optional(site, sites) || can_be_recorded(site);
  });
}

// All that a step needs, so that it fails here if at all: workspaces, activations where ops run, room for casts.
void Planner::allocate_memory() {
  std::vector<std::uint64_t> workspace = cast_workspace_;
  std::vector<std::uint64_t> temporary;
  for (const Site& site : executor_.sites_) {
    if (!runs(site)) continue;
    workspace[site.slot] = std::max(workspace[site.slot], site.support.workspace_bytes);
    std::uint64_t none = 0;
    for (const auto& constant : site.constants) constant->read(site.slot, none);
    for (const auto& exact : site.exact) exact->allocate(site.slot);
    for (std::size_t i = 0; i < site.activations.size(); ++i) {
      const Tensor& t = site.activations[i].largest;
      t.storage->allocate(site.slot);
      if (site.activation == DType::kNone || site.activation == t.type) continue;
      temporary.resize(std::max(temporary.size(), i + 1));
      temporary[i] = std::max(temporary[i], like(t, site.activation).end());
    }
  }
  for (const std::uint64_t bytes : temporary) {
    executor_.temporaries_.push_back(
        std::make_shared<Storage>(executor_.devices_, std::max<std::uint64_t>(1, bytes), "activation casts"));
    executor_.scratch_bytes_ += bytes;
  }
  for (const Site& site : executor_.sites_) {
    if (!runs(site) || site.activation == DType::kNone) continue;
    for (std::size_t i = 0; i < site.activations.size(); ++i) {
      if (site.activations[i].largest.type != site.activation) executor_.temporaries_[i]->allocate(site.slot);
    }
  }
  for (Slot slot = 0; slot < workspace.size(); ++slot) {
    if (workspace[slot]) executor_.workspaces_[slot] = executor_.devices_[slot]->alloc(workspace[slot], "workspace");
    executor_.scratch_bytes_ += workspace[slot];
  }
}

}  // namespace backplane::device
