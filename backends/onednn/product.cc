#include "backends/onednn/product.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace backplane::onednn {
namespace {

// A tile is the products of some panels with some tokens: small enough for the first-level cache.
constexpr std::int64_t kTokens = 256, kFewTokens = 16;
static_assert(kTokens % kGroup == 0);
constexpr std::int64_t kPanels = 2, kFewTokensPanels = 16;
constexpr std::int64_t kTileFloats = kPanels * kTokens * kLanes;
static_assert(kFewTokensPanels * kFewTokens * kLanes <= kTileFloats);
// Where the library computes it, a tile is larger, so that calls are few.
constexpr std::int64_t kLibraryTileFloats = FloatLibrary::kPanels * FloatLibrary::kTokens * kLanes;
static_assert(kFewTokensPanels * FloatLibrary::kFewTokens * kLanes <= kLibraryTileFloats);

// Multiplications that are worth waking another thread for.
constexpr std::int64_t kGrain = 1 << 17;

std::int64_t panel_grain(std::int64_t tokens, std::int64_t columns) {
  return 1 + kGrain / (1 + tokens * columns * kLanes);
}

// Whether products of so many tokens with such weights may be the library's, and are.
bool may_use_library(bool floats, std::int64_t tokens) {
  return floats && tokens >= FloatLibrary::kFewTokens && *library_name() != '\0';
}
FloatLibrary* library_for(const Device& device, const Matrix& weight, std::int64_t tokens) {
  FloatLibrary* library = device.library.get();
  if (library == nullptr || !weight.packed() || !may_use_library(weight.format() == nullptr, tokens)) return nullptr;
  return device.always_library || library->is_faster() ? library : nullptr;
}

// What a worker needs: two tiles, a panel pair as floats, canonical rows as panels, and what the library wants.
struct Worker {
  float* tile;
  float* second_tile;
  std::uint8_t* expanded;
  std::uint8_t* packed;
  float* library;
};

std::uint64_t canonical_bytes(std::int64_t columns) {
  return Workspace::checked(static_cast<std::uint64_t>(columns), kFewTokensPanels * kLanes * sizeof(float));
}

class Workers {
 public:
  Workers(Workspace& workspace, std::int64_t columns, bool library)
      : columns_(columns),
        tile_floats_(library ? kLibraryTileFloats : kTileFloats),
        library_floats_(library ? FloatLibrary::scratch_floats : 0),
        tiles_(workspace.take<float>(2 * static_cast<std::uint64_t>(tile_floats_) * plugin::threads())),
        expanded_(
            workspace.take<std::uint8_t>(static_cast<std::uint64_t>(expanded_bytes(columns)) * plugin::threads())),
        packed_(workspace.take<std::uint8_t>(canonical_bytes(columns) * plugin::threads())),
        library_(workspace.take<float>(static_cast<std::uint64_t>(library_floats_) * plugin::threads())) {}

  Worker at(unsigned worker) const {
    float* tile = tiles_ + 2 * tile_floats_ * worker;
    return {tile, tile + tile_floats_, expanded_ + expanded_bytes(columns_) * worker,
            packed_ + canonical_bytes(columns_) * worker, library_ + library_floats_ * worker};
  }

