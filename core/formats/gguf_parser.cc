#include "core/formats/gguf_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/formats/ggml_types.h"
#include "core/formats/utf8.h"

namespace backplane::formats {
namespace {

constexpr std::size_t kKeyBytes = 65535;  // the specification's limit
constexpr std::size_t kNameBytes = 255;   // the specification says 64; some writers go beyond
constexpr std::size_t kArchitectureBytes = 64;
constexpr std::uint32_t kDimensions = 4;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kLargestAlignment = 1u << 20;
// The fewest bytes that a key-value pair (empty key, one-byte value) and a tensor description (no dimensions) take.
constexpr std::uint64_t kLeastEntryBytes = 8 + 4 + 1;
constexpr std::uint64_t kLeastTensorBytes = 8 + 4 + 4 + 8;

class Parser {
 public:
  Parser(const MappedFile& file, std::size_t file_index)
      : bytes_(file.bytes()), path_(file.path().string()), file_index_(file_index) {}

  GgufPart parse();

 private:
  struct Placed {  // a tensor's place, relative to the data section
    std::uint64_t offset, bytes;
  };

  [[noreturn]] void fail(std::string_view what, std::string_view todo = "download or convert the file again") const {
    throw Error(ErrorCode::kBadFile, what, path_, todo);
  }
  std::span<const std::byte> take(std::uint64_t count, std::string_view what);
  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }
  std::string_view string(std::string_view what, std::uint64_t limit = UINT64_MAX);

  void header();
  void entry();
  GgufValue value(GgufType type, std::string_view key);
  GgufArray array(std::string_view key);
  std::uint64_t alignment() const;
  void check_entries() const;
  void tensor();
  std::uint64_t tensor_bytes(const TensorInfo& info, const GgmlType& type) const;
  void place_tensors(std::uint64_t alignment);
  void check_overlaps() const;

