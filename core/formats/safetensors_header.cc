#include "core/formats/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/formats/json_input.h"
#include "core/formats/utf8.h"

namespace backplane::formats {
namespace {

using nlohmann::json;

constexpr std::uint64_t kHeaderBytes = 100'000'000;  // the format's limit
constexpr std::size_t kDimensions = 64;              // what torch allows

struct StoredType {
  std::string_view name;
  std::uint32_t bits;
};

// Those that dtype.h doesn't know can be listed all the same.
constexpr std::array kTypes = {
    StoredType{"BOOL", 8},        StoredType{"U8", 8},          StoredType{"I8", 8},      StoredType{"I16", 16},
    StoredType{"U16", 16},        StoredType{"F16", 16},        StoredType{"BF16", 16},   StoredType{"I32", 32},
    StoredType{"U32", 32},        StoredType{"F32", 32},        StoredType{"F64", 64},    StoredType{"I64", 64},
    StoredType{"U64", 64},        StoredType{"C64", 64},        StoredType{"F8_E4M3", 8}, StoredType{"F8_E5M2", 8},
    StoredType{"F8_E4M3FNUZ", 8}, StoredType{"F8_E5M2FNUZ", 8}, StoredType{"F8_E8M0", 8}, StoredType{"F6_E2M3", 6},
    StoredType{"F6_E3M2", 6},     StoredType{"F4", 4},
};

struct Entry {
  std::string name, dtype;
  std::vector<std::uint64_t> shape, offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;

  std::uint64_t begin() const { return offsets[0]; }
  std::uint64_t end() const { return offsets[1]; }
};

// Takes the parser's events straight into entries: no tree is built, so memory stays in proportion to the header.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  explicit HeaderReader(std::string path) : path_(std::move(path)) {}

  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;

  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("a boolean"); }
  bool number_integer(number_integer_t) override { return scalar("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return scalar("a number that isn't an unsigned integer");
  }
  bool binary(binary_t&) override { return scalar("binary data"); }
  bool number_unsigned(number_unsigned_t value) override;
  bool string(string_t& value) override;
  bool start_object(std::size_t) override;
  bool key(string_t& value) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    fail(fmt::format("the header isn't valid JSON ({})", json_complaint(error.what())));
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw Error(ErrorCode::kBadFile, what, path_, "download or convert the file again");
  }

 private:
  enum class Place { kStart, kRoot, kMetadata, kTensor, kNumbers, kIgnored, kEnd };

  bool scalar(std::string_view found) const;
  bool expects(std::string_view field) const { return place_ == Place::kTensor && key_ == field; }
  [[noreturn]] void unexpected(std::string_view found) const;
  void enter_ignored();
  void check_complete(const Entry& entry) const;

  std::string path_;
  Place place_ = Place::kStart;
  std::string key_;
  std::vector<std::uint64_t>* numbers_ = nullptr;  // the list that kNumbers fills
  std::size_t ignored_depth_ = 0;
};

void HeaderReader::unexpected(std::string_view found) const {
  switch (place_) {
    case Place::kMetadata:
      fail(fmt::format("__metadata__ '{}' is {}, not a string", key_, found));
    case Place::kTensor:
    case Place::kNumbers:
      fail(fmt::format("'{}' of tensor {} can't be {}", key_, quote_name(entries.back().name), found));
    default:
      fail(fmt::format("the header holds {} where an object should be", found));
  }
}

// A value that no field of ours may have.
bool HeaderReader::scalar(std::string_view found) const {
  const bool ours = key_ == "dtype" || key_ == "shape" || key_ == "data_offsets";
  if (place_ == Place::kIgnored || (place_ == Place::kTensor && !ours)) return true;
  unexpected(found);
}

bool HeaderReader::number_unsigned(number_unsigned_t value) {
  if (place_ != Place::kNumbers) return scalar("a number");
  numbers_->push_back(value);
  if (numbers_->size() > kDimensions) unexpected(fmt::format("a list of more than {} numbers", kDimensions));
  return true;
}

bool HeaderReader::string(string_t& value) {
  if (place_ == Place::kMetadata) {
    if (!metadata.emplace(key_, std::move(value)).second) fail(fmt::format("__metadata__ '{}' is there twice", key_));
    return true;
  }
  if (!expects("dtype")) return scalar("a string");
  if (std::exchange(entries.back().has_dtype, true)) unexpected("there twice");
  entries.back().dtype = std::move(value);
  return true;
}

bool HeaderReader::key(string_t& value) {
  if (place_ != Place::kIgnored) key_ = std::move(value);
  return true;
}

void HeaderReader::enter_ignored() {
  place_ = Place::kIgnored;
  if (++ignored_depth_ > kJsonDepth) fail(fmt::format("the header is nested deeper than {}", kJsonDepth));
}

bool HeaderReader::start_object(std::size_t) {
  const bool ours = key_ == "dtype" || key_ == "shape" || key_ == "data_offsets";
  if (place_ == Place::kStart) {
    place_ = Place::kRoot;
  } else if (place_ == Place::kRoot && key_ == "__metadata__") {
    if (!metadata.empty()) fail("__metadata__ is there twice");
    place_ = Place::kMetadata;
  } else if (place_ == Place::kRoot) {
    entries.emplace_back().name = std::move(key_);
    place_ = Place::kTensor;
  } else if (place_ == Place::kIgnored || (place_ == Place::kTensor && !ours)) {
    enter_ignored();
  } else {
    unexpected("an object");
  }
  return true;
}