 private:
  std::int64_t columns_, tile_floats_, library_floats_;
  float* tiles_;
  std::uint8_t *expanded_, *packed_;
  float* library_;
};

// Some panels of a matrix and some tokens of x.
struct Piece {
  std::int64_t panel, panels, token, tokens;
  FloatLibrary* library = nullptr;  // whose it is to compute
};

void compute_tile(const Device& device, const Matrix& weight, const Activations& x, const QuantizedRows* quantized,
                  const Piece& piece, const Worker& worker, float* tile) {
  const Panels panels = weight.panels(piece.panel, piece.panels, worker.packed);
  if (quantized == nullptr) {
    const bp_type type = weight.packed() ? weight.type() : bp_type{BP_TYPE_F32};
    const float* rows = x.floats() + piece.token * x.stride();
    if (piece.library != nullptr &&
        piece.library->multiply(type, panels, rows, x.stride(), x.columns(), piece.tokens, worker.library, tile)) {
      return;
    }
    device.kernels->floats.multiply(type, panels, rows, x.stride(), x.columns(), piece.tokens, worker.expanded, tile);
    return;
  }
  QuantizedRows rows = *quantized;
  const std::int64_t at = rows.index(piece.token, 0);  // the first of a group
  rows.q += at * kBlock;
  rows.d += at;
  rows.sum += at;
  rows.start += at * weight.format()->scales;
  device.kernels->linear.multiply(*weight.format(), panels, rows, piece.tokens, worker.expanded, tile);
}

// Writes a tile to where it belongs.
void finish_tile(const Product& product, const Piece& piece, const float* tile) {
  const std::int64_t rows = product.weight->rows();
  for (std::int64_t p = 0; p < piece.panels; ++p) {
    const std::int64_t row = (piece.panel + p) * kLanes, lanes = std::min(kLanes, rows - row);
    for (std::int64_t t = 0; t < piece.tokens; ++t, tile += kLanes) {
      float* out = product.out + (piece.token + t) * product.out_stride + row;
      if (product.bias == nullptr && product.residual == nullptr) {
        if (lanes == kLanes) {  // a size that the compiler knows
          std::memcpy(out, tile, kLanes * sizeof(float));
        } else {
          std::memcpy(out, tile, static_cast<std::size_t>(lanes) * sizeof(float));
        }
        continue;
      }
      const float* residual =
          product.residual ? product.residual + (piece.token + t) * product.residual_stride + row : nullptr;
      for (std::int64_t i = 0; i < lanes; ++i) {
        const float sum = product.bias ? tile[i] + product.bias[row + i] : tile[i];
        out[i] = residual ? residual[i] + product.alpha * sum : sum;
      }
    }
  }
}

int terms_of(const Matrix& weight, const Activations& x) {
  const bool head = weight.format() != nullptr && is_head(weight.rows(), weight.columns());
  return head ? x.most_terms() : 1;
}

// Makes one token of each two rows.
void add_terms(Piece& piece, float* tile) {
  const std::int64_t pairs = piece.panels * piece.tokens / 2;
  for (std::int64_t i = 0; i < pairs; ++i) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      tile[i * kLanes + lane] = tile[2 * i * kLanes + lane] + tile[(2 * i + 1) * kLanes + lane];
    }
  }
  piece.token /= 2;
  piece.tokens /= 2;
}

// The largest result of each token so far, as TOPK orders them: of equal ones the lowest row, NaN after all else.
struct Best {
  float value;
  std::int32_t row;     // -1: none yet
  bool broken = false;  // one was NaN
};

bool is_better(float value, std::int32_t row, const Best& than) {
  if (than.row < 0) return true;
  if (std::isnan(value) != std::isnan(than.value)) return std::isnan(than.value);
  if (!std::isnan(value) && value != than.value) return value > than.value;
  return row < than.row;
}

void keep_best(const Product& product, const Piece& piece, const float* tile, Best* best) {
  for (std::int64_t p = 0; p < piece.panels; ++p) {
    const std::int64_t row = (piece.panel + p) * kLanes, lanes = std::min(kLanes, product.weight->rows() - row);
    for (std::int64_t t = piece.token; t < piece.token + piece.tokens; ++t, tile += kLanes) {
      float sums[kLanes];
      bool any = best[t].row < 0;  // almost always none is better, which is seen for all lanes at once
      for (std::int64_t i = 0; i < kLanes; ++i) {
        sums[i] = product.bias != nullptr && i < lanes ? tile[i] + product.bias[row + i] : tile[i];
        any |= !(sums[i] < best[t].value);
      }
      for (std::int64_t i = 0; any && i < lanes; ++i) {
        const auto at = static_cast<std::int32_t>(row + i);
        const bool broken = best[t].broken || std::isnan(sums[i]);
        if (is_better(sums[i], at, best[t])) best[t] = {sums[i], at};
        best[t].broken = broken;
      }
    }
  }
}

