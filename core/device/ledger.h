// Every op that didn't run on the device the user chose, counted: nothing is silent. And the kernels of those that did,
// where the plugin tells.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace backplane::device {

enum class FallbackPolicy {
  kDeny,  // planning fails when an op would fall back
  kWarn,  // one warning when the model is planned
  kAllow
};

struct Fallback {
  std::string op;      // "NORM"
  std::string device;  // where it ran instead
  std::string shape;   // "prefill", "decode" or "mixed" step
  std::string reason;  // in the words of the plugin that refused
  std::uint64_t count = 0;
  std::uint64_t bytes_staged = 0;  // between devices, for its inputs and its results
  double seconds = 0;              // with staging
};

// A kernel that a plugin took for ops of one code, in steps of one kind.
struct KernelUse {
  std::string op;                                    // "LINEAR"
  std::string device;                                // "cuda:0"
  std::string shape;                                 // "prefill", "decode" or "mixed" step
  std::string kernel;                                // in the plugin's words
  std::uint32_t fewest_tokens = 0, most_tokens = 0;  // of the steps
  std::uint64_t count = 0;  // how often it was enqueued or recorded; launches of what was recorded aren't counted
};

class Ledger {
 public:
  void record(std::string_view op, std::string_view device, std::string_view shape, std::string_view reason,
              std::uint64_t bytes_staged, double seconds);
  // Bytes that its results had to be copied later, back to the chosen device.
  void add_bytes(std::string_view op, std::string_view device, std::string_view shape, std::string_view reason,
                 std::uint64_t bytes_staged);
  std::vector<Fallback> entries() const;  // those that took longest first

  // `shape` and `kernel` are static text: they are told apart by where they lie.
  // `place`: where the last one of the same op was found, which is where this one is looked for first.
  void took(std::uint32_t code, const std::string& device, const char* shape, const char* kernel, std::uint32_t tokens,
            std::size_t& place);
  std::vector<KernelUse> kernels() const;  // by op, shape and tokens

  void clear() {
    entries_.clear();
    kernels_.clear();
  }

 private:
  Fallback& at(std::string_view op, std::string_view device, std::string_view shape, std::string_view reason);

  struct Taken {
    std::uint32_t code;
    const std::string* device;
    const char* shape;
    const char* kernel;
    KernelUse use;
  };

  std::vector<Taken> kernels_;  // few
  std::map<std::tuple<std::string, std::string, std::string, std::string>, Fallback, std::less<>> entries_;
};

}  // namespace backplane::device
