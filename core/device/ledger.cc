#include "core/device/ledger.h"

namespace backplane::device {

void Ledger::record(std::string_view op, std::string_view device, std::string_view shape, std::string_view reason,
                    std::uint64_t bytes_staged, double seconds) {
  auto it = entries_.find(std::tie(op, device, shape, reason));
  if (it == entries_.end()) {
    Fallback made{std::string(op), std::string(device), std::string(shape), std::string(reason), 0, 0, 0};
    auto key = std::make_tuple(made.op, made.device, made.shape, made.reason);
    it = entries_.emplace(std::move(key), std::move(made)).first;
  }
  ++it->second.count;
  it->second.bytes_staged += bytes_staged;
  it->second.seconds += seconds;
}

std::vector<Fallback> Ledger::entries() const {
  std::vector<Fallback> out;
  for (const auto& [key, entry] : entries_) out.push_back(entry);
  return out;
}

}  // namespace backplane::device
