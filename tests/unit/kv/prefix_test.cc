// Pages that outlive their sequence, and pages that several share.
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "core/base/error.h"
#include "core/kv/kv_book.h"

namespace backplane::kv {
namespace {

using Tokens = std::vector<TokenId>;
using Pages = std::vector<std::int32_t>;

const PrefixIdentity kNone;

Tokens counted(std::size_t n, TokenId first = 0) {
  Tokens out(n);
  std::iota(out.begin(), out.end(), first);
  return out;
}

Pages pages_of(const KvBook& book, SequenceId s, std::uint32_t group = 0) {
  const auto table = book.page_table(s, group);
  return {table.begin(), table.end()};
}

void compute(KvBook& book, SequenceId s, const Tokens& text, std::uint32_t step = 8) {
  while (book.length(s) < text.size()) {
    const auto n = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(std::min(step, book.max_chunk()), text.size() - book.length(s)));
    ASSERT_EQ(book.reserve(s, n), Reservation::kReserved);
    ASSERT_TRUE(book.copies(s).empty());
    book.append(s, n, text);
  }
}

// A sequence that has computed the text and is gone.
void remember(KvBook& book, const Tokens& text, const PrefixIdentity& identity = kNone) {
  const SequenceId s = book.open(identity);
  compute(book, s, text);
  book.free(s);
}

std::uint64_t found(const KvBook& book, SequenceId s, const Tokens& text, std::uint64_t most = ~0ull) {
  std::vector<PrefixPages> pages(book.groups());
  return book.find(s, text, most, pages);
}
std::uint64_t found(KvBook& book, const Tokens& text, const PrefixIdentity& identity = kNone) {
  const SequenceId s = book.open(identity);
  const std::uint64_t out = found(book, s, text);
  book.free(s);
  return out;
}

TEST(Prefix, FullPagesAreFoundAgain) {
  KvBook book(4, {{0, 10}}, 8);
  const Tokens text = counted(18);
  const SequenceId a = book.open(kNone);
  EXPECT_EQ(book.adopt(a, text, 17), 0u);
  compute(book, a, text);
  const Pages pages = pages_of(book, a);
  book.free(a);
  EXPECT_EQ(book.counts(0).cached, 4u);
  EXPECT_EQ(book.counts(0).free, 6u);

  const SequenceId b = book.open(kNone);
  std::vector<PrefixPages> would(1);
  EXPECT_EQ(book.find(b, text, 17, would), 16u);
  EXPECT_EQ(would[0].held, 4u);
  EXPECT_EQ(would[0].idle, 4u);
  EXPECT_EQ(book.adopt(b, text, 17), 16u);
  EXPECT_EQ(book.length(b), 16u);
  EXPECT_EQ(pages_of(book, b), Pages(pages.begin(), pages.begin() + 4));
  EXPECT_EQ(book.counts(0).held, 4u);
  EXPECT_EQ(book.counts(0).cached, 0u);
  EXPECT_EQ(book.prefix_counts().queried, 36u);
  EXPECT_EQ(book.prefix_counts().found, 16u);
  // Held by b, so a third one takes nothing away from others.
  const SequenceId c = book.open(kNone);
  book.find(c, text, 17, would);
  EXPECT_EQ(would[0].idle, 0u);
  EXPECT_EQ(book.fault(), "");
}

TEST(Prefix, IsFoundWhileItsSequenceStillRuns) {
  KvBook book(4, {{0, 10}}, 8);
  const Tokens text = counted(12);
  const SequenceId a = book.open(kNone), b = book.open(kNone);
  compute(book, a, text);
  EXPECT_EQ(book.adopt(b, text, 12), 12u);
  EXPECT_EQ(pages_of(book, a), pages_of(book, b));
  EXPECT_EQ(book.counts(0).held, 3u);
  book.free(a);
  EXPECT_EQ(book.counts(0).held, 3u);
}

TEST(Prefix, GoesOnlyAsFarAsAskedAndAsFarAsTheTextsAgree) {
  KvBook book(4, {{0, 20}}, 8);
  remember(book, counted(16));
  const SequenceId s = book.open(kNone);
  EXPECT_EQ(found(book, s, counted(16)), 16u);
  EXPECT_EQ(found(book, s, counted(16), 15), 12u) << "a text's last token is to be computed";
  EXPECT_EQ(found(book, s, counted(16), 3), 0u);
  EXPECT_EQ(found(book, s, counted(7)), 4u);
  EXPECT_EQ(found(book, s, counted(3)), 0u);
  EXPECT_EQ(found(book, s, {}), 0u);
  Tokens other = counted(16);
  other[9] = 77;
  EXPECT_EQ(found(book, s, other), 8u);
  other[0] = 77;
  EXPECT_EQ(found(book, s, other), 0u) << "the same later pages after another beginning are another text";
}

TEST(Prefix, IdentitiesShareNothing) {
  KvBook book(4, {{0, 40}}, 8);
  const Tokens text = counted(8);
  const std::vector<PrefixIdentity> all{
      {}, {.salt = "a"}, {.salt = "b"}, {.adapter = 1}, {.rope = 1}, {.adapter = 1, .rope = 1, .salt = "a"}};
  for (const PrefixIdentity& identity : all) {
    EXPECT_EQ(found(book, text, identity), 0u);
    remember(book, text, identity);
    EXPECT_EQ(found(book, text, identity), 8u);
  }
  EXPECT_EQ(book.counts(0).cached, 12u);
  const SequenceId nobody = book.open();
  EXPECT_EQ(found(book, nobody, text), 0u);
  EXPECT_EQ(book.adopt(nobody, text, 8), 0u);
  compute(book, nobody, counted(8, 50));
  book.free(nobody);
  EXPECT_EQ(book.counts(0).cached, 12u) << "a sequence without identity leaves nothing";
}

std::uint64_t always_seven(std::uint64_t, std::span<const TokenId>) { return 7; }
std::uint64_t last_token(std::uint64_t, std::span<const TokenId> tokens) {
  return static_cast<std::uint64_t>(tokens.back());
}

TEST(Prefix, ACollisionNeverServesAnothersText) {
  for (const PrefixHash hash : {always_seven, last_token}) {
    KvBook book(4, {{0, 100}}, 8, hash);
    // Equal last tokens, equal last pages, equal tokens in another order, other tenants.
    const std::vector<Tokens> texts{{1, 2, 3, 4, 5, 6, 7, 8}, {4, 3, 2, 1, 5, 6, 7, 8}, {1, 2, 3, 4, 8, 7, 6, 5},
                                    {9, 9, 9, 4, 9, 9, 9, 8}, {5, 6, 7, 8, 1, 2, 3, 4}, {5, 6, 7, 8, 5, 6, 7, 8}};
    std::vector<Pages> pages;
    for (const Tokens& text : texts) {
      const SequenceId s = book.open(kNone);
      book.adopt(s, text, 8);
      compute(book, s, text);
      pages.push_back(pages_of(book, s));
      book.free(s);
    }
    EXPECT_EQ(book.counts(0).cached, 10u) << "two of the twelve pages are the same text";
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const SequenceId s = book.open(kNone), stranger = book.open({.salt = "x"});
      EXPECT_EQ(book.adopt(s, texts[i], 8), 8u);
      EXPECT_EQ(pages_of(book, s), pages[i]);
      EXPECT_EQ(found(book, stranger, texts[i]), 0u);
    }
    EXPECT_EQ(pages[0][0], pages[2][0]);
    EXPECT_EQ(pages[4][0], pages[5][0]);
    EXPECT_EQ(book.fault(), "");
  }
}

