// Moves KV pages between loaded models, through their canonical form.
#pragma once

#include <cstdint>
#include <span>

#include "core/device/executor.h"

namespace backplane::models {

// Copies pages of a group, in all its layers, to the same page numbers of another executor that runs the same model
// with the same page size. Exact where both keep K and V in one type; otherwise rounded to the target's. Not while a
// step runs on either. Throws Error{kDevice}; the target's pages are then undefined.
void copy_kv_pages(device::Executor& from, device::Executor& to, std::uint32_t group,
                   std::span<const std::int32_t> pages);

}  // namespace backplane::models
