#include "core/text/score_bpe.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>

#include "core/base/error.h"
#include "core/text/utf8.h"

namespace backplane::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// Unsigned numbers in the opposite order of the scores; -0 counts as 0. Never kNone for a finite score.
std::uint32_t descending(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);
  return bits & 0x80000000u ? bits : 0x7FFFFFFFu - bits;
}

}  // namespace

struct ScoreBpeModel::Symbol {
  std::uint32_t begin, size;     // in the word; size 0: merged away
  std::uint32_t previous, next;  // kNone at the ends
  std::uint32_t order = kNone;   // of the piece that this symbol and the next one form
  TokenId pair = kNoToken;       // that piece
  bool frozen = false;           // a user-defined piece, never merged
};

// The merging of one word.
class ScoreBpeModel::Merger {
 public:
  Merger(const ScoreBpeModel& model, std::string_view word) : model_(model), word_(word) {
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t user = model.user_defined_.longest_match(word, at).size;
      const std::size_t size = user != 0 ? user : decode_code_point(word, at).size;
      const auto i = static_cast<std::uint32_t>(symbols_.size());
      symbols_.push_back({.begin = static_cast<std::uint32_t>(at),
                          .size = static_cast<std::uint32_t>(size),
                          .previous = i == 0 ? kNone : i - 1,
                          .next = i + 1,
                          .frozen = user != 0});
      at += size;
    }
    if (!symbols_.empty()) symbols_.back().next = kNone;
  }

  void run() {
    for (std::uint32_t i = 0; i < symbols_.size(); ++i) refresh(i);
    while (!queue_.empty()) {
      const auto order = static_cast<std::uint32_t>(queue_.top() >> 32);
      const auto at = static_cast<std::uint32_t>(queue_.top());
      queue_.pop();
      Symbol& left = symbols_[at];
      if (left.size == 0 || left.order != order) continue;  // the pair has changed since
      Symbol& right = symbols_[left.next];
      const auto left_size = left.size;
      left.size += right.size;
      if (model_.vocabulary_.kind(left.pair) == PieceKind::kUnused) splits_.emplace(text(left), left_size);
      right.size = 0;
      left.next = right.next;
      if (left.next != kNone) symbols_[left.next].previous = at;
      refresh(at);
      if (left.previous != kNone) refresh(left.previous);
    }
  }

  void emit(std::vector<TokenId>& out) const {
    for (const Symbol& symbol : symbols_) {
      if (symbol.size != 0) model_.emit(text(symbol), splits_, out);
    }
  }

 private:
  std::string_view text(const Symbol& symbol) const { return word_.substr(symbol.begin, symbol.size); }

  void refresh(std::uint32_t at) {
    Symbol& left = symbols_[at];
    left.order = kNone;
    if (left.next == kNone || left.frozen || symbols_[left.next].frozen) return;
    const std::size_t size = std::size_t{left.size} + symbols_[left.next].size;
    if (size > model_.vocabulary_.longest_key()) return;
    left.pair = model_.vocabulary_.find(word_.substr(left.begin, size));
    if (left.pair == kNoToken) return;
    left.order = model_.order_[left.pair];
    queue_.push(std::uint64_t{left.order} << 32 | at);
  }

  const ScoreBpeModel& model_;
  std::string_view word_;
  std::vector<Symbol> symbols_;
  Splits splits_;
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> queue_;
};

ScoreBpeModel::ScoreBpeModel(const Vocabulary& vocabulary, std::vector<float> scores, TokenId unknown,
                             bool freeze_user_defined, std::string_view where)
    : vocabulary_(vocabulary),
      unknown_(unknown),
      words_are_separate_(vocabulary.words_are_separate()),
      reach_(std::make_unique<std::atomic<std::uint8_t>[]>(vocabulary.size())) {
  if (scores.size() != vocabulary.size()) {
    throw Error(ErrorCode::kBadFile,
                std::to_string(scores.size()) + " scores for " + std::to_string(vocabulary.size()) + " tokens", where);
  }
  order_.reserve(scores.size());
  for (const float score : scores) {
    if (!std::isfinite(score)) throw Error(ErrorCode::kBadFile, "a token score that isn't a finite number", where);
    order_.push_back(descending(score));
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (vocabulary.byte_token(static_cast<unsigned char>(byte)) == kNoToken) has_all_bytes_ = false;
  }
  if (!freeze_user_defined) return;
  std::vector<std::string_view> frozen;
  for (std::size_t id = 0; id < vocabulary.size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    if (vocabulary.kind(token) == PieceKind::kUserDefined) frozen.push_back(vocabulary.piece(token));
  }
  user_defined_ = ByteTrie(frozen);
}

void ScoreBpeModel::encode(std::string_view text, std::vector<TokenId>& out) const {
  if (text.size() >= kNone) throw Error(ErrorCode::kCapacity, "a text is longer than 4 GiB");
  if (!words_are_separate_ || !user_defined_.empty()) return encode_word(text, out);
  // No piece has a space behind something else, so nothing merges across the start of a word.
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = begin;
    while (text.substr(end).starts_with(kSpaceMark)) end += kSpaceMark.size();
    end = std::min(text.find(kSpaceMark, end), text.size());
    encode_word(text.substr(begin, end - begin), out);
    begin = end;
  }
}

void ScoreBpeModel::encode_word(std::string_view word, std::vector<TokenId>& out) const {
  const bool short_enough = user_defined_.empty() && word.size() <= vocabulary_.longest_key();
  const TokenId whole = short_enough ? vocabulary_.find(word) : kNoToken;
  if (whole == kNoToken) return merge(word, out);
  if (reach_[whole].load(std::memory_order_relaxed) == kReached) {
    out.push_back(whole);
    return;
  }
  const std::size_t before = out.size();
  merge(word, out);
  const bool reached = out.size() == before + 1 && out.back() == whole;
  reach_[whole].store(reached ? kReached : kNotReached, std::memory_order_relaxed);
}

void ScoreBpeModel::merge(std::string_view word, std::vector<TokenId>& out) const {
  Merger merger(*this, word);
  merger.run();
  merger.emit(out);
}

// Unused pieces may form on the way to longer ones; what is left of them is taken apart again.
void ScoreBpeModel::emit(std::string_view piece, const Splits& splits, std::vector<TokenId>& out) const {
  const TokenId id = vocabulary_.find(piece);
  if (id != kNoToken) {
    const auto split = vocabulary_.kind(id) == PieceKind::kUnused ? splits.find(piece) : splits.end();
    if (split == splits.end()) {
      out.push_back(id);
      return;
    }
    emit(piece.substr(0, split->second), splits, out);
    emit(piece.substr(split->second), splits, out);
    return;
  }
  if (has_all_bytes_) {
    for (const char byte : piece) out.push_back(vocabulary_.byte_token(static_cast<unsigned char>(byte)));
  } else if (unknown_ != kNoToken && (out.empty() || out.back() != unknown_)) {
    out.push_back(unknown_);
  }
}

}  // namespace backplane::text
