// Random lives of sequences that share pages, over a memory that really has contents: whoever sees a page finds in it
// what he would have written himself, and the accounts are exact after every call.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <utility>

#include "core/kv/kv_book.h"

namespace backplane::kv {
namespace {

// Numbers every text with its identity, each once: what K and V of a text's last token depend on.
class Texts {
 public:
  int after(int text, TokenId token) {
    const auto [it, added] = numbers_.try_emplace({text, token}, next_);
    next_ += added;
    return it->second;
  }
  int empty(std::size_t identity) { return after(-1 - static_cast<int>(identity), 0); }

 private:
  std::map<std::pair<int, TokenId>, int> numbers_;
  int next_ = 1;
};

std::uint64_t two_bits(std::uint64_t parent, std::span<const TokenId> tokens) { return chain_hash(parent, tokens) & 3; }

struct Life {
  SequenceId id;
  std::size_t identity = 0;
  std::vector<TokenId> text;
};

class World {
 public:
  explicit World(std::uint32_t seed) : random_(seed) {
    page_ = 1 + pick(4);
    chunk_ = 1 + pick(9);
    std::vector<GroupConfig> groups;
    const std::uint32_t count = 1 + pick(3);
    for (std::uint32_t g = 0; g < count; ++g) groups.push_back({pick(3) == 0 ? 0 : 1 + pick(9), 4 + pick(12)});
    book_ = std::make_unique<KvBook>(page_, groups, chunk_, pick(2) ? chain_hash : two_bits);
    for (const GroupConfig& group : groups) memory_.emplace_back(group.pages * page_, 0);
  }

