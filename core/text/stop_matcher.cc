#include "core/text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/text/utf8.h"

namespace backplane::text {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    if (text.empty()) continue;
    if (to_valid_utf8(text) != text) {
      throw Error(ErrorCode::kUsage, "a stop string isn't UTF-8", to_valid_utf8(text), "give whole characters");
    }
    Stop stop{.text = std::move(text), .fallback = {}};
    stop.fallback.assign(stop.text.size(), 0);
    for (std::size_t i = 1, k = 0; i < stop.text.size(); ++i) {
      while (k > 0 && stop.text[i] != stop.text[k]) k = stop.fallback[k - 1];
      if (stop.text[i] == stop.text[k]) ++k;
      stop.fallback[i] = k;
    }
    stops_.push_back(std::move(stop));
  }
}

std::string StopMatcher::push(std::string_view text, bool may_stop) {
  if (stopped()) return {};
  if (stops_.empty()) return std::string(text);
  for (const char byte : text) {
    held_.push_back(byte);
    for (std::size_t i = 0; i < stops_.size(); ++i) {
      Stop& stop = stops_[i];
      while (stop.matched > 0 && stop.text[stop.matched] != byte) stop.matched = stop.fallback[stop.matched - 1];
      if (stop.text[stop.matched] == byte) ++stop.matched;
      if (stop.matched < stop.text.size()) continue;
      if (!may_stop) {
        stop.matched = stop.fallback.back();
        continue;
      }
      if (!found_ || stop.text.size() > stops_[*found_].text.size()) found_ = i;
    }
    if (found_) {
      std::string ready = std::exchange(held_, {});
      ready.resize(ready.size() - stop_string().size());
      return ready;
    }
  }
  std::size_t uncertain = 0;
  for (const Stop& stop : stops_) uncertain = std::max(uncertain, stop.matched);
  std::string ready = held_.substr(0, held_.size() - uncertain);
  held_.erase(0, ready.size());
  return ready;
}

std::string StopMatcher::flush() {
  if (stopped()) return {};
  for (Stop& stop : stops_) stop.matched = 0;
  return std::exchange(held_, {});
}

}  // namespace backplane::text
