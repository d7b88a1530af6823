// The processors that this process may use.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace backplane {

// At least 1: those that its affinity lets it run on, and no more than its control group has time for.
unsigned usable_processors();

// How many processors at a time a control group may use, from the text of its cpu.max ("50000 100000"): at least 1.
// Nothing where it says no limit, or nothing that can be read.
std::optional<unsigned> processors_of_quota(std::string_view cpu_max);

// The least of the limits of a group and those it lies in, at the path that a line "0::/path" of `groups` (the text of
// /proc/self/cgroup) names below `root`, where control groups of version 2 are mounted.
std::optional<unsigned> processors_of_groups(std::string_view groups, const std::filesystem::path& root);

// What the processor calls itself, such as "AMD EPYC 7763 64-Core Processor", from the text of /proc/cpuinfo. Empty
// where it says nothing.
std::string processor_name(std::string_view cpuinfo);
std::string processor_name();  // of this one

}  // namespace backplane