TEST(Prefix, TheEndOfTheOldestTextMakesRoom) {
  KvBook book(4, {{0, 6}}, 8);
  remember(book, counted(12, 0));
  remember(book, counted(12, 100));
  EXPECT_EQ(book.counts(0).cached, 6u);
  remember(book, counted(4, 200));
  EXPECT_EQ(found(book, counted(12, 0)), 8u) << "of the older one the last page has gone";
  EXPECT_EQ(found(book, counted(12, 100)), 12u);
  {
    const SequenceId s = book.open(kNone);
    book.adopt(s, counted(8, 0), 8);  // now it is the one used last
    book.free(s);
  }
  remember(book, counted(8, 300));
  EXPECT_EQ(found(book, counted(12, 0)), 8u);
  EXPECT_EQ(found(book, counted(12, 100)), 4u);
  EXPECT_EQ(book.prefix_counts().evicted, 3u);
  EXPECT_EQ(book.fault(), "");
}

TEST(Prefix, WhatIsHeldIsNeverEvicted) {
  KvBook book(4, {{0, 4}}, 16);
  const Tokens text = counted(12);
  const SequenceId a = book.open(kNone);
  compute(book, a, text);
  const SequenceId b = book.open(kNone);
  EXPECT_EQ(book.reserve(b, 5), Reservation::kDry);
  EXPECT_EQ(found(book, b, text), 12u);
  book.free(a);
  EXPECT_EQ(book.reserve(b, 5), Reservation::kReserved);
  EXPECT_EQ(found(book, text), 8u);
}

