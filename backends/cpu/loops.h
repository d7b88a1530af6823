// The loop of all ops that go row by row.
#pragma once

#include <cstdint>

#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::cpu {

// Elements that are worth waking another thread for.
constexpr std::int64_t kElementGrain = 4096;

// Calls body(row number) for all rows, on several threads where there is enough to do. Nothing for empty rows.
template <class Body>
void for_rows(std::int64_t rows, std::int64_t columns, Body body) {
  if (rows <= 0 || columns <= 0) return;
  plugin::parallel_for(rows, 1 + kElementGrain / columns, [&](std::int64_t begin, std::int64_t end, unsigned) {
    for (std::int64_t r = begin; r < end; ++r) body(r);
  });
}

}  // namespace backplane::cpu
