// The host's services, exceptions turned into statuses, and structs that may grow. SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "backplane_plugin.h"

namespace backplane::plugin {

// What the entry point received. Set it there before anything else (BACKPLANE_SIMPLE_PLUGIN does). Hidden, because an
// inline variable of default visibility would be one and the same for all plugins of the process.
[[gnu::visibility("hidden")]] inline const bp_host* host = nullptr;

// ---- Failing

// Thrown inside a plugin; `guard` turns it into the status and hands the text to the host.
class Failure : public std::exception {
 public:
  Failure(bp_status status, std::string text) : status_(status), text_(std::move(text)) {}
  bp_status status() const noexcept { return status_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  bp_status status_;
  std::string text_;
};

// "No" to a question of `supports`, with the reason that the ledger will show.
[[noreturn]] inline void refuse(std::string reason) { throw Failure(BP_UNSUPPORTED, std::move(reason)); }

inline void require(bool condition, const char* text) {
  if (!condition) throw Failure(BP_INVALID, text);
}

// Keeps `text` as the reason of the call and returns `status`.
inline bp_status fail(bp_context context, bp_status status, const char* text) noexcept {
  return host ? host->fail(context, status, text) : status;
}

// Runs `function` (returning bp_status, or nothing for BP_OK) so that no exception crosses the C boundary.
template <class Function>
bp_status guard(bp_context context, Function&& function) noexcept {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Function>>) {
      std::forward<Function>(function)();
      return BP_OK;
    } else {
      return std::forward<Function>(function)();
    }
  } catch (const Failure& failure) {
    return fail(context, failure.status(), failure.what());
  } catch (const std::bad_alloc&) {
    return fail(context, BP_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception& error) {
    return fail(context, BP_INTERNAL, error.what());
  } catch (...) {
    return fail(context, BP_INTERNAL, "an exception of unknown type");
  }
}

// ---- Structs that grow

// Whether the side that allocated `object` knows `member`: struct_has(tables, &bp_tables::kv).
template <class Struct, class Member>
bool struct_has(const Struct* object, Member Struct::*member) noexcept {
  const auto* begin = reinterpret_cast<const char*>(object);
  const auto* end = reinterpret_cast<const char*>(&(object->*member)) + sizeof(Member);
  return object->size >= static_cast<std::uint64_t>(end - begin);
}

// A copy that can be read without a thought for sizes: members the other side doesn't know are zero.
template <class Struct>
Struct read_struct(const Struct* object) noexcept {
  Struct copy{};
  std::memcpy(&copy, object, std::min<std::uint64_t>(object->size, sizeof(Struct)));
  copy.size = sizeof(Struct);
  return copy;
}

// The same without a copy where the other side knows all members, which is the rule: for what every call looks at.
// `object` must outlive it.
template <class Struct>
class Whole {
 public:
  explicit Whole(const Struct* object)
      : at_(object->size == sizeof(Struct) ? object : &copy_.emplace(read_struct(object))) {}
  Whole(const Whole&) = delete;
  Whole& operator=(const Whole&) = delete;
  const Struct& operator*() const noexcept { return *at_; }
  const Struct* operator->() const noexcept { return at_; }

 private:
  std::optional<Struct> copy_;
  const Struct* at_;
};

// Writes what both sides know of a struct that the core allocated and this plugin fills; its `size` stays.
template <class Struct>
void fill_struct(Struct* core, const Struct& own) noexcept {
  constexpr std::uint64_t kSkip = sizeof(core->size);
  const std::uint64_t known = std::min<std::uint64_t>(core->size, sizeof(Struct));
  if (known > kSkip) {
    std::memcpy(reinterpret_cast<char*>(core) + kSkip, reinterpret_cast<const char*>(&own) + kSkip, known - kSkip);
  }
}

// The same for a function table, which is NULL where the core doesn't know it.
template <class Table>
void fill_table(Table* core, const Table& own) noexcept {
  if (core) fill_struct(core, own);
}

// Fills the table behind one member of bp_tables: fill_table(tables, &bp_tables::kv, my_kv_table).
template <class Table>
void fill_table(bp_tables* tables, Table* bp_tables::*member, const Table& own) noexcept {
  if (struct_has(tables, member)) fill_table(tables->*member, own);
}

// Copies text into a fixed array, cut to fit, always with its NUL.
template <std::size_t N>
void copy_text(char (&to)[N], std::string_view text) noexcept {
  const std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(to, text.data(), length);
  std::memset(to + length, 0, N - length);
}

// ---- The host's services

inline void log(int level, const char* component, const std::string& text) noexcept {
  if (host) host->log(host->self, level, component, text.c_str());
}

inline unsigned threads() noexcept { return host ? host->threads(host->self) : 1; }

// body(begin, end, worker) over disjoint ranges that cover [0, n), on the core's threads; returns when all have
// returned. An exception of a body is rethrown here, the first one if several. Never call it with a lock held.
template <class Body>
void parallel_for(std::uint64_t n, std::uint64_t grain, Body&& body) {
  if (n == 0) return;
  if (!host) return body(std::uint64_t{0}, n, 0U);
  struct Loop {
    std::remove_reference_t<Body>& body;
    std::mutex mutex;
    std::exception_ptr error;
  } loop{body, {}, nullptr};
  const bp_loop_body call = [](void* argument, std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
    auto& self = *static_cast<Loop*>(argument);
    try {
      self.body(begin, end, worker);
    } catch (...) {
      const std::lock_guard lock(self.mutex);
      if (!self.error) self.error = std::current_exception();
    }
  };
  host->parallel_for(host->self, n, grain, call, &loop);
  if (loop.error) std::rethrow_exception(loop.error);
}

// ---- Options of bp_open_params: "key=value,key=value"

// Calls option(key, value) for each; a piece without '=' or with an empty key is BP_INVALID.
template <class Option>
void for_each_option(const char* options, Option&& option) {
  std::string_view rest = options ? options : "";
  while (!rest.empty()) {
    const auto piece = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), piece.size() + 1));
    const auto equals = piece.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      throw Failure(BP_INVALID, "option '" + std::string(piece) + "' is not key=value");
    }
    option(piece.substr(0, equals), piece.substr(equals + 1));
  }
}

[[noreturn]] inline void unknown_option(std::string_view key) {
  throw Failure(BP_INVALID, "unknown option '" + std::string(key) + "'");
}

}  // namespace backplane::plugin
