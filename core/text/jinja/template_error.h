// What a template can do wrong, as the caller of ChatTemplate sees it and as the interpreter throws it inside.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace backplane::text::jinja {

// A template that doesn't parse, or whose rendering failed (raise_exception() included). Its code is kBadFile.
class TemplateError : public Error {
 public:
  TemplateError(std::string message, std::string_view template_name, int line);

  int line() const { return line_; }                       // counted from 1
  const std::string& message() const { return message_; }  // without place; as given to raise_exception()

 private:
  std::string message_;
  int line_;
};

// The interpreter's own exception: it knows no place. Program::parse and ChatTemplate::render add one.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void fail(const std::string& message);

}  // namespace backplane::text::jinja
