// Counts what the loads and stores of warps cost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <source_location>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/cuda_emulation/include/cuda_emulation/access.h"
#include "tests/cuda_emulation/include/cuda_emulation/control.h"

namespace cuda_emulation {

/// The lanes of a warp that executed an access the same time over, with their addresses.
struct Request {
  unsigned lanes = 0;
  std::uintptr_t address[32];
};

/// What one request costs: sectors of global memory, or turns of the shared memory's banks.
AccessCounts cost_of(Access access, const Request& request, std::size_t bytes);

/// Counts by instruction. A kernel's instructions are told apart by kind, place in the source and width.
struct SiteKey {
  const void* place;
  Access access;
  std::size_t bytes;
  bool operator==(const SiteKey&) const = default;
};
struct SiteHash {
  std::size_t operator()(const SiteKey& key) const;
};
struct SiteTotal {
  std::source_location where;
  AccessCounts counts;
};
using SiteTotals = std::unordered_map<SiteKey, SiteTotal, SiteHash>;

/// The requests of one warp of a running block.
class WarpCounters {
 public:
  explicit WarpCounters(unsigned lanes) : lanes_(lanes) {}
  void note(SiteTotals& totals, unsigned lane, Access access, std::uintptr_t address, std::size_t bytes,
            const std::source_location& where);
  /// Counts what not all lanes took part in.
  void finish(SiteTotals& totals);

 private:
  struct Open {
    std::source_location where;
    std::uint64_t first = 0;  ///< requests that are counted already
    std::uint64_t executed[32] = {};
    std::deque<Request> requests;
  };
  void close_first(SiteTotals& totals, const SiteKey& key, Open& open);

  unsigned lanes_;  ///< that exist
  std::unordered_map<SiteKey, Open, SiteHash> open_;
};

/// Adds what a block found to the counts of its kernel.
void add_counts(const std::string& kernel, const SiteTotals& totals);
void forget_counts();

}  // namespace cuda_emulation