  void act() {
    if (lives_.empty() || (lives_.size() < 8 && pick(5) == 0)) start();
    const std::size_t i = pick(static_cast<std::uint32_t>(lives_.size()));
    Life& life = lives_[i];
    switch (pick(10)) {
      case 0:
        book_->free(life.id);
        lives_.erase(lives_.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      case 1:
        truncate(life);
        break;
      case 2:
        fork(life);
        break;
      case 3:
        if (pick(40) == 0) lose();
        break;
      default:
        step(life);
    }
    ASSERT_EQ(book_->fault(), "");
    for (const Life& each : lives_) expect_readable(each);
  }

  const PrefixCounts& counts() const { return book_->prefix_counts(); }
  std::uint64_t copies = 0;

 private:
  std::uint32_t pick(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }

  // Few tokens, so that texts often begin alike.
  TokenId token() { return static_cast<TokenId>(pick(10) == 0); }

  void start() {
    const std::vector<PrefixIdentity> identities{{}, {.adapter = 1}, {.salt = "x"}};
    Life life{.id = {}, .identity = pick(3), .text = {}};
    life.id = book_->open(identities[life.identity]);
    life.text.resize(1 + pick(30));
    for (TokenId& t : life.text) t = token();
    const std::uint64_t most = pick(static_cast<std::uint32_t>(life.text.size()) + 1);
    std::vector<PrefixPages> would(book_->groups());
    const std::uint64_t want = book_->find(life.id, life.text, most, would);
    std::vector<std::uint32_t> available;
    for (std::uint32_t g = 0; g < book_->groups(); ++g) available.push_back(book_->counts(g).available());
    const std::uint64_t got = book_->adopt(life.id, life.text, most);
    ASSERT_EQ(got, want);
    ASSERT_LE(got, most);
    for (std::uint32_t g = 0; g < book_->groups(); ++g) {
      ASSERT_EQ(book_->live_pages(life.id, g), would[g].held);
      ASSERT_EQ(available[g] - book_->counts(g).available(), would[g].idle);
    }
    lives_.push_back(std::move(life));
  }

  void truncate(Life& life) {
    const std::uint64_t length = book_->length(life.id);
    const std::uint64_t to = pick(static_cast<std::uint32_t>(length) + 1);
    const std::uint64_t left = book_->truncate(life.id, to);
    ASSERT_TRUE(left == to || left == 0);
    if (pick(2) == 0) life.text.resize(std::max<std::uint64_t>(1, left));  // another end
  }

  void fork(const Life& life) {
    const std::uint64_t whole = (book_->length(life.id) + page_ - 1) / page_;
    if (!book_->copies(life.id).empty() || book_->page_table(life.id, 0).size() > whole || lives_.size() >= 8) return;
    Life child = life;
    child.id = book_->fork(life.id);
    ASSERT_EQ(book_->length(child.id), book_->length(life.id));
    lives_.push_back(std::move(child));
  }

  void lose() {
    book_->lose_contents();
    for (auto& group : memory_) std::fill(group.begin(), group.end(), 0);
  }

  void step(Life& life) {
    const std::uint64_t length = book_->length(life.id);
    const std::uint32_t n = 1 + pick(chunk_);
    while (life.text.size() < length + n) life.text.push_back(token());
    if (life.text.size() > 200) return;
    if (book_->reserve(life.id, n) != Reservation::kReserved) return;
    if (pick(10) == 0) return;  // fails before anything is copied
    for (const PageCopy& copy : book_->copies(life.id)) {
      auto& bytes = memory_[copy.group];
      std::copy_n(bytes.begin() + copy.from.value * static_cast<std::ptrdiff_t>(page_), page_,
                  bytes.begin() + copy.to.value * static_cast<std::ptrdiff_t>(page_));
      ++copies;
    }
    book_->copied(life.id);
    int number = number_of(life, length);
    for (std::uint64_t p = length; p < length + n; ++p) {
      number = texts_.after(number, life.text[p]);
      for (std::uint32_t g = 0; g < book_->groups(); ++g) {
        memory_[g][static_cast<std::size_t>(book_->slot(life.id, g, p))] = number;
      }
    }
    if (pick(10) == 0) return;  // fails after it has written
    book_->append(life.id, n, life.text);
  }

  int number_of(const Life& life, std::uint64_t length) {
    int number = texts_.empty(life.identity);
    for (std::uint64_t p = 0; p < length; ++p) number = texts_.after(number, life.text[p]);
    return number;
  }

  // All that the next token sees is there. A tail that has not been copied yet is read where it still is.
  void expect_readable(const Life& life) {
    const std::uint64_t length = book_->length(life.id);
    int number = texts_.empty(life.identity);
    for (std::uint64_t p = 0; p < length; ++p) {
      number = texts_.after(number, life.text[p]);
      for (std::uint32_t g = 0; g < book_->groups(); ++g) {
        if (p < first_seen(length, book_->window(g))) continue;
        auto slot = book_->slot(life.id, g, p);
        for (const PageCopy& copy : book_->copies(life.id)) {
          if (copy.group == g && slot / page_ == copy.to.value)
            slot += std::int64_t{copy.from.value - copy.to.value} * page_;
        }
        ASSERT_EQ(memory_[g][static_cast<std::size_t>(slot)], number) << "position " << p << " of " << length;
      }
    }
  }

  std::mt19937 random_;
  std::uint32_t page_ = 0, chunk_ = 0;
  std::unique_ptr<KvBook> book_;
  std::vector<std::vector<int>> memory_;  // by group and slot
  std::vector<Life> lives_;
  Texts texts_;
};

TEST(PrefixProperty, EverybodyReadsWhatHeWouldHaveWritten) {
  PrefixCounts sum;
  std::uint64_t copies = 0;
  for (std::uint32_t seed = 0; seed < 6000; ++seed) {
    World world(seed);
    for (int i = 0; i < 120; ++i) {
      ASSERT_NO_FATAL_FAILURE(world.act()) << "seed " << seed << ", action " << i;
    }
    sum.found += world.counts().found;
    sum.evicted += world.counts().evicted;
    copies += world.copies;
  }
  EXPECT_GT(sum.found, 10000u);
  EXPECT_GT(sum.evicted, 10000u);
  EXPECT_GT(copies, 1000u);
}

}  // namespace
}  // namespace backplane::kv
