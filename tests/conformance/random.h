// Seeded inputs. The generator and what is drawn from it are the same on every machine, so that a seed replays.
#pragma once

#include <cstdint>
#include <string_view>

#include "tests/conformance/numbers.h"

namespace backplane::conformance {

// What the numbers of an input look like.
enum class Style {
  kNormal,    // around 0, variance 1
  kOutliers,  // some columns a hundred times larger, as models have them
  kEdges,     // signed zeros, the smallest numbers of the type, and large ones
  kSpecial    // infinities and NaN among normal numbers
};

class Random {
 public:
  Random(std::uint64_t seed, std::string_view name);

  std::uint64_t bits();
  double uniform();  // [0, 1)
  double normal();
  std::int64_t below(std::int64_t end);  // [0, end)

  // Numbers that `type` holds exactly.
  Array array(Shape shape, DType type, Style style = Style::kNormal, double scale = 1);
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[static_cast<std::size_t>(below(static_cast<std::int64_t>(i)))]);
    }
  }

 private:
  double edge(DType type);
  std::uint64_t state_;
};

// Rows of a weight in a file's own format: numbers rounded to a plain type, or random blocks with sensible scales.
std::vector<std::byte> random_weight(Random& random, DType type, std::int64_t rows, std::int64_t columns);

// x rounded as a device that declares this quantized_activation_type rounds it, and in `ties` how far each element
// would move if its tie were broken the other way. Throws Error for a type the suite doesn't know.
Array quantize_activations(const Array& x, DType type, Array& ties);

}  // namespace backplane::conformance