TEST(Prefix, TwoWhoComputeTheSameTextBothKeepTheirPages) {
  KvBook book(4, {{0, 10}}, 8);
  const Tokens text = counted(8), longer = counted(16);
  const SequenceId a = book.open(kNone), b = book.open(kNone);
  compute(book, a, text);
  compute(book, b, longer);
  const Pages of_a = pages_of(book, a), of_b = pages_of(book, b);
  EXPECT_NE(of_a[0], of_b[0]);
  book.free(a);
  book.free(b);
  EXPECT_EQ(book.counts(0).cached, 4u) << "the second pages for the same text are of no use";
  const SequenceId c = book.open(kNone);
  EXPECT_EQ(book.adopt(c, longer, 16), 16u);
  EXPECT_EQ(pages_of(book, c), (Pages{of_a[0], of_a[1], of_b[2], of_b[3]}));
  EXPECT_EQ(book.fault(), "");
}

TEST(Prefix, BehindAWindowItsPagesAreEnough) {
  // Full attention, and a window of 6 tokens.
  KvBook book(4, {{0, 40}, {6, 40}}, 4);
  const Tokens text = counted(40);
  const SequenceId a = book.open(kNone);
  compute(book, a, text, 4);
  EXPECT_EQ(book.live_pages(a, 1), 2u);
  book.free(a);
  EXPECT_EQ(book.counts(1).cached, 10u) << "what the window has left behind is kept as long as there is room";

  const SequenceId b = book.open(kNone);
  std::vector<PrefixPages> would(2);
  EXPECT_EQ(book.find(b, text, 39, would), 36u);
  EXPECT_EQ(would[0].held, 9u);
  EXPECT_EQ(would[1].held, 2u);  // a query at 36 sees 31 and up
  EXPECT_EQ(book.adopt(b, text, 39), 36u);
  const auto table = book.page_table(b, 1);
  for (std::size_t m = 0; m < 9; ++m) EXPECT_EQ(table[m] >= 0, m >= 7) << m;
  EXPECT_EQ(book.fault(), "");
}

TEST(Prefix, AGapInAWindowGivesAShorterPrefix) {
  KvBook book(4, {{0, 40}, {6, 5}}, 4);
  const Tokens text = counted(40);
  remember(book, text);
  // The window's group has only pages 5 to 9 of the text left.
  EXPECT_EQ(book.counts(1).cached, 5u);
  EXPECT_EQ(found(book, counted(40)), 40u);
  EXPECT_EQ(found(book, counted(29)), 28u);  // sees 23 and up: page 5
  EXPECT_EQ(found(book, counted(24)), 0u);   // sees 19 and up: page 4 is gone
  EXPECT_EQ(found(book, counted(26)), 0u);
}

