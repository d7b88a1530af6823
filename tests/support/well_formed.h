// Whether a text is well-formed XML, as far as our pages use it: elements, quoted attributes, the five entities.
#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace backplane::test {

class XmlCheck {
 public:
  // Empty, or what is wrong and where.
  static std::string fault(std::string_view text) {
    XmlCheck check{text};
    return check.run();
  }

 private:
  explicit XmlCheck(std::string_view text) : text_(text) {}

  std::string wrong(const std::string& what) const { return what + " before: " + std::string(text_.substr(at_, 60)); }
  bool skip(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }
  void skip_spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  std::string name() {
    std::string out;
    const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == ':'; };
    while (at_ < text_.size() && fits(text_[at_])) out += text_[at_++];
    return out;
  }
  bool entity() {
    for (const char* known : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"}) {
      if (skip(known)) return true;
    }
    return false;
  }

  std::string run() {
    if (skip("<!DOCTYPE html>")) skip_spaces();
    while (at_ < text_.size()) {
      if (text_[at_] == '<') {
        const std::string what = tag();
        if (!what.empty()) return wrong(what);
      } else if (text_[at_] == '&') {
        if (!entity()) return wrong("an unknown entity");
      } else {
        const bool space = std::isspace(static_cast<unsigned char>(text_[at_]));
        if (open_.empty() && !space) return wrong("text outside of the root");
        ++at_;
      }
    }
    return open_.empty() ? "" : "not closed: " + open_.back();
  }

  std::string tag() {
    ++at_;
    if (skip("/")) {
      const std::string closed = name();
      if (open_.empty() || open_.back() != closed) return "closes " + closed;
      open_.pop_back();
      return skip(">") ? "" : "a broken end tag";
    }
    const std::string opened = name();
    if (opened.empty()) return "a bare <";
    std::vector<std::string> seen;
    while (true) {
      skip_spaces();
      if (skip("/>")) return "";
      if (skip(">")) break;
      const std::string attribute = name();
      if (attribute.empty() || !skip("=\"")) return "a broken attribute of " + opened;
      for (const std::string& before : seen) {
        if (before == attribute) return "an attribute twice: " + attribute;
      }
      seen.push_back(attribute);
      while (at_ < text_.size() && text_[at_] != '"') {
        if (text_[at_] == '<') return "a < in an attribute";
        if (text_[at_] == '&') {
          if (!entity()) return "an unknown entity";
        } else {
          ++at_;
        }
      }
      if (!skip("\"")) return "an attribute without end";
    }
    open_.push_back(opened);
    return "";
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::string> open_;
};

}  // namespace backplane::test
