// Sequences whose K and V lie in shuffled pages: the step, the pages' contents, and the cache on either side.
#pragma once

#include <memory>
#include <vector>

#include "tests/conformance/trial.h"

namespace backplane::conformance {

// Tokens [begin, end) are computed in this step; those before are in the cache already.
struct Sequence {
  std::int64_t begin, end;
};

enum class Cache { kOwn, kCanonical };
inline const char* cache_name(Cache cache) { return cache == Cache::kOwn ? "own" : "canonical"; }

struct CacheSpec {
  Cache where = Cache::kCanonical;
  DType type = DType::kF32;
  std::int64_t page_size = 16, kv_heads = 2, dim = 64, value_dim = 64;
  std::int64_t window = 0;  // pages that it has passed are gone
};

// What the sequences hold, independent of any device. Layer 1 and group 1 are in use; group 0 has other pages, so that
// a wrong group is seen. Slots and pages that no sequence holds are NaN.
class PagedStep {
 public:
  PagedStep(Trial& trial, const CacheSpec& spec, const std::vector<Sequence>& sequences, std::uint32_t decodes);
  PagedStep(const PagedStep&) = delete;  // the step points into it
  PagedStep& operator=(const PagedStep&) = delete;

  static constexpr std::uint32_t kGroup = 1, kLayer = 1;
  const CacheSpec spec;
  const std::vector<Sequence> sequences;
  bp_step step{};
  std::int64_t pages = 0;  // P of group 1
  Array k, v;              // contents of the pages: [P,S,Hk,D], [P,S,Hk,Dv], numbers of the cache's type

  std::int64_t tokens() const { return step.tokens; }
  std::int64_t slot(std::size_t sequence, std::int64_t position) const;
  const double* key(std::size_t sequence, std::int64_t position, std::int64_t head) const;
  const double* value(std::size_t sequence, std::int64_t position, std::int64_t head) const;
  const std::vector<std::int64_t>& slots() const { return slot_; }  // of this step's tokens in group 1: [T]
  const std::vector<std::int32_t>& positions() const { return pos_; }
  std::size_t sequence_of(std::int64_t token) const;

 private:
  void assign_pages(Trial& trial);
  void fill_arrays(Trial& trial, std::uint32_t decodes);
  void fill_contents(Trial& trial);
  bool held(std::size_t sequence, std::int64_t position) const;

  std::vector<std::int32_t> token_, pos_, q_start_, kv_len_, table_, rope_row_;
  std::vector<std::int64_t> slot_, both_slots_;
};

// A cache of the plugin's own with two layers of two groups; the second is the one that `paged` describes.
class OwnCache {
 public:
  OwnCache(device::Device& device, const CacheSpec& spec, std::uint64_t pages);
  ~OwnCache();
  OwnCache(const OwnCache&) = delete;
  OwnCache& operator=(const OwnCache&) = delete;

  bp_kv handle() const { return kv_; }
  void import_pages(std::uint32_t layer, const std::vector<std::int32_t>& pages, const std::vector<std::byte>& k,
                    const std::vector<std::byte>& v);
  void export_pages(std::uint32_t layer, const std::vector<std::int32_t>& pages, std::vector<std::byte>& k,
                    std::vector<std::byte>& v);

 private:
  device::Device& device_;
  bp_kv kv_ = nullptr;
};

// The cache of one side: canonical pages in a buffer, or the plugin's own. The oracle's is always canonical.
class SideCache {
 public:
  // `contents`: import the step's k and v, or leave NaN everywhere. Throws Skipped when the plugin has none of its own.
  SideCache(Side& side, const PagedStep& paged, bool contents);

  // Sets what both argument structs have.
  template <class Args>
  void bind(Args& args) const {
    args.kv = own_ ? own_->handle() : nullptr;
    args.k_pages = k_pages_;
    args.v_pages = v_pages_;
    args.layer = PagedStep::kLayer;
    args.group = PagedStep::kGroup;
  }
  std::uint64_t features() const;
  void writable();  // the op may write every element of the pages
  // Canonical bytes of all pages: K, V.
  std::pair<std::vector<std::byte>, std::vector<std::byte>> contents();

 private:
  Side& side_;
  const PagedStep& paged_;
  std::shared_ptr<OwnCache> own_;
  bp_tensor k_pages_{}, v_pages_{};
};

}  // namespace backplane::conformance
