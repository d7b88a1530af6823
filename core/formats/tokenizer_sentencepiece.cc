// SentencePiece's tokenizer.model: a protocol buffer, read field by field.
#include <bit>
#include <cstring>
#include <memory>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/formats/tokenizer_parts.h"
#include "core/formats/utf8.h"

namespace backplane::formats {
namespace {

using text::PieceKind;
using text::TokenId;

[[noreturn]] void refuse(std::string_view what, std::string_view where) {
  throw Error(ErrorCode::kBadFile, what, where);
}

// One message of the wire format.
class WireReader {
 public:
  WireReader(std::string_view bytes, std::string_view where) : bytes_(bytes), where_(where) {}

  // Moves to the next field; false at the end.
  bool next() {
    if (bytes_.empty()) return false;
    const std::uint64_t key = varint();
    field_ = key >> 3;
    wire_type_ = static_cast<int>(key & 7);
    switch (wire_type_) {
      case 0:
        number_ = varint();
        break;
      case 1:
        data_ = take(8);
        break;
      case 2:
        data_ = take(varint());
        break;
      case 5:
        data_ = take(4);
        break;
      default:
        refuse("this isn't a SentencePiece model, or it's broken", where_);
    }
    return true;
  }

  std::uint64_t field() const { return field_; }

  std::string_view bytes() const { return expect(2), data_; }
  std::uint64_t number() const { return expect(0), number_; }
  bool flag() const { return number() != 0; }
  std::int32_t int32() const { return static_cast<std::int32_t>(number()); }
  float f32() const {
    expect(5);
    float value = 0;
    std::memcpy(&value, data_.data(), sizeof(value));
    return value;
  }

 private:
  void expect(int wire_type) const {
    if (wire_type_ != wire_type) {
      refuse("this isn't a SentencePiece model: field " + std::to_string(field_) + " has another type", where_);
    }
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= std::uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    refuse("this isn't a SentencePiece model, or it's broken", where_);
  }

  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size()) refuse("the SentencePiece model is cut off", where_);
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  std::string_view bytes_, where_;
  std::uint64_t field_ = 0, number_ = 0;
  int wire_type_ = 0;
  std::string_view data_;
};

void read_piece(WireReader reader, text::TokenizerSpec& spec) {
  std::string_view piece;
  float score = 0;
  std::uint64_t kind = 1;
  while (reader.next()) {
    if (reader.field() == 1) piece = reader.bytes();
    if (reader.field() == 2) score = reader.f32();
    if (reader.field() == 3) kind = reader.number();
  }
  if (piece.empty()) refuse("the piece " + std::to_string(spec.pieces.size()) + " is empty", spec.where);
  if (kind < 1 || kind > 6) refuse("the piece " + quote_name(piece) + " has an unknown type", spec.where);
  spec.pieces.push_back(piece);
  spec.scores.push_back(score);
  spec.kinds.push_back(static_cast<PieceKind>(kind));
}

struct TrainerFields {
  std::uint64_t model_type = 1;
  bool space_is_suffix = false;
  std::int32_t unk = 0, bos = 1, eos = 2, pad = -1;
};

TrainerFields read_trainer(WireReader reader) {
  TrainerFields out;
  while (reader.next()) {
    switch (reader.field()) {
      case 3:
        out.model_type = reader.number();
        break;
      case 24:
        out.space_is_suffix = reader.flag();
        break;
      case 40:
        out.unk = reader.int32();
        break;
      case 41:
        out.bos = reader.int32();
        break;
      case 42:
        out.eos = reader.int32();
        break;
      case 43:
        out.pad = reader.int32();
        break;
      default:
        break;
    }
  }
  return out;
}

text::SentencePieceStep read_normalizer(WireReader reader, std::string_view where) {
  text::SentencePieceStep step{.charsmap = nullptr, .user_defined = nullptr};
  while (reader.next()) {
    switch (reader.field()) {
      case 2:
        if (!reader.bytes().empty()) step.charsmap = std::make_shared<const text::Charsmap>(reader.bytes(), where);
        break;
      case 3:
        step.dummy_prefix = reader.flag();
        break;
      case 4:
        step.remove_extra_spaces = reader.flag();
        break;
      case 5:
        step.escape_spaces = reader.flag();
        break;
      default:
        break;
    }
  }
  return step;
}

void check_model_type(std::uint64_t type, std::string_view where) {
  if (type == 2) return;
  const std::string_view name = type == 1 ? "unigram" : type == 3 ? "word" : type == 4 ? "character" : "unknown";
  refuse("a SentencePiece model of the type " + std::string(name) + " isn't supported, only BPE", where);
}

void set_special(const TrainerFields& trainer, text::TokenizerSpec& spec) {
  const auto id = [&](std::int32_t value, PieceKind kind) {
    const bool fits = value >= 0 && static_cast<std::size_t>(value) < spec.pieces.size() && spec.kinds[value] == kind;
    return fits ? TokenId{value} : text::kNoToken;
  };
  spec.special.unk = id(trainer.unk, PieceKind::kUnknown);
  spec.special.bos = id(trainer.bos, PieceKind::kControl);
  spec.special.eos = id(trainer.eos, PieceKind::kControl);
  spec.special.pad = id(trainer.pad, PieceKind::kControl);
  std::vector<std::string_view> user_defined;
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    const PieceKind kind = spec.kinds[i];
    if (kind == PieceKind::kUserDefined) user_defined.push_back(spec.pieces[i]);
    if (kind != PieceKind::kControl && kind != PieceKind::kUnknown) continue;
    spec.added_tokens.push_back(
        {.content = std::string(spec.pieces[i]), .id = static_cast<TokenId>(i), .special = true});
  }
  if (user_defined.empty()) return;
  auto& step = std::get<text::SentencePieceStep>(spec.normalizer.front());
  step.user_defined = std::make_shared<const text::ByteTrie>(user_defined);
  spec.freeze_user_defined = true;
}

}  // namespace

TokenizerBundle load_sentence_piece(const std::filesystem::path& path, TokenizerSettings settings) {
  const MappedFile file(path);
  text::TokenizerSpec spec;
  spec.where = path.string();
  spec.model = text::TokenizerSpec::Model::kScores;
  spec.alphabet = text::PieceAlphabet::kMetaspace;
  WireReader model({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, spec.where);
  TrainerFields trainer;
  text::SentencePieceStep normalizer{.charsmap = nullptr, .user_defined = nullptr};
  while (model.next()) {
    if (model.field() == 1) read_piece(WireReader(model.bytes(), spec.where), spec);
    if (model.field() == 2) trainer = read_trainer(WireReader(model.bytes(), spec.where));
    if (model.field() == 3) normalizer = read_normalizer(WireReader(model.bytes(), spec.where), spec.where);
  }
  if (spec.pieces.empty()) refuse("this isn't a SentencePiece model: it has no pieces", spec.where);
  check_model_type(trainer.model_type, spec.where);
  normalizer.space_is_suffix = trainer.space_is_suffix;
  spec.leading_space = normalizer.remove_extra_spaces ? text::LeadingSpace::kDropEach
                       : normalizer.dummy_prefix      ? text::LeadingSpace::kDropOne
                                                      : text::LeadingSpace::kKeep;
  spec.normalizer.emplace_back(std::move(normalizer));
  set_special(trainer, spec);
  if (!settings.add_bos) settings.add_bos = true;  // what loaders of such models do unless told otherwise
  apply_settings(spec, settings, false);
  return make_bundle(std::move(spec), std::move(settings));
}

}  // namespace backplane::formats
