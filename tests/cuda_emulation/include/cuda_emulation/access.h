// Loads and stores that are counted. The lanes of a warp that execute the same call the same time over form one
// request, as they would on a GPU; counters.h tells what the requests cost.
#pragma once

#include <bit>
#include <cstddef>
#include <source_location>
#include <type_traits>

namespace cuda_emulation {

enum class Access : int { kGlobalLoad, kGlobalStore, kSharedLoad, kSharedStore };

/// Whether requests are counted at all; read by each access.
extern bool counting;

/// Adds one lane's part of a request. The place tells the instruction apart from others.
void note_access(Access access, const void* address, std::size_t bytes, std::source_location where);
/// The same for memory of either kind.
void note_load(const void* address, std::size_t bytes, std::source_location where);
void note_store(const void* address, std::size_t bytes, std::source_location where);

template <class T>
inline void note(Access access, const T* p, const std::source_location& where) {
  static_assert(std::is_trivially_destructible_v<T> && std::has_single_bit(sizeof(T)) && sizeof(T) <= 16,
                "one access moves 1, 2, 4, 8 or 16 bytes");
  if (counting) note_access(access, p, sizeof(T), where);
}

template <class T>
T ld_global(const T* p, std::source_location where = std::source_location::current()) {
  note(Access::kGlobalLoad, p, where);
  return *p;
}
template <class T>
void st_global(T* p, std::type_identity_t<T> value, std::source_location where = std::source_location::current()) {
  note(Access::kGlobalStore, p, where);
  *p = value;
}
template <class T>
T ld_shared(const T* p, std::source_location where = std::source_location::current()) {
  note(Access::kSharedLoad, p, where);
  return *p;
}
template <class T>
void st_shared(T* p, std::type_identity_t<T> value, std::source_location where = std::source_location::current()) {
  note(Access::kSharedStore, p, where);
  *p = value;
}

}  // namespace cuda_emulation

template <class T>
T __ldg(const T* p, std::source_location where = std::source_location::current()) {
  return cuda_emulation::ld_global(p, where);
}
template <class T>
T __ldcs(const T* p, std::source_location where = std::source_location::current()) {
  return cuda_emulation::ld_global(p, where);
}
template <class T>
T __ldcg(const T* p, std::source_location where = std::source_location::current()) {
  return cuda_emulation::ld_global(p, where);
}
template <class T>
void __stcs(T* p, std::type_identity_t<T> value, std::source_location where = std::source_location::current()) {
  cuda_emulation::st_global(p, value, where);
}
template <class T>
void __stcg(T* p, std::type_identity_t<T> value, std::source_location where = std::source_location::current()) {
  cuda_emulation::st_global(p, value, where);
}
