#include "tests/cuda_emulation/counters.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <functional>

#include "tests/cuda_emulation/runtime.h"
#include "tests/cuda_emulation/stack.h"

namespace cuda_emulation {

namespace {

constexpr std::size_t kMostOpen = 4096;  // of one instruction; beyond that, the oldest is counted as it is
constexpr std::uintptr_t kSector = 32, kBankWord = 4;
constexpr unsigned kBanks = 32;

// All counts by kernel, under a mutex of their own: blocks of several launches may end at once.
struct Book {
  std::mutex mutex;
  std::map<std::string, SiteTotals> kernels;
};
Book& book() {
  static Book* all = [] {
    const Unchecked unchecked;  // as in state()
    return new Book;
  }();
  return *all;
}

const char* name_of(Access access) {
  switch (access) {
    case Access::kGlobalLoad:
      return "global load";
    case Access::kGlobalStore:
      return "global store";
    case Access::kSharedLoad:
      return "shared load";
    case Access::kSharedStore:
      return "shared store";
  }
  return "";
}

std::size_t distinct(std::vector<std::uintptr_t>& values) {
  std::sort(values.begin(), values.end());
  return static_cast<std::size_t>(std::unique(values.begin(), values.end()) - values.begin());
}

AccessCounts global_cost(const Request& request, std::size_t bytes) {
  std::vector<std::uintptr_t> sectors, starts;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((request.lanes >> lane & 1) == 0) continue;
    const std::uintptr_t address = request.address[lane];
    starts.push_back(address);
    for (std::uintptr_t s = address / kSector; s <= (address + bytes - 1) / kSector; ++s) sectors.push_back(s);
  }
  const std::size_t asked = starts.size() * bytes, needed = distinct(starts) * bytes;
  return {1, asked, distinct(sectors), (needed + kSector - 1) / kSector};
}

// Lanes take turns when they want different words of one bank. Accesses of 8 and 16 bytes are served in two and four
// parts.
AccessCounts shared_cost(const Request& request, std::size_t bytes) {
  const unsigned part = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  AccessCounts result{1, 0, 0, 0};
  for (unsigned first = 0; first < 32; first += part) {
    std::vector<std::uintptr_t> words;
    for (unsigned lane = first; lane < first + part; ++lane) {
      if ((request.lanes >> lane & 1) == 0) continue;
      result.bytes += bytes;
      const std::uintptr_t address = request.address[lane];
      for (std::uintptr_t w = address / kBankWord; w <= (address + bytes - 1) / kBankWord; ++w) words.push_back(w);
    }
    if (words.empty()) continue;
    words.resize(distinct(words));
    std::uint64_t of_bank[kBanks] = {};
    for (const std::uintptr_t word : words) ++of_bank[word % kBanks];
    result.cost += *std::max_element(of_bank, of_bank + kBanks);
    ++result.minimum;
  }
  return result;
}

bool is_global(Access access) { return access == Access::kGlobalLoad || access == Access::kGlobalStore; }

AccessCounts& counts_of(KernelCounts& kernel, Access access) {
  switch (access) {
    case Access::kGlobalLoad:
      return kernel.global_loads;
    case Access::kGlobalStore:
      return kernel.global_stores;
    case Access::kSharedLoad:
      return kernel.shared_loads;
    default:
      return kernel.shared_stores;
  }
}

KernelCounts summary(const SiteTotals& totals) {
  KernelCounts result;
  for (const auto& [key, total] : totals) {
    counts_of(result, key.access) += total.counts;
    result.sites.push_back({total.where.file_name(), total.where.line(), name_of(key.access),
                            static_cast<unsigned>(key.bytes), total.counts});
  }
  std::sort(result.sites.begin(), result.sites.end(), [](const SiteCounts& a, const SiteCounts& b) {
    const auto waste_a = a.counts.cost - a.counts.minimum, waste_b = b.counts.cost - b.counts.minimum;
    return waste_a != waste_b ? waste_a > waste_b : a.line < b.line;
  });
  return result;
}

std::string line(const char* label, const AccessCounts& counts, const char* unit) {
  if (counts.requests == 0) return {};
  char text[256];
  std::snprintf(text, sizeof text, "  %-13s %llu requests, %llu bytes, %llu %s, at best %llu (%.2f)\n", label,
                static_cast<unsigned long long>(counts.requests), static_cast<unsigned long long>(counts.bytes),
                static_cast<unsigned long long>(counts.cost), unit, static_cast<unsigned long long>(counts.minimum),
                static_cast<double>(counts.cost) / static_cast<double>(counts.minimum));
  return text;
}

}  // namespace