TEST(Prefix, WithoutFullAttentionTheBeginningMayBeGone) {
  KvBook book(4, {{6, 4}, {10, 6}}, 4);
  const Tokens text = counted(60);
  remember(book, text);
  const SequenceId s = book.open(kNone);
  EXPECT_EQ(book.adopt(s, text, 59), 56u);
  EXPECT_EQ(book.live_pages(s, 0), 2u);
  EXPECT_EQ(book.live_pages(s, 1), 3u);
  compute(book, s, counted(80));
  EXPECT_EQ(book.fault(), "");
}

TEST(Prefix, AWindowOfOneTokenNeedsNoPages) {
  KvBook book(4, {{1, 3}}, 4);
  const Tokens text = counted(9);
  remember(book, text);
  const SequenceId s = book.open(kNone);
  EXPECT_EQ(book.adopt(s, text, 8), 8u);
  EXPECT_EQ(book.live_pages(s, 0), 0u);
  compute(book, s, text);
}

TEST(Prefix, TheIndexStaysSmallWhateverComes) {
  KvBook book(2, {{3, 6}}, 2);
  for (TokenId i = 0; i < 200; ++i) {
    remember(book, counted(400, i * 1000), {.salt = std::to_string(i)});
    ASSERT_LE(book.index().nodes(), book.index().max_nodes());
    ASSERT_EQ(book.fault(), "");
  }
  EXPECT_LE(book.index().max_nodes(), 100u);
}

TEST(Prefix, NothingIsKnownWhenContentsAreLost) {
  KvBook book(4, {{0, 20}, {6, 20}}, 8);
  const Tokens text = counted(16);
  remember(book, counted(16, 100));
  const SequenceId a = book.open(kNone);
  compute(book, a, text);
  book.lose_contents();
  EXPECT_EQ(book.length(a), 0u);
  for (std::uint32_t g = 0; g < 2; ++g) EXPECT_EQ(book.counts(g).free, 20u);
  EXPECT_EQ(found(book, text), 0u);
  compute(book, a, text);
  EXPECT_EQ(found(book, text), 16u);
  EXPECT_EQ(book.fault(), "");
}

TEST(Prefix, WhatIsNotTrustedIsFoundNoMore) {
  KvBook book(4, {{0, 12}, {5, 12}}, 8);  // behind the window pages are given back, and known all the same
  const Tokens text = counted(17);
  const SequenceId a = book.open(kNone), b = book.open(kNone), c = book.open(kNone);
  compute(book, a, text);
  EXPECT_EQ(book.adopt(b, text, 16), 16u);
  remember(book, counted(8, 40));
  book.distrust(b);
  EXPECT_EQ(found(book, c, text), 0u);
  EXPECT_EQ(found(book, c, counted(8, 40)), 8u) << "another text";
  EXPECT_EQ(book.length(b), 16u) << "those who have it keep it";
  EXPECT_EQ(book.fault(), "");
  book.free(a);
  book.free(b);
  EXPECT_EQ(found(book, c, text), 0u);
  compute(book, c, text);
  EXPECT_EQ(found(book, text), 16u) << "computed again";
  EXPECT_EQ(book.fault(), "");
}

TEST(Fork, SharesAllPagesAndCopiesTheOneThatIsWritten) {
  KvBook book(4, {{0, 10}}, 8);
  const Tokens text = counted(10);
  const SequenceId a = book.open(kNone);
  compute(book, a, text);
  const SequenceId b = book.fork(a), c = book.fork(a);
  EXPECT_EQ(book.counts(0).held, 3u);
  EXPECT_TRUE(book.shares_tail(a) && book.shares_tail(b) && book.shares_tail(c));
  const Pages origin = pages_of(book, a);

  ASSERT_EQ(book.reserve(b, 1), Reservation::kReserved);
  const std::int32_t own = book.page_table(b, 0)[2];
  EXPECT_NE(own, origin[2]);
  ASSERT_EQ(book.copies(b).size(), 1u);
  EXPECT_EQ(book.copies(b)[0], (PageCopy{0, PageId{origin[2]}, PageId{own}}));
  EXPECT_THROW(book.append(b, 1), Error) << "not copied yet";
  ASSERT_EQ(book.reserve(b, 1), Reservation::kReserved);
  EXPECT_EQ(book.copies(b).size(), 1u) << "asking again changes nothing";
  book.copied(b);
  book.append(b, 1);

  book.free(c);
  EXPECT_FALSE(book.shares_tail(a)) << "the last one writes in place";
  ASSERT_EQ(book.reserve(a, 1), Reservation::kReserved);
  EXPECT_TRUE(book.copies(a).empty());
  EXPECT_EQ(pages_of(book, a), origin);
  EXPECT_EQ(book.counts(0).held, 4u);
  EXPECT_EQ(book.fault(), "");
}

