#include "core/device/ledger.h"

#include <algorithm>

namespace backplane::device {

Fallback& Ledger::at(std::string_view op, std::string_view device, std::string_view shape, std::string_view reason) {
  auto it = entries_.find(std::tie(op, device, shape, reason));
  if (it == entries_.end()) {
    Fallback made{std::string(op), std::string(device), std::string(shape), std::string(reason), 0, 0, 0};
    auto key = std::make_tuple(made.op, made.device, made.shape, made.reason);
    it = entries_.emplace(std::move(key), std::move(made)).first;
  }
  return it->second;
}

void Ledger::record(std::string_view op, std::string_view device, std::string_view shape, std::string_view reason,
                    std::uint64_t bytes_staged, double seconds) {
  Fallback& entry = at(op, device, shape, reason);
  ++entry.count;
  entry.bytes_staged += bytes_staged;
  entry.seconds += seconds;
}

void Ledger::add_bytes(std::string_view op, std::string_view device, std::string_view shape, std::string_view reason,
                       std::uint64_t bytes_staged) {
  at(op, device, shape, reason).bytes_staged += bytes_staged;
}

std::vector<Fallback> Ledger::entries() const {
  std::vector<Fallback> out;
  for (const auto& [key, entry] : entries_) out.push_back(entry);
  std::stable_sort(out.begin(), out.end(), [](const Fallback& a, const Fallback& b) { return a.seconds > b.seconds; });
  return out;
}

}  // namespace backplane::device
