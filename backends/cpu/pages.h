// The canonical KV cache of one layer, and the step descriptor that says who owns which page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backends/cpu/check.h"
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

// What KV_WRITE and attention both ask of kv, pages and group.
void check_cache(const Check& check, bp_kv kv, const bp_step* step, const bp_tensor& k_pages, const bp_tensor& v_pages,
                 std::uint32_t group);

// A copy of the step with all members that this header has.
bp_step step_of(const bp_step* step);

}  // namespace backplane::cpu