TEST(Fork, AtAPageBoundaryNothingIsCopied) {
  KvBook book(4, {{0, 10}}, 8);
  const SequenceId a = book.open(kNone);
  compute(book, a, counted(8));
  const SequenceId b = book.fork(a);
  EXPECT_FALSE(book.shares_tail(a));
  ASSERT_EQ(book.reserve(a, 1), Reservation::kReserved);
  ASSERT_EQ(book.reserve(b, 1), Reservation::kReserved);
  EXPECT_TRUE(book.copies(a).empty() && book.copies(b).empty());
  EXPECT_EQ(book.counts(0).held, 4u);
}

TEST(Fork, ACopyNeedsAPage) {
  KvBook book(4, {{0, 2}}, 8);
  const SequenceId a = book.open(kNone);
  compute(book, a, counted(6));
  const SequenceId b = book.fork(a);
  EXPECT_EQ(book.reserve(b, 1), Reservation::kDry);
  book.free(a);
  EXPECT_EQ(book.reserve(b, 1), Reservation::kReserved);
}

// The original must stay as it is until it has been copied, whatever becomes of the others.
TEST(Fork, AnOriginalIsHeldUntilItIsCopied) {
  KvBook book(4, {{0, 4}}, 8);
  const SequenceId a = book.open(kNone);
  compute(book, a, counted(6));
  const SequenceId b = book.fork(a);
  ASSERT_EQ(book.reserve(b, 1), Reservation::kReserved);
  EXPECT_TRUE(book.shares_tail(a));
  book.free(a);
  EXPECT_EQ(book.counts(0).held, 3u);
  EXPECT_EQ(book.fault(), "");
  EXPECT_EQ(book.truncate(b, 5), 5u);
  EXPECT_EQ(book.copies(b).size(), 1u) << "its token is still not there";
  EXPECT_EQ(book.truncate(b, 4), 4u);
  EXPECT_TRUE(book.copies(b).empty());
  EXPECT_EQ(book.counts(0).held, 1u);
  book.free(b);
  EXPECT_EQ(book.fault(), "");
}

TEST(Fork, WhoGoesBackIntoAFullPageLeavesItToThoseWhoUseIt) {
  KvBook book(4, {{0, 10}}, 8);
  const Tokens text = counted(12);
  const SequenceId a = book.open(kNone), b = book.open(kNone);
  compute(book, a, text);
  ASSERT_EQ(book.adopt(b, text, 11), 8u);
  EXPECT_EQ(book.truncate(b, 6), 6u);
  ASSERT_EQ(book.reserve(b, 1), Reservation::kReserved);
  EXPECT_EQ(book.copies(b).size(), 1u);
  book.copied(b);
  Tokens other = counted(6);
  other.insert(other.end(), {90, 91});
  book.append(b, 1, other);
  EXPECT_EQ(found(book, text), 12u);
  // Alone, it writes in place, and the page no longer stands for the old text.
  EXPECT_EQ(book.truncate(a, 10), 10u);
  ASSERT_EQ(book.reserve(a, 1), Reservation::kReserved);
  EXPECT_TRUE(book.copies(a).empty());
  EXPECT_EQ(found(book, text), 8u);
  EXPECT_EQ(book.fault(), "");
}

}  // namespace
}  // namespace backplane::kv