// At once, not when all are read: a long header of empty objects must not become a longer list.
void HeaderReader::check_complete(const Entry& entry) const {
  const char* lacks = !entry.has_dtype     ? "dtype"
                      : !entry.has_shape   ? "shape"
                      : !entry.has_offsets ? "data_offsets"
                                           : nullptr;
  if (lacks) fail(fmt::format("tensor {} has no {}", quote_name(entry.name), lacks));
  if (entry.offsets.size() != 2) {
    fail(fmt::format("tensor {} has {} data_offsets, not 2", quote_name(entry.name), entry.offsets.size()));
  }
}

bool HeaderReader::end_object() {
  if (place_ == Place::kIgnored) {
    if (--ignored_depth_ == 0) place_ = Place::kTensor;
  } else {
    if (place_ == Place::kTensor) check_complete(entries.back());
    place_ = place_ == Place::kRoot ? Place::kEnd : Place::kRoot;
  }
  return true;
}

bool HeaderReader::start_array(std::size_t) {
  if (expects("shape") || expects("data_offsets")) {
    Entry& entry = entries.back();
    const bool is_shape = key_ == "shape";
    if (std::exchange(is_shape ? entry.has_shape : entry.has_offsets, true)) unexpected("there twice");
    numbers_ = is_shape ? &entry.shape : &entry.offsets;
    place_ = Place::kNumbers;
  } else if (place_ == Place::kIgnored || (place_ == Place::kTensor && key_ != "dtype")) {
    enter_ignored();
  } else {
    unexpected("an array");
  }
  return true;
}

bool HeaderReader::end_array() {
  if (place_ == Place::kNumbers) {
    place_ = Place::kTensor;
  } else if (--ignored_depth_ == 0) {
    place_ = Place::kTensor;
  }
  return true;
}

// Bytes that a tensor of this shape and type takes; nothing on overflow or when they aren't whole.
std::optional<std::uint64_t> stored_bytes(const std::vector<std::uint64_t>& shape, std::uint32_t bits) {
  std::uint64_t elements = 1, nonzero = 1;
  for (const std::uint64_t size : shape) {
    const std::uint64_t factor = std::max<std::uint64_t>(size, 1);
    if (factor > static_cast<std::uint64_t>(INT64_MAX) / bits / nonzero) return std::nullopt;
    nonzero *= factor;
    elements *= size;
  }
  if (elements * bits % 8 != 0) return std::nullopt;
  return elements * bits / 8;
}

TensorInfo make_tensor(Entry& entry, std::span<const std::byte> data, std::size_t file_index,
                       const HeaderReader& reader) {
  const std::string name = "tensor " + quote_name(entry.name);
  const auto type =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const StoredType& t) { return t.name == entry.dtype; });
  if (type == kTypes.end()) reader.fail(fmt::format("{} has the unknown dtype {}", name, quote_name(entry.dtype)));
  const std::uint64_t begin = entry.begin(), end = entry.end();
  const auto bytes = stored_bytes(entry.shape, type->bits);
  if (!bytes || *bytes != end - begin) {
    reader.fail(fmt::format("the shape of {} doesn't fit its {} bytes", name, end - begin));
  }
  return {std::move(entry.name),  std::string(type->name),          dtype_from_name(type->name),
          std::move(entry.shape), data.subspan(begin, end - begin), file_index};
}

// The offsets must cover the data from its first byte to its last.
void check_cover(const std::vector<Entry>& entries, std::uint64_t data_bytes, const HeaderReader& reader) {
  std::uint64_t covered = 0;
  for (const Entry& entry : entries) {
    const std::uint64_t begin = entry.begin(), end = entry.end();
    if (begin != covered || end < begin || end > data_bytes) {
      reader.fail(fmt::format("tensor {} is at bytes {} to {} where byte {} of {} should follow",
                              quote_name(entry.name), begin, end, covered, data_bytes));
    }
    covered = end;
  }
  if (covered != data_bytes) {
    reader.fail(fmt::format("the tensors take {} bytes, but the file has {} bytes of data", covered, data_bytes));
  }
}

}  // namespace

SafetensorsHeader parse_safetensors(const MappedFile& file, std::size_t file_index) {
  const auto bytes = file.bytes();
  HeaderReader reader(file.path().string());
  if (bytes.size() < 8) reader.fail("the file is too short for a safetensors header");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kHeaderBytes || length > bytes.size() - 8) {
    reader.fail(fmt::format("the header of {} bytes is larger than the file or the format's limit", length));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  // The format asks for a brace at once; the JSON parser would skip a byte order mark, and end at a zero byte.
  if (text.empty() || text.front() != '{') reader.fail("the header doesn't begin with '{'");
  if (text.find('\0') != std::string_view::npos) reader.fail("the header holds a zero byte");
  json::sax_parse(text.begin(), text.end(), &reader);

  std::sort(reader.entries.begin(), reader.entries.end(),
            [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  const auto data = bytes.subspan(8 + length);
  check_cover(reader.entries, data.size(), reader);

  SafetensorsHeader header;
  header.tensors.reserve(reader.entries.size());
  for (Entry& entry : reader.entries) header.tensors.push_back(make_tensor(entry, data, file_index, reader));
  header.metadata = std::move(reader.metadata);
  return header;
}

}  // namespace backplane::formats
