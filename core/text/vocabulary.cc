#include "core/text/vocabulary.h"

#include <limits>

#include "core/base/error.h"
#include "core/text/utf8.h"

namespace backplane::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

// GPT-2's alphabet: bytes that print as one Latin-1 character stand for themselves, the others in order for U+0100 on.
constexpr std::array<std::int16_t, 0x144> make_byte_of_char() {
  std::array<std::int16_t, 0x144> table{};
  for (auto& entry : table) entry = -1;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    table[prints ? byte : next++] = static_cast<std::int16_t>(byte);
  }
  return table;
}
constexpr auto kByteOfChar = make_byte_of_char();

}  // namespace

bool append_byte_level(std::string_view piece, std::string& out) {
  const std::size_t before = out.size();
  for (std::size_t at = 0; at < piece.size();) {
    const CodePoint point = decode_code_point(piece, at);
    if (!point.valid || point.value >= kByteOfChar.size() || kByteOfChar[point.value] < 0) {
      out.resize(before);
      return false;
    }
    out.push_back(static_cast<char>(kByteOfChar[point.value]));
    at += point.size;
  }
  return true;
}

int byte_piece_value(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return -1;
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

Vocabulary::Vocabulary(std::span<const std::string_view> pieces, std::vector<PieceKind> kinds, PieceAlphabet alphabet,
                       std::string_view where)
    : kinds_(std::move(kinds)), by_key_(pieces.size()) {
  if (pieces.empty()) throw Error(ErrorCode::kBadFile, "the vocabulary has no tokens", where);
  if (kinds_.empty()) kinds_.assign(pieces.size(), PieceKind::kNormal);
  if (kinds_.size() != pieces.size()) {
    throw Error(ErrorCode::kBadFile, "the vocabulary has as many token types as tokens only when it's whole", where);
  }
  std::uint64_t total = 0;
  for (const std::string_view piece : pieces) total += piece.size();
  if (total > std::numeric_limits<std::uint32_t>::max() / 2 || pieces.size() > (std::size_t{1} << 28)) {
    throw Error(ErrorCode::kBadFile, "the vocabulary is larger than 2 GiB", where);
  }
  arena_.reserve(2 * total);  // so that the table's views of it stay
  pieces_.reserve(pieces.size());
  bytes_.reserve(pieces.size());
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    pieces_.push_back(keep(pieces[id]));
    bytes_.push_back(keep_bytes(pieces[id], pieces_.back(), kinds_[id], alphabet));
  }
  index(alphabet);
}

Vocabulary::Range Vocabulary::keep(std::string_view bytes) {
  const Range range{static_cast<std::uint32_t>(arena_.size()), static_cast<std::uint32_t>(bytes.size())};
  arena_.append(bytes);
  return range;
}

Vocabulary::Range Vocabulary::keep_bytes(std::string_view piece, Range kept, PieceKind kind, PieceAlphabet alphabet) {
  const Range range{static_cast<std::uint32_t>(arena_.size()), 0};
  const auto kept_since = [&] { return Range{range.offset, static_cast<std::uint32_t>(arena_.size() - range.offset)}; };
  const bool text = kind == PieceKind::kNormal || kind == PieceKind::kUnused;
  if (kind == PieceKind::kByte) {
    const int value = byte_piece_value(piece);
    if (value >= 0) arena_.push_back(static_cast<char>(value));
    return value >= 0 ? kept_since() : kept;
  }
  if (alphabet == PieceAlphabet::kByteLevel) return text && append_byte_level(piece, arena_) ? kept_since() : kept;
  const bool spaces = alphabet == PieceAlphabet::kMetaspace && (text || kind == PieceKind::kUserDefined);
  if (!spaces || piece.find(kSpaceMark) == std::string_view::npos) return kept;
  for (std::size_t at = 0; at < piece.size();) {
    const bool mark = piece.substr(at).starts_with(kSpaceMark);
    arena_.push_back(mark ? ' ' : piece[at]);
    at += mark ? kSpaceMark.size() : 1;
  }
  return kept_since();
}

void Vocabulary::index(PieceAlphabet alphabet) {
  byte_tokens_.fill(kNoToken);
  std::string scratch;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const Range key = alphabet == PieceAlphabet::kByteLevel ? bytes_[i] : pieces_[i];
    if (key.size == 0) continue;
    if (kinds_[i] == PieceKind::kByte) {
      const int value = byte_piece_value(piece(id));
      if (value >= 0 && byte_tokens_[value] == kNoToken) byte_tokens_[value] = id;
      continue;
    }
    if (kinds_[i] == PieceKind::kControl || kinds_[i] == PieceKind::kUnknown) continue;
    if (alphabet == PieceAlphabet::kByteLevel && bytes_[i].offset == pieces_[i].offset) {
      // Text only turns into pieces of the alphabet; the others are matched as added tokens.
      scratch.clear();
      if (!append_byte_level(piece(id), scratch) || scratch != bytes(id)) continue;
    }
    if (!by_key_.insert(arena_, key.offset, key.size, id)) continue;  // of equal pieces the first counts
    longest_key_ = std::max<std::size_t>(longest_key_, key.size);
    if (alphabet == PieceAlphabet::kByteLevel) {
      if (key.size == 1) byte_tokens_[static_cast<unsigned char>(arena_[key.offset])] = id;
      continue;
    }
    const std::string_view text = view(key);
    for (std::size_t mark = text.find(kSpaceMark, 1); mark != std::string_view::npos;
         mark = text.find(kSpaceMark, mark + 1)) {
      if (mark < 3 || text.substr(mark - 3, 3) != kSpaceMark) words_are_separate_ = false;
    }
  }
}

TokenId Vocabulary::find_piece(std::string_view piece) const {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].size == piece.size() && view(pieces_[i]) == piece) return static_cast<TokenId>(i);
  }
  return kNoToken;
}

}  // namespace backplane::text
