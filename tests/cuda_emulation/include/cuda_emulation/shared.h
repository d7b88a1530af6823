// Shared memory: each object is a heap block of its own, filled with NaN patterns when the block first reaches it, so
// that AddressSanitizer sees an overrun and every test sees a read before the write.
#pragma once

#include <cstddef>

namespace cuda_emulation {

/// The running block's object for a declaration, which `site` tells apart from all others.
void* shared_object(const void* site, std::size_t bytes, std::size_t alignment);

/// The running block's dynamic shared memory, as large as the launch said; null for none.
void* dynamic_shared();

/// One for each declaration and each instance of the template around it, as the type of a lambda is.
template <class T, class Site>
T& shared_variable(Site) {
  static constexpr char site = 0;
  return *static_cast<T*>(shared_object(&site, sizeof(T), alignof(T)));
}

}  // namespace cuda_emulation

#define CUDA_EMULATION_SHARED(T, name, ...)  \
  using name##_shared_type_ = T __VA_ARGS__; \
  name##_shared_type_& name = ::cuda_emulation::shared_variable<name##_shared_type_>([] {})
