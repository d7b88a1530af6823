// oneDNN, as far as it is used here: products of matrices in float32, on the thread that asks. Built without oneDNN,
// there are none (primitive_absent.cc).
#pragma once

#include <compare>
#include <cstdint>
#include <memory>

namespace backplane::onednn {

// out[tokens,rows] = x[tokens,columns] w[columns,rows], or added to what `out` has. w and out are dense, rows of x lie
// `x_stride` floats apart.
struct GemmShape {
  std::int64_t tokens, rows, columns, x_stride;
  bool more;
  auto operator<=>(const GemmShape&) const = default;
};

class Primitive {
 public:
  // nullptr: the library can't do that, or there is none.
  static std::unique_ptr<Primitive> make(const GemmShape& shape);
  virtual ~Primitive() = default;
  // On any number of threads at once. Throws where the library fails.
  virtual void run(const float* x, const float* w, float* out) const = 0;
};

// "oneDNN 2.6.3", or "" without it.
const char* library_name();

}  // namespace backplane::onednn
