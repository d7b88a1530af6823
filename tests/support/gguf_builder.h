// Writes small GGUF files for tests, right or deliberately wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace backplane::test {

// Little-endian bytes of numbers and GGUF strings.
class Bytes {
 public:
  template <class T>
  Bytes& put(T value) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    text_.append(raw, sizeof value);
    return *this;
  }
  Bytes& string(std::string_view text) {
    put<std::uint64_t>(text.size());
    text_ += text;
    return *this;
  }
  Bytes& raw(std::string_view text) {
    text_ += text;
    return *this;
  }
  Bytes& pad_to(std::size_t multiple) {
    text_.resize((text_.size() + multiple - 1) / multiple * multiple, '\0');
    return *this;
  }
  std::size_t size() const { return text_.size(); }
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

// Keys and tensors in the order of the calls. Everything that the file states about itself can be set wrong: version,
// counts, and a tensor's offset.
class GgufBuilder {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;                     // of the data; write general.alignment yourself when it differs
  std::uint64_t extra_keys = 0, extra_tensors = 0;  // added to the true counts

  GgufBuilder& u32(std::string_view key, std::uint32_t value) { return scalar(key, 4, value); }
  GgufBuilder& i32(std::string_view key, std::int32_t value) { return scalar(key, 5, value); }
  GgufBuilder& u16(std::string_view key, std::uint16_t value) { return scalar(key, 2, value); }
  GgufBuilder& u64(std::string_view key, std::uint64_t value) { return scalar(key, 10, value); }
  GgufBuilder& i64(std::string_view key, std::int64_t value) { return scalar(key, 11, value); }
  GgufBuilder& f32(std::string_view key, float value) { return scalar(key, 6, value); }
  GgufBuilder& f64(std::string_view key, double value) { return scalar(key, 12, value); }
  GgufBuilder& boolean(std::string_view key, bool value) { return scalar(key, 7, static_cast<std::uint8_t>(value)); }
  GgufBuilder& string(std::string_view key, std::string_view value) {
    begin(key, 8);
    keys_.string(value);
    return *this;
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& values) {
    begin(key, 9);
    keys_.put<std::uint32_t>(8).put<std::uint64_t>(values.size());
    for (const std::string& value : values) keys_.string(value);
    return *this;
  }
  // `type` is GGUF's number for T.
  template <class T>
  GgufBuilder& array(std::string_view key, std::uint32_t type, const std::vector<T>& values) {
    begin(key, 9);
    keys_.put(type).template put<std::uint64_t>(values.size());
    for (const T value : values) keys_.put(value);
    return *this;
  }
  // A value of any type number with the given bytes.
  GgufBuilder& raw(std::string_view key, std::uint32_t type, std::string_view bytes) {
    begin(key, type);
    keys_.raw(bytes);
    return *this;
  }

  // `sizes` as the file lists them: innermost first. `type` is ggml's number.
  GgufBuilder& tensor(std::string_view name, std::uint32_t type, const std::vector<std::uint64_t>& sizes,
                      std::string_view data) {
    return tensor_at(name, type, sizes, data, data_.pad_to(alignment).size());
  }
  GgufBuilder& tensor_at(std::string_view name, std::uint32_t type, const std::vector<std::uint64_t>& sizes,
                         std::string_view data, std::uint64_t offset) {
    ++num_tensors_;
    infos_.string(name).put<std::uint32_t>(static_cast<std::uint32_t>(sizes.size()));
    for (const std::uint64_t size : sizes) infos_.put(size);
    infos_.put(type).put(offset);
    data_.raw(data);
    return *this;
  }
  GgufBuilder& f32_tensor(std::string_view name, const std::vector<std::uint64_t>& sizes,
                          const std::vector<float>& values) {
    return tensor(name, 0, sizes, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }

  std::string build() const {
    Bytes out;
    out.raw("GGUF").put(version).put(num_tensors_ + extra_tensors).put(num_keys_ + extra_keys);
    out.raw(keys_.str()).raw(infos_.str());
    if (data_.size() > 0) out.pad_to(alignment).raw(data_.str());
    return out.str();
  }

 private:
  void begin(std::string_view key, std::uint32_t type) {
    ++num_keys_;
    keys_.string(key).put(type);
  }
  template <class T>
  GgufBuilder& scalar(std::string_view key, std::uint32_t type, T value) {
    begin(key, type);
    keys_.put(value);
    return *this;
  }

  Bytes keys_, infos_, data_;
  std::uint64_t num_keys_ = 0, num_tensors_ = 0;
};

}  // namespace backplane::test
