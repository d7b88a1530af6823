#include "backends/onednn/rope.h"

#include <cmath>
#include <string>

namespace backplane::onednn {

std::uint64_t Rotation::bytes(const bp_rope_args& args, std::int64_t tokens) {
  return Workspace::checked(static_cast<std::uint64_t>(tokens), std::uint64_t{args.n_dims} * sizeof(float));
}

Rotation::Rotation(const bp_rope_args& args, std::int64_t tokens, Workspace& workspace)
    : pos_(args.pos, "pos"),
      row_(args.row, "row"),
      inv_freq_(args.inv_freq, "inv_freq"),
      scale_(args.scale, "scale"),
      pairs_(args.n_dims / 2),
      interleaved_(args.interleaved != 0),
      table_(workspace.take<float>(static_cast<std::uint64_t>(tokens) * args.n_dims)) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (row_[t] < 0 || row_[t] >= args.inv_freq.shape[0]) {
      throw plugin::Failure(BP_INVALID, "row " + std::to_string(row_[t]) + " of token " + std::to_string(t) +
                                            " is outside tables of " + std::to_string(args.inv_freq.shape[0]));
    }
  }
}

void Rotation::prepare(std::int64_t t) const {
  if (pairs_ == 0) return;
  float *cosines = table_ + t * 2 * pairs_, *sines = cosines + pairs_;
  const double* frequencies = inv_freq_.at(row_[t]);
  const double scale = scale_[row_[t]];
  for (std::int64_t i = 0; i < pairs_; ++i) {
    const double angle = pos_[t] * frequencies[i];
    cosines[i] = static_cast<float>(std::cos(angle) * scale);
    sines[i] = static_cast<float>(std::sin(angle) * scale);
  }
}

void Rotation::turn(std::int64_t t, float* head) const {
  const float *cosines = table_ + t * 2 * pairs_, *sines = cosines + pairs_;
  // The pair i is (head[i * step], head[i * step + gap]).
  const std::int64_t step = interleaved_ ? 2 : 1, gap = interleaved_ ? 1 : pairs_;
  for (std::int64_t i = 0; i < pairs_; ++i) {
    const float a = head[i * step], b = head[i * step + gap];
    head[i * step] = a * cosines[i] - b * sines[i];
    head[i * step + gap] = a * sines[i] + b * cosines[i];
  }
}

std::uint64_t workspace_bytes(const bp_rope_args& args) {
  return Workspace::bytes_for({Rotation::bytes(args, args.x.shape[0])});
}

void run(const Call& call, const bp_rope_args& args) {
  const View<float> x(args.x, "x");
  Workspace workspace = call.workspace;
  const Rotation rotation(args, x.shape(0), workspace);
  for_rows(x.shape(0), x.shape(1) * x.shape(2), [&](std::int64_t t) {
    rotation.prepare(t);
    for (std::int64_t h = 0; h < x.shape(1); ++h) rotation.turn(t, x.at(t, h));
  });
}

}  // namespace backplane::onednn