  std::span<const std::byte> bytes_;
  std::string path_;
  std::size_t file_index_;
  std::size_t at_ = 0;
  std::uint64_t num_tensors_ = 0, num_entries_ = 0;
  GgufPart part_;
  std::vector<Placed> places_;
};

std::span<const std::byte> Parser::take(std::uint64_t count, std::string_view what) {
  if (count > bytes_.size() - at_) {
    fail(fmt::format("the file ends inside {} ({} bytes wanted at byte {} of {})", what, count, at_, bytes_.size()));
  }
  const auto taken = bytes_.subspan(at_, count);
  at_ += count;
  return taken;
}

std::string_view Parser::string(std::string_view what, std::uint64_t limit) {
  const auto length = number<std::uint64_t>(what);
  if (length > limit) fail(fmt::format("{} of {} bytes is longer than the {} that are allowed", what, length, limit));
  const auto text = take(length, what);
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

void Parser::header() {
  const auto magic = take(4, "the header");
  if (std::memcmp(magic.data(), "GGUF", 4) != 0) fail("not a GGUF file", "check the path");
  part_.version = number<std::uint32_t>("the header");
  if (part_.version != 0 && (part_.version & 0xffff) == 0) {
    fail("a big-endian GGUF file, which isn't supported", "convert the model on a little-endian machine");
  }
  if (part_.version != 2 && part_.version != 3) {
    fail(fmt::format("GGUF version {} isn't supported, only 2 and 3", part_.version), "convert the model again");
  }
  num_tensors_ = number<std::uint64_t>("the header");
  num_entries_ = number<std::uint64_t>("the header");
  const std::uint64_t left = bytes_.size() - at_;
  if (num_entries_ > left / kLeastEntryBytes) {
    fail(fmt::format("the header claims {} metadata keys, more than the file can hold", num_entries_));
  }
  if (num_tensors_ > left / kLeastTensorBytes) {
    fail(fmt::format("the header claims {} tensors, more than the file can hold", num_tensors_));
  }
}

void Parser::entry() {
  const std::string_view key = string("a metadata key", kKeyBytes);
  if (key.empty()) fail("a metadata key is empty");
  if (!is_utf8(key)) fail(fmt::format("the metadata key {} isn't valid UTF-8", quote_name(key)));
  const auto type = static_cast<GgufType>(number<std::uint32_t>("a metadata value's type"));
  part_.entries.push_back({key, value(type, key)});
}

GgufValue Parser::value(GgufType type, std::string_view key) {
  const std::string what = "the value of key " + quote_name(key);
  switch (type) {
    case GgufType::kU8:
      return {type, std::uint64_t{number<std::uint8_t>(what)}};
    case GgufType::kU16:
      return {type, std::uint64_t{number<std::uint16_t>(what)}};
    case GgufType::kU32:
      return {type, std::uint64_t{number<std::uint32_t>(what)}};
    case GgufType::kU64:
      return {type, number<std::uint64_t>(what)};
    case GgufType::kI8:
      return {type, std::int64_t{number<std::int8_t>(what)}};
    case GgufType::kI16:
      return {type, std::int64_t{number<std::int16_t>(what)}};
    case GgufType::kI32:
      return {type, std::int64_t{number<std::int32_t>(what)}};
    case GgufType::kI64:
      return {type, number<std::int64_t>(what)};
    case GgufType::kF32:
      return {type, double{number<float>(what)}};
    case GgufType::kF64:
      return {type, number<double>(what)};
    case GgufType::kBool: {
      const auto flag = number<std::uint8_t>(what);
      if (flag > 1) fail(fmt::format("the boolean of key {} is {}, not 0 or 1", quote_name(key), flag));
      return {type, flag == 1};
    }
    case GgufType::kString:
      return {type, string(what)};
    case GgufType::kArray:
      return {type, array(key)};
  }
  fail(fmt::format("key {} has a value of unknown type {}", quote_name(key), static_cast<std::uint32_t>(type)));
}

GgufArray Parser::array(std::string_view key) {
  const std::string what = "the array of key " + quote_name(key);
  const auto type = static_cast<GgufType>(number<std::uint32_t>(what));
  const auto count = number<std::uint64_t>(what);
  if (type == GgufType::kString) {
    const std::size_t begin = at_;
    // A forged count ends where the file does; nothing is allocated on the way.
    for (std::uint64_t i = 0; i < count; ++i) string(what);
    return {type, count, bytes_.subspan(begin, at_ - begin)};
  }
  // Nested arrays are in the specification, but no model is known to have them and ggml refuses them too.
  if (type == GgufType::kArray) fail(fmt::format("key {} holds arrays inside an array", quote_name(key)));
  const std::size_t width = gguf_type_bytes(type);
  if (width == 0) {
    fail(fmt::format("key {} has an array of unknown type {}", quote_name(key), static_cast<std::uint32_t>(type)));
  }
  if (count > (bytes_.size() - at_) / width) {
    fail(fmt::format("{} claims {} elements, more than the file can hold", what, count));
  }
  return {type, count, take(count * width, what)};
}

void Parser::check_entries() const {
  std::vector<std::string_view> keys;
  keys.reserve(part_.entries.size());
  for (const GgufEntry& entry : part_.entries) keys.push_back(entry.key);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) fail(fmt::format("the metadata key {} is there twice", quote_name(*twice)));
  for (const GgufEntry& entry : part_.entries) {
    if (entry.key != "general.architecture") continue;
    const auto name = entry.value.as_string();
    if (!name) fail("general.architecture isn't a string");
    if (name->empty() || name->size() > kArchitectureBytes || !is_utf8(*name)) {
      fail(fmt::format("general.architecture isn't a plain name ({} bytes)", name->size()));
    }
  }
}

std::uint64_t Parser::alignment() const {
  for (const GgufEntry& entry : part_.entries) {
    if (entry.key != "general.alignment") continue;
    const auto alignment = entry.value.as_u64();
    if (!alignment) fail("general.alignment isn't an unsigned integer");
    // The specification wants a multiple of 8; a power of two is what every reader assumes.
    if (!std::has_single_bit(*alignment) || *alignment < 8 || *alignment > kLargestAlignment) {
      fail(fmt::format("general.alignment is {}, not a power of two from 8 to {}", *alignment, kLargestAlignment));
    }
    return *alignment;
  }
  return kDefaultAlignment;
}

void Parser::tensor() {
  TensorInfo info;
  const std::string_view name = string("a tensor's name", kNameBytes);
  if (name.empty()) fail("a tensor has no name");
  if (!is_utf8(name)) fail(fmt::format("the tensor name {} isn't valid UTF-8", quote_name(name)));
  info.name = name;
  const std::string what = "the description of tensor " + quote_name(name);
  const auto dimensions = number<std::uint32_t>(what);
  if (dimensions > kDimensions) {
    fail(fmt::format("tensor {} has {} dimensions, more than {}", quote_name(name), dimensions, kDimensions));
  }
  info.shape.resize(dimensions);
  for (auto size = info.shape.rbegin(); size != info.shape.rend(); ++size) *size = number<std::uint64_t>(what);
  const auto id = number<std::uint32_t>(what);
  const GgmlType* type = find_ggml_type(id);
  if (!type) fail(fmt::format("tensor {} has the unknown type {}", quote_name(name), id), "convert the model again");
  info.type_name = type->name;
  info.type = type->type;
  info.file = file_index_;
  const auto offset = number<std::uint64_t>(what);
  places_.push_back({offset, tensor_bytes(info, *type)});
  part_.tensors.push_back(std::move(info));
}

std::uint64_t Parser::tensor_bytes(const TensorInfo& info, const GgmlType& type) const {
  const std::uint64_t row = info.shape.empty() ? 1 : info.shape.back();
  if (row % type.block_elements != 0) {
    fail(fmt::format("tensor {} has rows of {} values, which {} can't store in blocks of {}", quote_name(info.name),
                     row, type.name, type.block_elements));
  }
  // Zero sizes don't excuse the others from the limit: strides are computed from them too.
  std::uint64_t elements = 1, nonzero = 1;
  for (const std::uint64_t size : info.shape) {
    const std::uint64_t factor = std::max<std::uint64_t>(size, 1);
    if (factor > static_cast<std::uint64_t>(INT64_MAX) / type.block_bytes / nonzero) {
      fail(fmt::format("the shape of tensor {} overflows", quote_name(info.name)));
    }
    nonzero *= factor;
    elements *= size;
  }
  return elements / type.block_elements * type.block_bytes;
}

void Parser::place_tensors(std::uint64_t alignment) {
  const std::uint64_t begin = (at_ + alignment - 1) / alignment * alignment;
  for (std::size_t i = 0; i < part_.tensors.size(); ++i) {
    TensorInfo& info = part_.tensors[i];
    const Placed& place = places_[i];
    if (place.offset % alignment != 0) {
      fail(fmt::format("tensor {} begins at {}, off the alignment of {}", quote_name(info.name), place.offset,
                       alignment));
    }
    const std::uint64_t room = begin <= bytes_.size() ? bytes_.size() - begin : 0;
    if (place.bytes > 0 && (place.offset > room || place.bytes > room - place.offset)) {
      fail(fmt::format("tensor {} ({} bytes at {}) reaches past the end of the file, which has {} bytes of data",
                       quote_name(info.name), place.bytes, place.offset, room),
           "the download is incomplete: fetch the file again");
    }
    if (place.bytes > 0) info.data = bytes_.subspan(begin + place.offset, place.bytes);
  }
  check_overlaps();
}

void Parser::check_overlaps() const {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].bytes > 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return places_[a].offset < places_[b].offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const Placed& before = places_[order[i - 1]];
    if (places_[order[i]].offset - before.offset < before.bytes) {
      fail(fmt::format("tensors {} and {} overlap", quote_name(part_.tensors[order[i - 1]].name),
                       quote_name(part_.tensors[order[i]].name)));
    }
  }
}

GgufPart Parser::parse() {
  header();
  for (std::uint64_t i = 0; i < num_entries_; ++i) entry();
  check_entries();
  const std::uint64_t aligned_to = alignment();
  for (std::uint64_t i = 0; i < num_tensors_; ++i) tensor();
  place_tensors(aligned_to);
  return std::move(part_);
}

}  // namespace

GgufPart parse_gguf(const MappedFile& file, std::size_t file_index) { return Parser(file, file_index).parse(); }

}  // namespace backplane::formats
