// The pieces of a vocabulary: what each id stands for, and the id of a byte string.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/flat_table.h"
#include "core/text/token_id.h"

namespace backplane::text {

// The numbers are those of SentencePiece and GGUF.
enum class PieceKind : std::uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// How the text of a piece in a file maps to bytes.
enum class PieceAlphabet : std::uint8_t {
  kByteLevel,  // GPT-2's: each byte is one printable character ("Ġthe")
  kMetaspace,  // UTF-8 where U+2581 is a space; bytes as "<0x0A>" with kind kByte
  kPlain       // UTF-8 as it is
};

// The bytes that a piece in GPT-2's alphabet stands for. False, and `out` as it was, when a character isn't in it.
bool append_byte_level(std::string_view piece, std::string& out);

// The value of a piece "<0x00>" to "<0xFF>", or -1.
int byte_piece_value(std::string_view piece);

// Immutable after construction.
class Vocabulary {
 public:
  // `kinds` may be empty: all pieces are then normal. An empty piece fills a gap: its id has no bytes.
  // Throws Error{kBadFile}, naming `where`.
  Vocabulary(std::span<const std::string_view> pieces, std::vector<PieceKind> kinds, PieceAlphabet alphabet,
             std::string_view where);

  std::size_t size() const { return bytes_.size(); }
  PieceKind kind(TokenId id) const { return kinds_[id]; }
  // As in the file.
  std::string_view piece(TokenId id) const { return view(pieces_[id]); }
  // What the token adds to a text; U+2581 is a space here, control tokens are their piece.
  std::string_view bytes(TokenId id) const { return view(bytes_[id]); }

  // The id of a piece that text can turn into: normal, user-defined or unused. `key` is what an encoder works with:
  // bytes for kByteLevel, the piece itself for the others. kNoToken when there is none.
  TokenId find(std::string_view key) const { return by_key_.find(arena_, key); }
  // The id of a piece of any kind by its text in the file; slow (a scan).
  TokenId find_piece(std::string_view piece) const;
  TokenId byte_token(unsigned char byte) const { return byte_tokens_[byte]; }
  // Length of the longest key that find() can find.
  std::size_t longest_key() const { return longest_key_; }
  // True when no key has U+2581 behind something else: words then never merge with each other.
  bool words_are_separate() const { return words_are_separate_; }

 private:
  struct Range {
    std::uint32_t offset = 0, size = 0;
  };

  std::string_view view(Range range) const { return {arena_.data() + range.offset, range.size}; }
  Range keep(std::string_view bytes);
  Range keep_bytes(std::string_view piece, Range kept, PieceKind kind, PieceAlphabet alphabet);
  void index(PieceAlphabet alphabet);

  std::string arena_;
  std::vector<Range> pieces_, bytes_;
  std::vector<PieceKind> kinds_;
  PieceTable by_key_;
  std::array<TokenId, 256> byte_tokens_;
  std::size_t longest_key_ = 0;
  bool words_are_separate_ = true;
};

}  // namespace backplane::text
