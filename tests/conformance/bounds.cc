#include "tests/conformance/bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/base/error.h"

namespace backplane::conformance {

Arithmetic arithmetic_of(const bp_support& support, DType activation) {
  Arithmetic a;
  a.out = precision_of(activation);
  auto sum = static_cast<DType>(support.accumulator_type);
  if (sum == DType::kNone) sum = activation == DType::kF64 ? DType::kF64 : DType::kF32;
  a.sum = precision_of(sum);
  a.flushes = (support.flags & BP_SUPPORT_FLUSHES_DENORMALS) != 0;
  return a;
}

Array linear_bound(const Arithmetic& a, const Array& y, const Product& p) {
  Array bound(y.shape);
  const std::int64_t columns = p.x.columns();
  const double terms = static_cast<double>(columns) + (p.bias ? 1 : 0);
  for (std::int64_t t = 0; t < y.rows(); ++t) {
    for (std::int64_t n = 0; n < y.columns(); ++n) {
      const double *x = p.x.row(t), *w = p.weight.row(n), *ties = p.ties ? p.ties->row(t) : nullptr;
      double magnitude = p.bias ? std::fabs(p.bias->data[static_cast<std::size_t>(n)]) : 0;
      double squares = 0, moved = 0;
      for (std::int64_t c = 0; c < columns; ++c) {
        const double product = std::fabs(x[c] * w[c]);
        magnitude += product;
        squares += product * product;
        if (ties) moved += ties[c] * std::fabs(w[c]);
      }
      double& b = bound.row(t)[n];
      b = a.out.unit * std::fabs(y.row(t)[n]) + 2 * std::sqrt(terms) * a.sum.unit * magnitude + moved + a.eta() +
          terms * a.tiny_sum();
      if (p.expanded) b += 4 * a.out.unit * std::sqrt(squares);
    }
  }
  return bound;
}

Array elementwise_bound(const Arithmetic& a, const Array& y, const Array& condition, const Array* underflow) {
  Array bound(y.shape);
  for (std::size_t i = 0; i < y.data.size(); ++i) {
    bound.data[i] = a.out.unit * std::fabs(y.data[i]) + 4 * a.sum.unit * std::fabs(condition.data[i]) + a.eta();
    if (underflow) bound.data[i] += underflow->data[i];
  }
  return bound;
}

double activate(std::uint32_t kind, double x) {
  switch (kind) {
    case BP_ACT_GELU_ERF:
      return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
    case BP_ACT_GELU_TANH:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case BP_ACT_SILU:
      return x / (1 + std::exp(-x));
    default:
      return std::max(x, 0.0);
  }
}

// 1 + erf and 1 + tanh cancel for negative x, so the error is one of x itself. exp(-x) multiplies the relative error of
// its argument by x.
double activation_condition(std::uint32_t kind, double x) {
  switch (kind) {
    case BP_ACT_GELU_ERF:
    case BP_ACT_GELU_TANH:
      return std::fabs(x);
    case BP_ACT_SILU:
      return std::fabs(activate(kind, x)) * (1 + std::min(std::fabs(x), 100.0));
    default:
      return 0;
  }
}

// The others' steps go down as far as subnormal numbers; exp(-x) overflows before its inverse is that small.
double activation_underflow(std::uint32_t kind, double x, const Arithmetic& a) {
  return 2 * a.tiny_sum() + (kind == BP_ACT_SILU ? std::fabs(x) * a.sum.normal : 0);
}

namespace {

struct Moments {
  double mean = 0, root = 1, magnitude = 0;  // magnitude: of the mean's terms
};

Moments moments(const double* x, std::int64_t n, const NormTerms& terms) {
  Moments m;
  const auto count = static_cast<double>(n);
  if (terms.kind == BP_NORM_LAYER) {
    for (std::int64_t i = 0; i < n; ++i) {
      m.mean += x[i] / count;
      m.magnitude += std::fabs(x[i]) / count;
    }
  }
  double squares = 0;
  for (std::int64_t i = 0; i < n; ++i) squares += (x[i] - m.mean) * (x[i] - m.mean);
  m.root = std::sqrt(squares / count + terms.eps);
  return m;
}

double weight_of(const NormTerms& terms, std::int64_t i) {
  return terms.weight ? terms.unit_offset + terms.weight->data[static_cast<std::size_t>(i)] : 1;
}

}  // namespace

Array norm_bound(const Arithmetic& a, const Array& y, const Array& x, const NormTerms& terms) {
  Array bound(y.shape);
  const std::int64_t n = x.columns();
  const double sums = std::sqrt(static_cast<double>(n));
  for (std::int64_t r = 0; r < x.rows(); ++r) {
    const Moments m = moments(x.row(r), n, terms);
    for (std::int64_t i = 0; i < n; ++i) {
      const double raw_weight = terms.weight ? std::fabs(terms.weight->data[static_cast<std::size_t>(i)]) : 1;
      const double w = std::max(std::fabs(weight_of(terms, i)), raw_weight + std::fabs(terms.unit_offset));
      const double value = std::fabs(x.row(r)[i]);
      const double scaled = std::fabs(x.row(r)[i] - m.mean) / m.root * w;
      const double centering = terms.kind == BP_NORM_LAYER ? ((4 + sums) * m.magnitude + 2 * value) * w / m.root : 0;
      const double added = terms.bias ? std::fabs(terms.bias->data[static_cast<std::size_t>(i)]) : 0;
      bound.row(r)[i] = a.out.unit * std::fabs(y.row(r)[i]) +
                        a.sum.unit * ((8 + sums) * scaled + centering + 2 * added) + a.eta() +
                        a.tiny_sum() * (1 + w / m.root);
    }
  }
  return bound;
}

Array norm_of_errors(const Array& errors, const Array& x, const NormTerms& terms) {
  Array out(x.shape);
  const std::int64_t n = x.columns();
  for (std::int64_t r = 0; r < x.rows(); ++r) {
    const Moments m = moments(x.row(r), n, terms);
    const double *e = errors.row(r), *in = x.row(r);
    double mean = 0, along = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      mean += e[i] / static_cast<double>(n);
      along += std::fabs(in[i] - m.mean) * e[i] / static_cast<double>(n) / (m.root * m.root);
    }
    if (terms.kind != BP_NORM_LAYER) mean = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      out.row(r)[i] = std::fabs(weight_of(terms, i)) / m.root * (e[i] + mean + std::fabs(in[i] - m.mean) * along);
    }
  }
  return out;
}

