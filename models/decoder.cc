#include "models/decoder.h"

#include <algorithm>
#include <array>
#include <bit>

#include "core/base/error.h"
#include "core/kv/pages_needed.h"
#include "models/groups.h"

namespace backplane::models {
namespace {

namespace dev = backplane::device;

constexpr std::uint32_t kHeadRows = 32;  // logits are computed in blocks of so many rows: V is large

dev::StepLimits limits_of(const DecoderSpec& spec, const LoadOptions& options) {
  dev::StepLimits limits;
  limits.tokens = options.max_step_tokens;
  limits.sequences = options.max_sequences;
  limits.rows = options.max_step_tokens;
  limits.page_size = options.page_size;
  limits.groups = static_cast<std::uint32_t>(kv_groups(spec).size());
  limits.max_pages = (options.context + options.page_size - 1) / options.page_size;
  return limits;
}

// A piece at a time, because a vector can't grow without setting what it grows by.
void append_bf16(std::span<const std::byte> bytes, std::vector<double>& values) {
  constexpr std::size_t kPiece = 256;
  std::array<float, kPiece> piece;
  const auto* halves = reinterpret_cast<const std::uint16_t*>(bytes.data());
  const std::size_t count = bytes.size() / sizeof(*halves);
  for (std::size_t begin = 0; begin < count; begin += kPiece) {
    const std::size_t n = std::min(kPiece, count - begin);
    std::transform(halves + begin, halves + begin + n, piece.begin(),
                   [](std::uint16_t half) { return std::bit_cast<float>(std::uint32_t{half} << 16); });
    values.insert(values.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(n));
  }
}

}  // namespace

Decoder::Decoder(const ModelFile& file, const DevicePlan& devices, std::shared_ptr<dev::Device> reference,
                 const LoadOptions& options)
    : container_(file.shared_container()),
      spec_(file.spec()),
      homes_(devices.homes),
      executor_(devices.devices, std::move(reference), options.executor),
      limits_(limits_of(spec_, options)),
      kv_type_(options.kv_type) {
  shape_.architecture = spec_.architecture;
  shape_.vocab_size = spec_.vocab_size;
  shape_.max_context = options.context;
  shape_.layers = static_cast<std::uint32_t>(spec_.layers.size());
  shape_.groups = kv_groups(spec_);
  rope_ = std::make_unique<DecoderRope>(executor_, spec_, options.max_sequences + 1);
  // Whatever was read of the files so far, such as the vocabulary, need not stay in memory beside the weights.
  for (const MappedFile& mapped : container_->files()) mapped.release(mapped.bytes());
  WeightLoader loader(executor_, container_);
  embedding_ = loader.matrix(spec_.embedding);
  if (spec_.positions.present()) positions_ = loader.matrix(spec_.positions);
  load_layers(loader);
  final_norm_ = loader.norm(spec_.final_norm, spec_);
  head_ = loader.linear(spec_.head);
  create_scratch();
  create_kv(options);
  create_picking();
  executor_.plan(limits_, [this] {
    run_ops(nullptr);
    run_picks();
  });
  // A scale that turns the order around and a cap that makes equals of large logits would change the pick.
  can_pick_ = spec_.logits_scale > 0 && spec_.final_softcap == 0 && executor_.sites().front().native &&
              executor_.sites().back().native && executor_.can_leave_steps();
}

void Decoder::load_layers(WeightLoader& loader) {
  layers_.resize(spec_.layers.size());  // once: layers point into each other's specs
  for (std::uint32_t i = 0; i < layers_.size(); ++i) {
    const LayerSpec& from = spec_.layers[i];
    Layer& to = layers_[i];
    to.attention_norm = loader.norm(from.attention_norm, spec_);
    to.mlp_norm = loader.norm(from.mlp_norm, spec_);
    to.has_q_norm = from.q_norm.present();
    to.has_k_norm = from.k_norm.present();
    to.has_attention_post = from.attention_post_norm.present();
    to.has_mlp_post = from.mlp_post_norm.present();
    if (to.has_q_norm) to.q_norm = loader.norm(from.q_norm, spec_);
    if (to.has_k_norm) to.k_norm = loader.norm(from.k_norm, spec_);
    if (to.has_attention_post) to.attention_post_norm = loader.norm(from.attention_post_norm, spec_);
    if (to.has_mlp_post) to.mlp_post_norm = loader.norm(from.mlp_post_norm, spec_);
    to.fused_qkv = from.qkv.weight.present();
    to.has_gate = from.gate.weight.present();
    to.qkv = loader.linear(from.qkv);
    to.o = loader.linear(from.o);
    to.gate = loader.linear(from.gate);
    to.up = loader.linear(from.up);
    to.down = loader.linear(from.down);
    to.rope = from.rope >= 0 ? &rope_->table(static_cast<std::size_t>(from.rope)) : nullptr;
    to.attention.layer = i;
    to.attention.group = group_of(shape_.groups, from.window);
    to.attention.kv_heads = spec_.kv_heads;
    to.attention.window = from.window;
    to.attention.scale = from.attention_scale;
    to.attention.softcap = spec_.attention_softcap;
    if (to.fused_qkv) continue;
    to.split.q = loader.linear(from.q);
    to.split.k = loader.linear(from.k);
    to.split.v = loader.linear(from.v);
    to.split.q_norm = to.has_q_norm ? &to.q_norm : nullptr;
    to.split.k_norm = to.has_k_norm ? &to.k_norm : nullptr;
    to.split.rope = to.rope;
    to.split.attention = to.attention;
  }
}

void Decoder::create_scratch() {
  const std::int64_t t = limits_.tokens, h = spec_.hidden, d = spec_.head_dim, dv = spec_.value_dim, f = spec_.ffn;
  const std::int64_t nq = spec_.heads * d, nk = spec_.kv_heads * d, nv = spec_.kv_heads * dv;
  const auto any = [&](auto&& has) { return std::any_of(layers_.begin(), layers_.end(), has); };
  x_ = executor_.scratch("the residual stream", {t, h});
  h_ = executor_.scratch("normalized activations", {t, h});
  product_ = executor_.scratch("a layer's output", {t, h});
  if (any([](const Layer& l) { return l.fused_qkv; })) qkv_ = executor_.scratch("q, k and v", {t, nq + nk + nv});
  if (any([](const Layer& l) { return !l.fused_qkv; })) {
    q_ = executor_.scratch("queries", {t, nq});
    k_ = executor_.scratch("keys", {t, nk});
    v_ = executor_.scratch("values", {t, nv});
  }
  attended_ = executor_.scratch("attention's output", {t, spec_.heads * dv});
  gate_ = executor_.scratch("feed-forward activations", {t, f});
  if (any([](const Layer& l) { return l.has_gate; })) up_ = executor_.scratch("feed-forward activations", {t, f});
  const std::int64_t rows = std::min<std::int64_t>(kHeadRows, limits_.rows);
  head_rows_ = executor_.scratch("rows for the head", {rows, h});
  logits_ = executor_.scratch("logits", {rows, spec_.vocab_size});
  landed_ = dev::Landing(executor_.chosen(), logits_.end());
}

void Decoder::create_kv(const LoadOptions& options) {
  dev::KvSpec kv;
  kv.type = kv_type_;
  kv.page_size = limits_.page_size;
  for (const engine::KvGroup& group : shape_.groups) {
    const std::uint64_t pages = group_pages(group, options);
    kv.pages.push_back(pages);
    pages_.push_back(static_cast<std::uint32_t>(pages));
  }
  for (const Layer& layer : layers_) {
    kv.layers.push_back({spec_.kv_heads, spec_.head_dim, spec_.value_dim, layer.attention.group});
  }
  executor_.create_kv(std::move(kv), homes_);
}

engine::Logits Decoder::forward(const sched::Step& step) {
  engine::Logits logits;
  logits.vocab_size = spec_.vocab_size;
  logits.type = executor_.activation_type() == DType::kF64 ? DType::kF64 : DType::kF32;
  logits.values.reserve(std::size_t{step.rows()} * spec_.vocab_size);
  try {
    const std::uint32_t rows = step.rows();
    if (rows <= head_rows_.shape[0]) {
      executor_.begin_step(step, true);
      executor_.issue([this] { run_ops(nullptr); });
      if (rows > 0) read_logits(logits_.rows(0, rows), logits);
    } else {
      executor_.begin_step(step);
      run_ops(&logits);
    }
    executor_.end_step();
  } catch (...) {
    executor_.abandon_step();
    throw;
  }
  return logits;
}

void Decoder::run_ops(engine::Logits* logits) {
  run_layers();
  run_head(logits);
  if (!executor_.planning()) executor_.seek(executor_.sites().size());
}

void Decoder::take_rows() {
  const std::int64_t t = executor_.counts().tokens;
  rows_.x = x_.rows(0, t);
  rows_.h = h_.rows(0, t);
  if (q_.present()) {
    rows_.q = q_.rows(0, t).heads(spec_.heads);
    rows_.k = k_.rows(0, t).heads(spec_.kv_heads);
    rows_.v = v_.rows(0, t).heads(spec_.kv_heads);
  }
  rows_.attended = attended_.rows(0, t);
  rows_.attended_heads = rows_.attended.heads(spec_.heads);
  rows_.gate = gate_.rows(0, t);
  if (up_.present()) rows_.up = up_.rows(0, t);
  rows_.product = product_.rows(0, t);
}

void Decoder::run_layers() {
  take_rows();
  follow_picks();
  run_embedding();
  const std::uint32_t count = static_cast<std::uint32_t>(layers_.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    executor_.set_home(homes_[i]);
    run_attention(i);
    run_mlp(i);
  }
}

void Decoder::run_embedding() {
  const dev::Tensor &x = rows_.x, &h = rows_.h;
  dev::embed(executor_, {"embedding"}, dev::StepIds::kTokens, embedding_, x);
  if (spec_.embedding_scale != 1) dev::scale(executor_, {"embedding.scale"}, x, spec_.embedding_scale);
  if (positions_) {
    dev::embed(executor_, {"positions"}, dev::StepIds::kPositions, positions_, h);
    dev::add(executor_, {"positions.add"}, x, h);
  }
}

// The residual stream as the ops of a layer read it.
dev::Input Decoder::normed(const char* role, std::uint32_t index, const dev::Norm& norm) const {
  return {rows_.x, &norm, {role, index}, rows_.h};
}

// x += scale * (y W^T + bias), with a norm of the product in between where a model has one.
void Decoder::add_to_residual(const ResidualNames& names, const dev::Tensor& y, const dev::Linear& linear,
                              const dev::Norm* post_norm) {
  const dev::Tensor &x = rows_.x, &product = rows_.product;
  if (post_norm == nullptr) {
    return dev::linear_add(executor_, names.linear, names.add, y, linear, spec_.residual_scale, x, product);
  }
  dev::linear(executor_, names.linear, y, linear, product);
  dev::norm(executor_, names.norm, product, *post_norm, product);
  dev::add(executor_, names.add, x, product, spec_.residual_scale);
}

void Decoder::run_attention(std::uint32_t index) {
  const Layer& layer = layers_[index];
  const dev::Input in = normed("attention_norm", index, layer.attention_norm);
  if (layer.fused_qkv) {
    const std::int64_t nq = std::int64_t{spec_.heads} * spec_.head_dim,
                       nk = std::int64_t{spec_.kv_heads} * spec_.head_dim,
                       nv = std::int64_t{spec_.kv_heads} * spec_.value_dim;
    const dev::Tensor all = qkv_.rows(0, executor_.counts().tokens);
    const dev::Tensor q = all.columns(0, nq).heads(spec_.heads);
    const dev::Tensor k = all.columns(nq, nk).heads(spec_.kv_heads), v = all.columns(nq + nk, nv).heads(spec_.kv_heads);
    dev::linear_act(executor_, {"attention.qkv", index}, {}, in, layer.qkv, 0, all);
    if (layer.has_q_norm) dev::norm(executor_, {"attention.q_norm", index}, q, layer.q_norm, q);
    if (layer.has_k_norm) dev::norm(executor_, {"attention.k_norm", index}, k, layer.k_norm, k);
    if (layer.rope) dev::rope(executor_, {"attention.q_rope", index}, q, *layer.rope);
    if (layer.rope) dev::rope(executor_, {"attention.k_rope", index}, k, *layer.rope);
    dev::kv_write(executor_, {"attention.kv_write", index}, k, v, layer.attention);
    dev::attention(executor_, index, q, layer.attention, rows_.attended_heads);
  } else {
    dev::qkv(executor_, index, in, layer.split, rows_.q, rows_.k, rows_.v);
    dev::attention(executor_, index, rows_.q, layer.attention, rows_.attended_heads);
  }
  const ResidualNames names{{"attention.o", index}, {"attention_post_norm", index}, {"attention.add", index}};
  add_to_residual(names, rows_.attended, layer.o, layer.has_attention_post ? &layer.attention_post_norm : nullptr);
}

void Decoder::run_mlp(std::uint32_t index) {
  const Layer& layer = layers_[index];
  const dev::Input in = normed("mlp_norm", index, layer.mlp_norm);
  if (layer.has_gate) {
    dev::gateup_glu(executor_, index, in, layer.gate, layer.up, spec_.activation, rows_.gate, rows_.up);
  } else {
    dev::linear_act(executor_, {"mlp.up", index}, {"mlp.act", index}, in, layer.up, spec_.activation, rows_.gate);
  }
  const ResidualNames names{{"mlp.down", index}, {"mlp_post_norm", index}, {"mlp.add", index}};
  add_to_residual(names, rows_.gate, layer.down, layer.has_mlp_post ? &layer.mlp_post_norm : nullptr);
}

// Only for the rows that need logits, a block at a time. `logits` may be null for one block.
void Decoder::run_head(engine::Logits* logits) {
  const auto block = static_cast<std::uint32_t>(head_rows_.shape[0]);
  const std::size_t start = executor_.cursor();
  const std::uint32_t rows = executor_.counts().rows;
  for (std::uint32_t begin = 0; begin < rows; begin += block) {
    const std::uint32_t count = std::min(block, rows - begin);
    const dev::Tensor picked = head_rows_.rows(0, count), out = logits_.rows(0, count);
    executor_.seek(start);
    dev::gather_rows(executor_, {"head.rows"}, x_.rows(0, executor_.counts().tokens), begin, picked);
    dev::norm(executor_, {"final_norm"}, picked, final_norm_, picked);
    dev::linear(executor_, {"head"}, picked, head_, out);
    if (spec_.logits_scale != 1) dev::scale(executor_, {"head.scale"}, out, spec_.logits_scale);
    if (spec_.final_softcap > 0) dev::softcap(executor_, {"head.softcap"}, out, spec_.final_softcap);
    if (logits) read_logits(out, *logits);
    if (executor_.planning()) return;
  }
}

void Decoder::read_logits(const dev::Tensor& block, engine::Logits& logits) {
  const std::span<std::byte> bytes = landed_.bytes().first(block.end());
  block.storage->get_host(0, bytes);
  append_values(bytes, block.type, logits.values);
}

// Of the types that most devices have without a detour, since a step waits for it.
void Decoder::append_values(std::span<const std::byte> bytes, DType type, std::vector<double>& values) {
  const std::size_t count = bytes.size() / dtype_info(type).block_bytes;
  const auto append = [&]<class T>(const T* from) { values.insert(values.end(), from, from + count); };
  switch (type) {
    case DType::kF64:
      return append(reinterpret_cast<const double*>(bytes.data()));
    case DType::kF32:
      return append(reinterpret_cast<const float*>(bytes.data()));
    case DType::kBF16:
      return append_bf16(bytes, values);
    default:
      const std::vector<std::byte> singles = dev::convert(executor_.reference(), {bytes, type, 1, count}, DType::kF32);
      return append(reinterpret_cast<const float*>(singles.data()));
  }
}

}  // namespace backplane::models
