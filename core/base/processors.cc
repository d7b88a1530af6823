#include "core/base/processors.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <thread>

namespace backplane {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// The next line, which is taken off `text`.
std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

void keep_least(std::optional<unsigned>& least, std::optional<unsigned> other) {
  if (other) least = least ? std::min(*least, *other) : *other;
}

}  // namespace

unsigned usable_processors() {
  unsigned usable = std::max(1u, std::thread::hardware_concurrency());
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) usable = static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
  return std::min(usable, processors_of_groups(read_text("/proc/self/cgroup"), "/sys/fs/cgroup").value_or(usable));
}

std::optional<unsigned> processors_of_quota(std::string_view cpu_max) {
  const char* const end = cpu_max.data() + cpu_max.size();
  std::uint64_t quota = 0, period = 0;
  const auto [space, no_quota] = std::from_chars(cpu_max.data(), end, quota);
  if (no_quota != std::errc() || space == end || *space != ' ') return std::nullopt;
  const auto [rest, no_period] = std::from_chars(space + 1, end, period);
  if (no_period != std::errc() || period == 0) return std::nullopt;
  // One that is used in part is better than none.
  const std::uint64_t whole = quota / period + (quota % period != 0 ? 1 : 0);
  return static_cast<unsigned>(std::clamp<std::uint64_t>(whole, 1, UINT32_MAX));
}

std::optional<unsigned> processors_of_groups(std::string_view groups, const std::filesystem::path& root) {
  std::optional<unsigned> least;
  keep_least(least, processors_of_quota(read_text(root / "cpu.max")));  // in a container, its own group
  while (!groups.empty()) {
    const std::string_view line = take_line(groups);
    if (!line.starts_with("0::/")) continue;
    std::filesystem::path at = root;
    for (const auto& part : std::filesystem::path(line.substr(4))) {
      at /= part;
      keep_least(least, processors_of_quota(read_text(at / "cpu.max")));
    }
  }
  return least;
}

std::string processor_name(std::string_view cpuinfo) {
  while (!cpuinfo.empty()) {
    const std::string_view line = take_line(cpuinfo);
    const std::size_t colon = line.find(": ");
    if (colon == std::string_view::npos) continue;
    if (line.starts_with("model name") || line.starts_with("Model")) return std::string(line.substr(colon + 2));
  }
  return {};
}

std::string processor_name() { return processor_name(read_text("/proc/cpuinfo")); }

}  // namespace backplane