namespace {

// Calls visit(index of a, index of b, |cos|, |sin|) for each pair of a [T,h,D] array.
template <class Visit>
void for_each_pair(const Array& x, const RopeTerms& terms, Visit&& visit) {
  const std::int64_t heads = x.shape[1], dim = x.shape[2], pairs = terms.n_dims / 2;
  for (std::int64_t t = 0; t < x.shape[0]; ++t) {
    const auto table = static_cast<std::int64_t>(terms.row.data[static_cast<std::size_t>(t)]);
    const double scale = std::fabs(terms.scale.data[static_cast<std::size_t>(table)]);
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double angle = terms.pos.data[static_cast<std::size_t>(t)] * terms.inv_freq.row(table)[i];
      const double c = std::fabs(std::cos(angle)) * scale, s = std::fabs(std::sin(angle)) * scale;
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t base = (t * heads + h) * dim;
        const std::int64_t first = base + (terms.interleaved ? 2 * i : i);
        visit(static_cast<std::size_t>(first), static_cast<std::size_t>(terms.interleaved ? first + 1 : first + pairs),
              c, s, scale);
      }
    }
  }
}

}  // namespace

Array rope_bound(const Arithmetic& a, const Array& y, const Array& x, const RopeTerms& terms) {
  Array bound(y.shape);  // what isn't rotated stays as it is
  for_each_pair(x, terms, [&](std::size_t i, std::size_t j, double, double, double scale) {
    const double size = (std::fabs(x.data[i]) + std::fabs(x.data[j])) * scale;
    for (const std::size_t at : {i, j}) {
      bound.data[at] = a.out.unit * std::fabs(y.data[at]) + 4 * a.sum.unit * size + a.eta() + 2 * a.tiny_sum();
    }
  });
  return bound;
}

Array rope_of_errors(const Array& errors, const RopeTerms& terms) {
  Array out = errors;
  for_each_pair(errors, terms, [&](std::size_t i, std::size_t j, double c, double s, double) {
    out.data[i] = c * errors.data[i] + s * errors.data[j];
    out.data[j] = s * errors.data[i] + c * errors.data[j];
  });
  return out;
}

