// Turns the references of a DecoderSpec into weights and parameters of an executor.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "core/device/ops.h"
#include "core/formats/container.h"
#include "models/decoder_spec.h"

namespace backplane::models {

class WeightLoader {
 public:
  // The container must outlive every device that reads weights in place.
  WeightLoader(device::Executor& executor, std::shared_ptr<const formats::Container> container)
      : executor_(executor), container_(std::move(container)) {}

  // The same reference gives the same weight: a tied embedding is stored once.
  std::shared_ptr<device::Weight> matrix(const MatrixRef& ref);
  device::Tensor vector(const VectorRef& ref);  // absent ref: absent tensor
  device::Linear linear(const LinearRef& ref);  // absent weight: an empty Linear
  device::Norm norm(const NormRef& ref, const DecoderSpec& spec);

 private:
  using Key = std::tuple<std::string, std::uint64_t, std::uint64_t>;

  device::Executor& executor_;
  std::shared_ptr<const formats::Container> container_;
  std::map<Key, std::shared_ptr<device::Weight>> matrices_;
};

}  // namespace backplane::models
