#include "core/kv/kv_book.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "core/base/error.h"

namespace backplane::kv {
namespace {

void expect_step(KvBook& book, SequenceId s, std::uint32_t n) {
  ASSERT_EQ(book.reserve(s, n), Reservation::kReserved);
  book.append(s, n);
}

TEST(PagesNeeded, CountsWholePagesWithoutAWindow) {
  const Reach reach{.window = 0, .page_size = 16, .max_chunk = 512};
  EXPECT_EQ(pages_needed(0, reach), 0u);
  EXPECT_EQ(pages_needed(1, reach), 1u);
  EXPECT_EQ(pages_needed(16, reach), 1u);
  EXPECT_EQ(pages_needed(17, reach), 2u);
}

TEST(PagesNeeded, StopsGrowingBehindAWindow) {
  const Reach reach{.window = 64, .page_size = 16, .max_chunk = 32};
  EXPECT_EQ(pages_needed(33, reach), 3u);
  const std::uint64_t cap = pages_needed(1 << 20, reach);
  EXPECT_LE(cap, (64u + 32 + 15) / 16 + 1);
  EXPECT_EQ(pages_needed(1 << 30, reach), cap);
}

// The exact figure, found by walking over every alignment of a step.
TEST(PagesNeeded, IsTheLeastBoundThatHoldsForAllSteps) {
  for (std::uint32_t page = 1; page <= 5; ++page) {
    for (std::uint32_t window = 1; window <= 9; ++window) {
      for (std::uint32_t chunk = 1; chunk <= 7; ++chunk) {
        const Reach reach{window, page, chunk};
        std::uint64_t most = 0;
        for (std::uint64_t c = 0; c < 60; ++c) {
          const std::uint64_t first = c + 1 < window ? 0 : c + 1 - window;
          most = std::max(most, (c + chunk - 1) / page - first / page + 1);
        }
        EXPECT_EQ(pages_needed(1000, reach), most) << page << " " << window << " " << chunk;
      }
    }
  }
}

TEST(PagesNeeded, LongestIsItsInverse) {
  for (std::uint32_t window : {0u, 5u, 9u}) {
    const Reach reach{window, 4, 3};
    for (std::uint64_t pages = 0; pages < 12; ++pages) {
      std::uint64_t longest = 0;
      while (longest < 100 && pages_needed(longest + 1, reach) <= pages) ++longest;
      EXPECT_EQ(longest_in(pages, reach, 100), longest) << window << " " << pages;
    }
  }
}

TEST(KvBook, ReservesInAllGroupsOrInNone) {
  KvBook book(4, {{0, 5}, {0, 2}}, 64);
  const SequenceId a = book.open();
  expect_step(book, a, 8);
  const SequenceId b = book.open();
  EXPECT_EQ(book.reserve(b, 1), Reservation::kDry);  // the second group has none left
  EXPECT_EQ(book.counts(0).free, 3u);
  EXPECT_EQ(book.live_pages(b, 0), 0u);
  book.free(a);
  EXPECT_EQ(book.reserve(b, 5), Reservation::kReserved);
  EXPECT_EQ(book.counts(1).free, 0u);
}

TEST(KvBook, GivesSlotsByPageAndOffset) {
  KvBook book(4, {{0, 4}}, 64);
  const SequenceId a = book.open(), b = book.open();
  expect_step(book, a, 4);
  expect_step(book, b, 3);
  expect_step(book, a, 2);
  for (std::uint64_t p = 0; p < 6; ++p) {
    EXPECT_EQ(book.slot(a, 0, p), std::int64_t{book.page_table(a, 0)[p / 4]} * 4 + static_cast<std::int64_t>(p % 4));
  }
  EXPECT_NE(book.page_table(a, 0)[0], book.page_table(b, 0)[0]);
  EXPECT_THROW(book.slot(a, 0, 8), Error);
}

TEST(KvBook, AFailedStepMayBeReservedAgain) {
  KvBook book(4, {{0, 3}}, 64);
  const SequenceId a = book.open();
  ASSERT_EQ(book.reserve(a, 12), Reservation::kReserved);
  ASSERT_EQ(book.reserve(a, 5), Reservation::kReserved);
  EXPECT_EQ(book.counts(0).free, 0u);
  book.append(a, 5);
  EXPECT_EQ(book.truncate(a, 5), 5u);  // gives back what the failed step had taken
  EXPECT_EQ(book.counts(0).free, 1u);
}

TEST(KvBook, ReleasesPagesBehindTheWindow) {
  KvBook book(4, {{0, 64}, {6, 4}}, 4);
  const SequenceId a = book.open();
  for (int i = 0; i < 30; ++i) expect_step(book, a, 4);
  EXPECT_EQ(book.length(a), 120u);
  EXPECT_EQ(book.live_pages(a, 0), 30u);
  EXPECT_EQ(book.page_table(a, 1).size(), 30u);
  // The next query stands at 120 and sees 115 to 120: pages 0 to 27 are gone.
  EXPECT_EQ(book.page_table(a, 1)[27], -1);
  EXPECT_GE(book.page_table(a, 1)[28], 0);
  EXPECT_THROW(book.slot(a, 1, 111), Error);
  EXPECT_EQ(book.longest(1000), 256u);
}

TEST(KvBook, TruncatesToAPrefix) {
  KvBook book(4, {{0, 8}}, 64);
  const SequenceId a = book.open();
  expect_step(book, a, 30);
  const std::int32_t second = book.page_table(a, 0)[1];
  EXPECT_EQ(book.truncate(a, 7), 7u);
  EXPECT_EQ(book.counts(0).held, 2u);
  EXPECT_EQ(book.page_table(a, 0)[1], second);
  EXPECT_EQ(book.truncate(a, 0), 0u);
  EXPECT_EQ(book.counts(0).held, 0u);
  EXPECT_THROW(book.truncate(a, 1), Error);
}

TEST(KvBook, TruncatesBehindAWindowOnlyAsFarAsItsPagesReach) {
  KvBook book(4, {{0, 64}, {6, 8}}, 8);
  const SequenceId a = book.open();
  for (int i = 0; i < 5; ++i) expect_step(book, a, 8);
  // A query at 40 sees 35 and up: pages from 32 on are live, so a next token at 37 (which sees 32) can be had.
  EXPECT_EQ(book.truncate(a, 40), 40u);
  EXPECT_EQ(book.truncate(a, 37), 37u);
  EXPECT_EQ(book.truncate(a, 36), 0u);
  EXPECT_EQ(book.counts(0).held, 0u);
  EXPECT_EQ(book.counts(1).held, 0u);
  expect_step(book, a, 8);
  EXPECT_GE(book.page_table(a, 1)[0], 0);
}

TEST(KvBook, RefusesSequencesThatAreNotOpen) {
  KvBook book(4, {{0, 8}}, 64);
  const SequenceId a = book.open();
  book.free(a);
  EXPECT_THROW(book.free(a), Error);
  EXPECT_THROW((void)book.reserve(a, 1), Error);
  EXPECT_THROW((void)book.length(SequenceId{3}), Error);
  EXPECT_EQ(book.open(), a);  // ids are used again
}

// Random lives of a few sequences in pools of a few pages, against a plain reckoning of what must be held.
TEST(KvBook, KeepsExactAccountsUnderRandomUse) {
  std::mt19937 random(7);
  auto pick = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  for (int round = 0; round < 300; ++round) {
    const std::uint32_t page = 1 + pick(4), chunk = 1 + pick(9), window = 1 + pick(8);
    KvBook book(page, {{0, 5 + pick(8)}, {window, 3 + pick(8)}}, chunk);
    std::map<std::int32_t, std::uint64_t> lengths;
    for (int i = 0; i < 120; ++i) {
      if (lengths.empty() || pick(6) == 0) lengths[book.open().value] = 0;
      auto it = std::next(lengths.begin(), pick(static_cast<std::uint32_t>(lengths.size())));
      const SequenceId s{it->first};
      const std::uint32_t n = 1 + pick(chunk);
      switch (pick(5)) {
        case 0:
          book.free(s);
          lengths.erase(it);
          break;
        case 1: {
          const std::uint64_t to = pick(static_cast<std::uint32_t>(it->second) + 1);
          it->second = book.truncate(s, to);
          ASSERT_TRUE(it->second == to || it->second == 0);
          break;
        }
        default:
          if (book.reserve(s, n) != Reservation::kReserved) break;
          if (pick(8) != 0) book.append(s, n), it->second += n;
      }
      for (std::uint32_t g = 0; g < 2; ++g) {
        std::set<std::int32_t> seen;
        for (const auto& [id, length] : lengths) {
          ASSERT_EQ(book.length(SequenceId{id}), length);
          ASSERT_LE(book.live_pages(SequenceId{id}, g), pages_needed(length + chunk, book.reach(g)));
          std::uint32_t live = 0;
          for (const std::int32_t p : book.page_table(SequenceId{id}, g)) {
            if (p < 0) continue;
            ++live;
            ASSERT_TRUE(seen.insert(p).second) << "page " << p << " belongs to two sequences";
          }
          ASSERT_EQ(live, book.live_pages(SequenceId{id}, g));
          // All that the next token sees is there.
          for (std::uint64_t p = first_seen(length, book.window(g)); p < length; ++p)
            ASSERT_GE(book.slot(SequenceId{id}, g, p), 0);
        }
        const PoolCounts counts = book.counts(g);
        ASSERT_EQ(counts.held, seen.size());
        ASSERT_EQ(counts.free + counts.cached + counts.held, counts.total);
      }
    }
  }
}

}  // namespace
}  // namespace backplane::kv
