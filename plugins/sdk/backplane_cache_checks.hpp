// The same for the ops of the KV cache, and of the step that says who owns which page. SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "backplane_check.hpp"

namespace backplane::plugin {

// A copy of the step with all members that this header has.
inline bp_step step_of(const bp_step* step) {
  require(step != nullptr, "there is no step");
  return read_struct(step);
}

// visit(layer, pages) for each layer of a cache's description, `pages` being how many its group has. Throws BP_INVALID
// for one that makes no sense; what types and sizes the device takes is for the plugin to say.
template <class Visit>
void for_each_layer(const bp_kv_desc& desc, Visit&& visit) {
  require(desc.layers != nullptr || desc.layer_count == 0, "a cache without its layers");
  for (std::uint32_t i = 0; i < desc.layer_count; ++i) {
    const auto* at = reinterpret_cast<const char*>(desc.layers) + i * desc.layer_stride;
    const bp_kv_layer layer = read_struct(reinterpret_cast<const bp_kv_layer*>(at));
    require(layer.group < desc.groups && desc.pages != nullptr, "a layer of a group that the cache hasn't");
    visit(layer, desc.pages[layer.group]);
  }
}

// What KV_WRITE and attention both ask: a cache of the device's own, or canonical pages [P,S,heads,dim].
inline void check_cache(Check& check, bp_kv kv, const bp_step* step, const bp_tensor& k_pages, const bp_tensor& v_pages,
                        std::uint32_t group, std::int64_t heads, std::int64_t key_dim, std::int64_t value_dim) {
  const bool own_cache = kv != nullptr || (is_absent(k_pages) && !check.running);
  if (own_cache) {
    if (!check.owns_cache) check.invalid("this device has no KV cache of its own");
  } else {
    check.pages(k_pages, "k_pages", heads, key_dim);
    check.pages(v_pages, "v_pages", heads, value_dim);
    if (k_pages.shape[0] != v_pages.shape[0] || k_pages.shape[1] != v_pages.shape[1]) {
      check.invalid("k_pages and v_pages differ in number or size of pages");
    }
  }
  if (step == nullptr && !check.running) return;
  require(step != nullptr, "there is no step");
  const Whole<bp_step> whole(step);
  const bp_step& own = *whole;
  if (!own_cache && (own.page_size != 0 || check.running)) {
    if (own.page_size == 0 || own.page_size != k_pages.shape[1]) {
      check.invalid("pages hold " + std::to_string(k_pages.shape[1]) + " tokens, in the step " +
                    std::to_string(own.page_size));
    }
  }
  if (check.running && group >= own.groups) {
    check.invalid("group " + std::to_string(group) + " of " + std::to_string(own.groups));
  }
}

inline void check(Check& check, const bp_kv_write_args& args) {
  check.activation(args.k, "k", {Check::kAny, Check::kAny, Check::kAny});
  check.activation(args.v, "v", {args.k.shape[0], args.k.shape[1], Check::kAny});
  check_cache(check, args.kv, args.step, args.k_pages, args.v_pages, args.group, args.k.shape[1], args.k.shape[2],
              args.v.shape[2]);
  if (check.running && args.step->tokens != args.k.shape[0]) {
    check.invalid("k has " + std::to_string(args.k.shape[0]) + " tokens, the step " +
                  std::to_string(args.step->tokens));
  }
}

inline void check(Check& check, const bp_attention_args& args) {
  check.activation(args.q, "q", {Check::kAny, Check::kAny, Check::kAny});
  check.activation(args.out, "out", {args.q.shape[0], args.q.shape[1], Check::kAny});
  const std::int64_t heads = args.q.shape[1];
  if (args.kv_heads == 0 || heads % args.kv_heads != 0) {
    check.invalid(std::to_string(heads) + " query heads can't share " + std::to_string(args.kv_heads) + " KV heads");
  }
  check.parameters(args.sinks, "sinks", heads);
  check_cache(check, args.kv, args.step, args.k_pages, args.v_pages, args.group, args.kv_heads, args.q.shape[2],
              args.out.shape[2]);
  if (!check.running) return;
  if (args.step->tokens != args.q.shape[0]) {
    check.invalid("q has " + std::to_string(args.q.shape[0]) + " tokens, the step " +
                  std::to_string(args.step->tokens));
  }
  if (args.first_sequence > args.last_sequence || args.last_sequence > args.step->sequences) {
    check.invalid("sequences " + std::to_string(args.first_sequence) + " to " + std::to_string(args.last_sequence) +
                  " of " + std::to_string(args.step->sequences));
  }
}

// The first key that a token at `position` attends to.
inline std::int64_t first_key(const bp_attention_args& args, std::int64_t position) {
  return args.window == 0 ? 0 : std::max<std::int64_t>(0, position - args.window + 1);
}

// Everything of sequence b that decides which memory is read: a wrong page number must not become a wild pointer.
// `pages` is how many the cache has. Throws BP_INVALID.
inline void check_sequence(const bp_attention_args& args, const bp_step& step, std::uint32_t b, std::int64_t pages) {
  const std::string who = "sequence " + std::to_string(b) + ": ";
  const auto need = [&](bool condition, const char* text) {
    if (!condition) throw Failure(BP_INVALID, who + text);
  };
  const std::int64_t begin = step.q_start[b], end = step.q_start[b + 1], keys = step.kv_len[b];
  need(0 <= begin && begin <= end && end <= step.tokens, "q_start is not a rising list within the step's tokens");
  if (begin == end) return;
  need(0 < keys && keys <= step.max_kv, "kv_len is outside 1 to max_kv");
  std::int64_t first = keys, last = 0;
  for (std::int64_t t = begin; t < end; ++t) {
    need(0 <= step.pos[t] && step.pos[t] < keys, "a token's position is not below kv_len");
    first = std::min(first, first_key(args, step.pos[t]));
    last = std::max<std::int64_t>(last, step.pos[t]);
  }
  need(last / step.page_size < step.max_pages, "more keys than max_pages hold");
  const std::int32_t* table = step.page_table + (std::uint64_t{args.group} * step.sequences + b) * step.max_pages;
  for (std::int64_t m = first / step.page_size; m <= last / step.page_size; ++m) {
    need(0 <= table[m] && table[m] < pages, "a page that is needed is missing or outside the cache");
  }
}

// Where the step's tokens go in a cache of `end` slots: the slots of that group. Throws BP_INVALID.
inline const std::int64_t* checked_slots(const bp_step& step, std::uint32_t group, std::int64_t end) {
  if (step.tokens == 0) return nullptr;
  require(step.slot != nullptr, "the step has no slots");
  const std::int64_t* slots = step.slot + std::uint64_t{group} * step.tokens;
  for (std::uint32_t t = 0; t < step.tokens; ++t) {
    if (slots[t] < -1 || slots[t] >= end) {
      throw Failure(BP_INVALID, "slot " + std::to_string(slots[t]) + " of token " + std::to_string(t) +
                                    " is outside a cache of " + std::to_string(end) + " tokens");
    }
  }
  return slots;
}

}  // namespace backplane::plugin
