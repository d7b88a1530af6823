#include "options.h"

#include <charconv>
#include <cstdlib>
#include <utility>

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

std::uint64_t number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  sdk::require(error == std::errc() && end == text.data() + text.size(), "an option that is no number");
  return value;
}

std::set<std::string> split(std::string_view text) {
  std::set<std::string> out;
  while (!text.empty()) {
    const auto piece = text.substr(0, text.find('+'));
    out.emplace(piece);
    text.remove_prefix(std::min(text.size(), piece.size() + 1));
  }
  return out;
}

template <class Member>
struct Named {
  std::string_view key;
  Member Options::*member;
};

constexpr Named<std::set<std::string>> kLists[] = {{"without", &Options::without},
                                                   {"uncapturable", &Options::uncapturable},
                                                   {"want_f16", &Options::want_f16},
                                                   {"import", &Options::import}};
constexpr Named<bool> kFlags[] = {{"no_weights", &Options::no_weights},
                                  {"no_kv", &Options::no_kv},
                                  {"no_stream", &Options::no_stream},
                                  {"no_graph", &Options::no_graph},
                                  {"no_transposed", &Options::no_transposed},
                                  {"no_embed", &Options::no_embed},
                                  {"no_map", &Options::no_map},
                                  {"no_import", &Options::no_import},
                                  {"no_copy", &Options::no_copy},
                                  {"visible", &Options::visible},
                                  {"late", &Options::late}};
constexpr Named<std::uint64_t> kNumbers[] = {
    {"refuse_at", &Options::refuse_at}, {"nan_at", &Options::nan_at}, {"slow", &Options::slow}};

// The member of that name in a table, set by `read`.
template <class Table, class Read>
bool set(Options& options, const Table& table, std::string_view key, Read&& read) {
  for (const auto& [name, member] : table) {
    if (name != key) continue;
    options.*member = read();
    return true;
  }
  return false;
}

void set_fault(Options& options, std::string_view value) {
  const auto colon = std::min(value.find(':'), value.size());
  options.fail_at = number(value.substr(0, colon));
  if (colon < value.size()) options.fail_status = static_cast<bp_status>(number(value.substr(colon + 1)));
}

}  // namespace

std::set<std::string> parse_list(const char* text) { return split(text ? text : ""); }

Options parse_options(const char* text) {
  Options options;
  sdk::for_each_option(text ? text : std::getenv("BACKPLANE_OPAQUE"),
                       [&](std::string_view key, std::string_view value) {
                         if (set(options, kLists, key, [&] { return split(value); }) ||
                             set(options, kFlags, key, [&] { return number(value) != 0; }) ||
                             set(options, kNumbers, key, [&] { return number(value); })) {
                           return;
                         }
                         if (key == "fail_at") return set_fault(options, value);
                         if (key == "alignment")
                           return void(options.alignment = static_cast<std::uint32_t>(number(value)));
                         if (key == "lie") return void(options.lie = value);
                         if (key != "report") sdk::unknown_option(key);
                         options.report = reinterpret_cast<Report*>(static_cast<std::uintptr_t>(number(value)));
                       });
  return options;
}

}  // namespace opaque
