#include "backends/onednn/primitive.h"

#include <dnnl.hpp>
#include <string>

#include "plugins/sdk/backplane_plugin.hpp"

#if DNNL_CPU_RUNTIME == DNNL_RUNTIME_OMP
#include <omp.h>
#endif

namespace backplane::onednn {
namespace {

using Desc = dnnl::memory::desc;
constexpr auto kF32 = dnnl::memory::data_type::f32;

// The threads are ours, so that the library must have one only: OpenMP's setting belongs to the calling thread, which
// may not be ours and gets it back.
class OneThread {
#if DNNL_CPU_RUNTIME == DNNL_RUNTIME_OMP
 public:
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
#else
 public:
  OneThread() {}
  ~OneThread() {}
#endif
};

// What is linked now may have other threads than what was compiled with: those can't be held.
bool holds_its_threads() {
  const unsigned runtime = dnnl::version()->cpu_runtime;
  return runtime == DNNL_CPU_RUNTIME && (runtime == DNNL_RUNTIME_OMP || runtime == DNNL_RUNTIME_SEQ);
}

const dnnl::engine& engine() {
  static const dnnl::engine one(dnnl::engine::kind::cpu, 0);
  return one;
}

class Matmul : public Primitive {
 public:
  explicit Matmul(const GemmShape& shape)
      : x_({shape.tokens, shape.columns}, kF32, dnnl::memory::dims{shape.x_stride, 1}),
        w_({shape.columns, shape.rows}, kF32, dnnl::memory::format_tag::ab),
        out_({shape.tokens, shape.rows}, kF32, dnnl::memory::format_tag::ab) {
    dnnl::primitive_attr attributes;
    if (shape.more) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    // The default would share one room among threads.
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc made(engine(), x_, w_, out_, attributes);
#else
    const dnnl::matmul::primitive_desc made({x_, w_, out_}, attributes, engine());
#endif
    // None of these wants any; which one would must be known before it runs.
    if (made.scratchpad_desc().get_size() > 0) throw plugin::Failure(BP_UNSUPPORTED, "a matmul that wants room");
    matmul_ = dnnl::matmul(made);
  }

  void run(const float* x, const float* w, float* out) const override {
    const OneThread here;
    dnnl::stream stream(engine());
    const auto at = [](const Desc& desc, const float* data) {
      return dnnl::memory(desc, engine(), const_cast<float*>(data));
    };
    matmul_.execute(stream, {{DNNL_ARG_SRC, at(x_, x)}, {DNNL_ARG_WEIGHTS, at(w_, w)}, {DNNL_ARG_DST, at(out_, out)}});
    stream.wait();
  }

 private:
  Desc x_, w_, out_;
  dnnl::matmul matmul_;
};

}  // namespace

std::unique_ptr<Primitive> Primitive::make(const GemmShape& shape) try {
  if (!holds_its_threads()) return nullptr;
  const OneThread here;
  return std::make_unique<Matmul>(shape);
} catch (const std::exception&) {
  return nullptr;
}

const char* library_name() {
  static const std::string name = [] {
    const auto* version = dnnl::version();
    return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
           std::to_string(version->patch);
  }();
  return name.c_str();
}

}  // namespace backplane::onednn
