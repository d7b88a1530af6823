// Memory that tells when somebody steps beyond a struct's size.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <new>

namespace backplane::versions_test {

// A struct of the ABI, zeroed and stamped, right before memory that can't be touched: whoever reads or writes beyond
// `size` ends the program. For what a plugin only reads.
template <class Struct>
class Fenced {
 public:
  Fenced() {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    length_ = (sizeof(Struct) + page - 1) / page * page + page;
    void* memory = mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(static_cast<char*>(memory) + length_ - page, page, PROT_NONE) != 0) {
      throw std::bad_alloc();
    }
    memory_ = memory;
    value_ = new (static_cast<char*>(memory) + length_ - page - sizeof(Struct)) Struct{};
    value_->size = sizeof(Struct);
  }
  explicit Fenced(const Struct& value) : Fenced() {
    *value_ = value;
    value_->size = sizeof(Struct);
  }
  ~Fenced() { munmap(memory_, length_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  Struct* get() const { return value_; }
  Struct* operator->() const { return value_; }

 private:
  void* memory_;
  std::size_t length_;
  Struct* value_;
};

// The same for what a plugin fills: the bytes behind it must stay, and its size too.
template <class Struct>
class Watched {
 public:
  Watched() {
    value_.size = sizeof(Struct);
    std::memset(canary_, 0xa5, sizeof(canary_));
  }

  Struct* get() { return &value_; }
  Struct* operator->() { return &value_; }
  bool intact() const {
    for (const unsigned char byte : canary_) {
      if (byte != 0xa5) return false;
    }
    return value_.size == sizeof(Struct);
  }

 private:
  Struct value_{};
  unsigned char canary_[512];
};

}  // namespace backplane::versions_test