// Calls function(Piece) for panels [begin, end) of one matrix and tokens [token, tokens).
template <class Function>
void for_pieces(std::int64_t begin, std::int64_t end, std::int64_t token, std::int64_t tokens, Function&& function) {
  const std::int64_t most = tokens - token <= kFewTokens ? kFewTokensPanels : kPanels;
  for (std::int64_t panel = begin; panel < end; panel += most) {
    for (std::int64_t t = token; t < tokens; t += kTokens) {
      function(Piece{panel, std::min(most, end - panel), t, std::min(kTokens, tokens - t)});
    }
  }
}

// The same for all tokens, as much of it as its tiles fit for the library, where there is one.
template <class Function>
void for_pieces(FloatLibrary* library, std::int64_t begin, std::int64_t end, std::int64_t tokens, Function&& function) {
  const std::int64_t theirs = tokens - tokens % FloatLibrary::kFewTokens;
  while (library != nullptr && end - begin >= FloatLibrary::kFewPanels) {
    const std::int64_t panels = end - begin >= FloatLibrary::kPanels ? FloatLibrary::kPanels : FloatLibrary::kFewPanels;
    for (std::int64_t t = 0; t < theirs; t += FloatLibrary::kTokens) {
      function(Piece{begin, panels, t, std::min(FloatLibrary::kTokens, theirs - t), library});
    }
    for_pieces(begin, begin + panels, theirs, tokens, function);
    begin += panels;
  }
  for_pieces(begin, end, 0, tokens, function);
}

}  // namespace

std::uint64_t multiply_bytes(const bp_tensor& x, std::initializer_list<const bp_matrix*> weights) {
  const std::uint64_t threads = plugin::threads();
  const std::int64_t columns = x.shape[1];
  bool library = false;
  for (const bp_matrix* weight : weights)
    library |= may_use_library(format_of(weight->tensor.type) == nullptr, x.shape[0]);
  return Workspace::bytes_for({2 * (library ? kLibraryTileFloats : kTileFloats) * sizeof(float) * threads,
                               Workspace::checked(static_cast<std::uint64_t>(expanded_bytes(columns)), threads),
                               Workspace::checked(canonical_bytes(columns), threads),
                               library ? FloatLibrary::scratch_floats * sizeof(float) * threads : 0});
}

void multiply(const Device& device, Workspace workspace, Activations& x, std::span<const Product> products) {
  bool any_library = false;
  for (const Product& product : products) any_library |= library_for(device, *product.weight, x.tokens()) != nullptr;
  const Workers workers(workspace, x.columns(), any_library);
  for (std::size_t first = 0; first < products.size();) {
    const Format* format = products[first].weight->format();
    const int terms = terms_of(*products[first].weight, x);
    std::size_t last = first;
    std::int64_t panels = 0;
    for (; last < products.size() && products[last].weight->format() == format &&
           terms_of(*products[last].weight, x) == terms;
         ++last) {
      panels += products[last].weight->panel_count();
    }
    const QuantizedRows* quantized = format ? &x.quantized(*format, terms) : nullptr;
    plugin::parallel_for(
        panels, panel_grain(x.tokens(), x.columns()), [&](std::int64_t begin, std::int64_t end, unsigned number) {
          const Worker worker = workers.at(number);
          for (std::size_t i = first; i < last && end > 0; ++i) {
            const Product& product = products[i];
            const std::int64_t own = product.weight->panel_count();
            FloatLibrary* library = library_for(device, *product.weight, x.tokens());
            for_pieces(library, std::max<std::int64_t>(begin, 0), std::min(end, own), terms * x.tokens(),
                       [&](Piece piece) {
                         compute_tile(device, *product.weight, x, quantized, piece, worker, worker.tile);
                         if (terms == 2) add_terms(piece, worker.tile);
                         finish_tile(product, piece, worker.tile);
                       });
            begin -= own;
            end -= own;
          }
        });
    first = last;
  }
}

