// The canonical KV cache of one layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::cpu {

// K or V of one layer: [P,S,heads,dim] in any float type. Throws BP_INVALID when it isn't what the header says.
class Pages {
 public:
  Pages(const bp_tensor& tensor, const char* name, bool write) : tensor_(tensor) {
    if (plugin::is_empty(tensor)) return;
    try {
      plugin::require(plugin::has_contiguous_rows(tensor), "the elements of a head have gaps");
      data_ = const_cast<std::byte*>(plugin::data_of<const std::byte>(tensor));
      if (write) plugin::data_of<std::byte>(tensor);  // may it be written?
    } catch (const plugin::Failure& failure) {
      throw plugin::Failure(failure.status(), std::string(name) + ": " + failure.what());
    }
  }

  bp_type type() const { return tensor_.type; }
  std::int64_t count() const { return tensor_.shape[0]; }
  std::int64_t page_size() const { return tensor_.shape[1]; }
  std::int64_t heads() const { return tensor_.shape[2]; }
  std::int64_t dim() const { return tensor_.shape[3]; }
  std::byte* at(std::int64_t page, std::int64_t offset, std::int64_t head) const {
    return data_ + page * tensor_.stride[0] + offset * tensor_.stride[1] + head * tensor_.stride[2];
  }

 private:
  bp_tensor tensor_;
  std::byte* data_ = nullptr;
};

}  // namespace backplane::cpu
