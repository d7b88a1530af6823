#include "core/device/ledger.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "core/device/executor.h"

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

void Ledger::took(std::uint32_t code, const std::string& device, const char* shape, const char* kernel,
                  std::uint32_t tokens, std::size_t& place) {
  const auto same = [&](const Taken& t) {
    return t.code == code && t.kernel == kernel && t.shape == shape && t.device == &device;
  };
  const bool is_there = place < kernels_.size() && same(kernels_[place]);
  auto it = is_there ? kernels_.begin() + static_cast<std::ptrdiff_t>(place)
                     : std::find_if(kernels_.begin(), kernels_.end(), same);
  if (it == kernels_.end()) {
    constexpr std::size_t kLongest = 63;  // a plugin's text is untrusted: bounded
    std::string name(kernel, ::strnlen(kernel, kLongest));
    std::replace_if(
        name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
    KernelUse use{std::string(op_name(code)), device, shape, std::move(name), tokens, tokens, 0};
    kernels_.push_back({code, &device, shape, kernel, std::move(use)});
    it = std::prev(kernels_.end());
  }
  place = static_cast<std::size_t>(it - kernels_.begin());
  ++it->use.count;
  it->use.fewest_tokens = std::min(it->use.fewest_tokens, tokens);
  it->use.most_tokens = std::max(it->use.most_tokens, tokens);
}

std::vector<KernelUse> Ledger::kernels() const {
  std::vector<KernelUse> out;
  for (const Taken& taken : kernels_) out.push_back(taken.use);
  std::stable_sort(out.begin(), out.end(), [](const KernelUse& a, const KernelUse& b) {
    return std::tie(a.op, a.shape, a.fewest_tokens) < std::tie(b.op, b.shape, b.fewest_tokens);
  });
  return out;
}

}  // namespace backplane::device