void multiply_gated(const Device& device, Workspace workspace, Activations& x, const Product& gate, const Product& up,
                    std::uint32_t kind) {
  const Format *format = gate.weight->format(), *up_format = up.weight->format();
  if (format != up_format) {  // two kinds of bytes of x don't fit into one loop
    const Product both[] = {gate, up};
    multiply(device, workspace, x, both);
    for_rows(x.tokens(), gate.weight->rows(), [&](std::int64_t t) {
      float* out = gate.out + t * gate.out_stride;
      device.kernels->rows.glu(kind, out, up.out + t * up.out_stride, gate.weight->rows(), out);
    });
    return;
  }
  FloatLibrary* library = library_for(device, *gate.weight, x.tokens());
  if (library_for(device, *up.weight, x.tokens()) == nullptr) library = nullptr;
  const Workers workers(workspace, x.columns(), library != nullptr);
  const QuantizedRows* quantized = format ? &x.quantized(*format, 1) : nullptr;
  const auto add_bias = [](const Product& product, const Piece& piece, float* tile) {
    if (product.bias == nullptr) return;
    for (std::int64_t p = 0; p < piece.panels; ++p) {
      const std::int64_t row = (piece.panel + p) * kLanes;
      const std::int64_t lanes = std::min(kLanes, product.weight->rows() - row);
      for (std::int64_t t = 0; t < piece.tokens; ++t, tile += kLanes) {
        for (std::int64_t i = 0; i < lanes; ++i) tile[i] += product.bias[row + i];
      }
    }
  };
  Product out = gate;
  out.bias = nullptr;
  plugin::parallel_for(gate.weight->panel_count(), panel_grain(2 * x.tokens(), x.columns()),
                       [&](std::int64_t begin, std::int64_t end, unsigned number) {
                         const Worker worker = workers.at(number);
                         for_pieces(library, begin, end, x.tokens(), [&](const Piece& piece) {
                           compute_tile(device, *gate.weight, x, quantized, piece, worker, worker.tile);
                           compute_tile(device, *up.weight, x, quantized, piece, worker, worker.second_tile);
                           add_bias(gate, piece, worker.tile);
                           add_bias(up, piece, worker.second_tile);
                           device.kernels->rows.glu(kind, worker.tile, worker.second_tile,
                                                    piece.panels * piece.tokens * kLanes, worker.tile);
                           finish_tile(out, piece, worker.tile);
                         });
                       });
}

std::uint64_t multiply_best_bytes(std::int64_t tokens) {
  return Workspace::bytes_for(
      {Workspace::checked(static_cast<std::uint64_t>(tokens), sizeof(Best) * plugin::threads())});
}

void multiply_best(const Device& device, Workspace workspace, Activations& x, const Product& product,
                   std::int32_t* rows, float* values) {
  const auto tokens = static_cast<std::size_t>(x.tokens());
  const std::span<Best> best(workspace.take<Best>(tokens * plugin::threads()), tokens * plugin::threads());
  std::fill(best.begin(), best.end(), Best{0, -1});
  FloatLibrary* library = library_for(device, *product.weight, x.tokens());
  const Workers workers(workspace, x.columns(), library != nullptr);
  const Format* format = product.weight->format();
  const int terms = terms_of(*product.weight, x);
  const QuantizedRows* quantized = format ? &x.quantized(*format, terms) : nullptr;
  plugin::parallel_for(product.weight->panel_count(), panel_grain(x.tokens(), x.columns()),
                       [&](std::int64_t begin, std::int64_t end, unsigned number) {
                         const Worker worker = workers.at(number);
                         for_pieces(library, begin, end, terms * x.tokens(), [&](Piece piece) {
                           compute_tile(device, *product.weight, x, quantized, piece, worker, worker.tile);
                           if (terms == 2) add_terms(piece, worker.tile);
                           keep_best(product, piece, worker.tile, best.data() + number * tokens);
                         });
                       });
  for (std::size_t t = 0; t < tokens; ++t) {
    Best chosen = best[t];
    for (std::size_t other = t + tokens; other < best.size(); other += tokens) {
      const bool broken = chosen.broken || best[other].broken;
      if (best[other].row >= 0 && is_better(best[other].value, best[other].row, chosen)) chosen = best[other];
      chosen.broken = broken;
    }
    rows[t] = chosen.row;
    values[t] = chosen.broken ? std::numeric_limits<float>::quiet_NaN() : chosen.value;
  }
}

}  // namespace backplane::onednn