// What leaves the scores is scaled * sum |q||k| large at most (`reach`), what leaves the sums sum p|v| (`spread`). An
// error d of a score moves each weight by a factor of at most exp(2 d).
void attention_bound(const Arithmetic& a, const double* query, const double* errors, const AttentionTerms& terms,
                     const double* out, double* bound) {
  std::vector<double> scores;
  double reach = 0, carried = 0, largest = terms.sink.value_or(-std::numeric_limits<double>::max());
  for (const double* key : terms.keys) {
    double score = 0, magnitude = 0, error = 0;
    for (std::int64_t d = 0; d < terms.dim; ++d) {
      score += query[d] * key[d];
      magnitude += std::fabs(query[d] * key[d]);
      if (errors) error += errors[d] * std::fabs(key[d]);
    }
    score *= terms.scale;
    reach = std::max(reach, magnitude * std::fabs(terms.scale));
    carried = std::max(carried, error * std::fabs(terms.scale));
    if (terms.softcap > 0) score = terms.softcap * std::tanh(score / terms.softcap);
    scores.push_back(score);
    largest = std::max(largest, score);
  }
  double sum = terms.sink ? std::exp(*terms.sink - largest) : 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  const double sums = 2 * std::sqrt(static_cast<double>(scores.size())) + 8;
  const double factor = a.out.unit + (4 * reach + sums) * a.sum.unit + std::expm1(2 * carried);
  for (std::int64_t d = 0; d < terms.value_dim; ++d) {
    double spread = 0;
    for (std::size_t j = 0; j < scores.size(); ++j) spread += scores[j] / sum * std::fabs(terms.values[j][d]);
    bound[d] = a.out.unit * std::fabs(out[d]) + factor * spread + a.eta();
  }
}

Array rounding_to(DType type, const Array& x) {
  Array out(x.shape);
  if (type == DType::kNone) return out;
  constexpr std::int64_t kBlock = 32;
  const bool twice = type == DType::kI16, bytes = type == DType::kQ8_0 || type == DType::kI8 || twice;
  const DType scale = type == DType::kQ8_0 ? DType::kF16 : bytes ? DType::kF32 : type;
  const double relative = precision_of(scale).unit;
  for (std::int64_t r = 0; r < x.rows(); ++r) {
    for (std::int64_t begin = 0; begin < x.columns(); begin += kBlock) {
      const std::int64_t end = std::min(begin + kBlock, x.columns());
      double largest = 0;
      for (std::int64_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(x.row(r)[i]));
      const double half_step = bytes ? largest / (twice ? 254 * 254 : 254) : 0;
      for (std::int64_t i = begin; i < end; ++i) out.row(r)[i] = 1.01 * half_step + relative * std::fabs(x.row(r)[i]);
    }
  }
  return out;
}

Array linear_of_errors(const Array& errors, const Array& weight) {
  Array out({errors.rows(), weight.rows()});
  for (std::int64_t t = 0; t < out.rows(); ++t) {
    for (std::int64_t n = 0; n < out.columns(); ++n) {
      double& sum = out.row(t)[n];
      for (std::int64_t c = 0; c < errors.columns(); ++c) sum += errors.row(t)[c] * std::fabs(weight.row(n)[c]);
    }
  }
  return out;
}

Worst worst_error(const Array& actual, const Array& expected, const Array& bound, const Precision& out) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Worst worst;
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    const double got = actual.data[i], want = expected.data[i], allowed = bound.data[i];
    double error = 0;
    if (std::isnan(want) || std::isnan(got)) {
      error = std::isnan(want) == std::isnan(got) ? 0 : kInfinity;
    } else if (std::isinf(want) || std::isinf(got)) {
      const bool overflow = std::isinf(got) && std::fabs(want) + allowed >= out.largest && got * want > 0;
      error = got == want || overflow ? 0 : kInfinity;
    } else if (got != want) {
      error = allowed > 0 ? std::fabs(got - want) / allowed : kInfinity;
    }
    if (error > worst.error) worst = {error, i};
  }
  return worst;
}

}  // namespace backplane::conformance