AccessCounts& AccessCounts::operator+=(const AccessCounts& other) {
  requests += other.requests;
  bytes += other.bytes;
  cost += other.cost;
  minimum += other.minimum;
  return *this;
}

AccessCounts cost_of(Access access, const Request& request, std::size_t bytes) {
  return is_global(access) ? global_cost(request, bytes) : shared_cost(request, bytes);
}

std::size_t SiteHash::operator()(const SiteKey& key) const {
  return std::hash<const void*>()(key.place) * 31 + static_cast<std::size_t>(key.access) * 7 + key.bytes;
}

void WarpCounters::note(SiteTotals& totals, unsigned lane, Access access, std::uintptr_t address, std::size_t bytes,
                        const std::source_location& where) {
  // A source_location is one pointer, a different one for each place.
  static_assert(sizeof(std::source_location) == sizeof(void*));
  const SiteKey key{std::bit_cast<const void*>(where), access, bytes};
  Open& open = open_[key];
  open.where = where;
  const std::uint64_t place = std::max(open.executed[lane]++, open.first) - open.first;
  if (place >= open.requests.size()) open.requests.resize(place + 1);
  Request& request = open.requests[place];
  request.lanes |= 1u << lane;
  request.address[lane] = address;
  while (!open.requests.empty() && (open.requests.front().lanes == lanes_ || open.requests.size() > kMostOpen)) {
    close_first(totals, key, open);
  }
}

void WarpCounters::close_first(SiteTotals& totals, const SiteKey& key, Open& open) {
  SiteTotal& total = totals[key];
  total.where = open.where;
  total.counts += cost_of(key.access, open.requests.front(), key.bytes);
  open.requests.pop_front();
  ++open.first;
}

void WarpCounters::finish(SiteTotals& totals) {
  for (auto& [key, open] : open_) {
    while (!open.requests.empty()) close_first(totals, key, open);
  }
}

void add_counts(const std::string& kernel, const SiteTotals& totals) {
  const std::lock_guard lock(book().mutex);
  SiteTotals& sum = book().kernels[kernel];
  for (const auto& [key, total] : totals) {
    sum[key].where = total.where;
    sum[key].counts += total.counts;
  }
}

void forget_counts() {
  const std::lock_guard lock(book().mutex);
  book().kernels.clear();
}

KernelCounts kernel_counts(const std::string& name) {
  const std::lock_guard lock(book().mutex);
  for (const auto& [kernel, totals] : book().kernels) {
    if (kernel.find(name) != std::string::npos) return summary(totals);
  }
  return {};
}

std::string count_report() {
  const std::lock_guard lock(book().mutex);
  std::string text;
  for (const auto& [kernel, totals] : book().kernels) {
    const KernelCounts counts = summary(totals);
    text += kernel + "\n" + line("global loads", counts.global_loads, "sectors") +
            line("global stores", counts.global_stores, "sectors") +
            line("shared loads", counts.shared_loads, "turns") + line("shared stores", counts.shared_stores, "turns");
    for (const SiteCounts& site : counts.sites) {
      if (site.counts.cost == site.counts.minimum) break;
      text += "    " + site.file + ":" + std::to_string(site.line) + ", " + std::to_string(site.width) + " bytes\n  " +
              line(site.access.c_str(), site.counts, site.access[0] == 'g' ? "sectors" : "turns");
    }
  }
  return text;
}

}  // namespace cuda_emulation
