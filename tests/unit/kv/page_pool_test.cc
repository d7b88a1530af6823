#include "core/kv/page_pool.h"

#include <gtest/gtest.h>

#include <set>

#include "core/base/error.h"
#include "core/kv/page_table.h"

namespace backplane::kv {
namespace {

TEST(PagePool, HandsOutEachPageOnceAndThenNothing) {
  PagePool pool(5);
  std::set<std::int32_t> pages;
  for (int i = 0; i < 5; ++i) pages.insert(pool.take().value().value);
  EXPECT_EQ(pages, (std::set<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_FALSE(pool.take());
  EXPECT_EQ(pool.counts().held, 5u);
  EXPECT_EQ(pool.counts().free, 0u);
}

TEST(PagePool, FreesAPageWithItsLastReference) {
  PagePool pool(1);
  const PageId page = pool.take().value();
  pool.retain(page);
  EXPECT_EQ(pool.references(page), 2u);
  pool.release(page);
  EXPECT_FALSE(pool.take());
  pool.release(page);
  EXPECT_EQ(pool.counts().free, 1u);
  EXPECT_EQ(pool.take(), page);
}

TEST(PagePool, RefusesAPageThatNoOneHolds) {
  PagePool pool(2);
  const PageId page = pool.take().value();
  pool.release(page);
  EXPECT_THROW(pool.release(page), Error);
  EXPECT_THROW(pool.retain(page), Error);
  EXPECT_THROW(pool.release(PageId{7}), Error);
  EXPECT_THROW(pool.release(PageId{}), Error);
  EXPECT_EQ(pool.counts().free, 2u);
}

TEST(PagePool, KeepsPagesInTheOrderOfTheirRelease) {
  PagePool pool(4);
  std::vector<PageId> pages;
  for (int i = 0; i < 4; ++i) pages.push_back(pool.take().value());
  for (const int i : {2, 0, 3}) pool.set_kept(pages[static_cast<std::size_t>(i)], true);
  EXPECT_FALSE(pool.oldest_cached());
  for (const int i : {3, 1, 0, 2}) pool.release(pages[static_cast<std::size_t>(i)]);
  EXPECT_EQ(pool.counts().free, 1u);
  EXPECT_EQ(pool.counts().cached, 3u);
  EXPECT_EQ(pool.counts().held, 0u);
  EXPECT_EQ(pool.counts().available(), 4u);
  EXPECT_EQ(pool.oldest_cached(), pages[3]);
  pool.retain(pages[3]);  // it was of use: it now goes last
  EXPECT_EQ(pool.oldest_cached(), pages[0]);
  pool.retain(pages[2]);
  pool.release(pages[3]);
  pool.release(pages[2]);
  EXPECT_EQ(pool.take(), pages[1]);
  EXPECT_FALSE(pool.take()) << "cached pages are not taken unasked";
  for (const int i : {0, 3, 2}) {
    const PageId oldest = pool.oldest_cached().value();
    EXPECT_EQ(oldest, pages[static_cast<std::size_t>(i)]);
    pool.set_kept(oldest, false);
    EXPECT_EQ(pool.take(), oldest);
  }
  EXPECT_EQ(pool.counts().held, 4u);
}

TEST(PagePool, AHeldPageThatIsNoLongerKeptIsFreedAtItsRelease) {
  PagePool pool(1);
  const PageId page = pool.take().value();
  pool.set_kept(page, true);
  pool.set_kept(page, false);
  EXPECT_EQ(pool.counts().held, 1u);
  pool.release(page);
  EXPECT_EQ(pool.counts().free, 1u);
  EXPECT_THROW(pool.set_kept(page, true), Error);
}

TEST(PagePool, OfNoPagesIsDry) { EXPECT_FALSE(PagePool(0).take()); }

TEST(PageTable, ReleasesFromBothEnds) {
  PagePool pool(4);
  PageTable table;
  for (int i = 0; i < 4; ++i) table.append(pool.take().value());
  table.release_before(2, pool);
  EXPECT_EQ(table.entries()[0], -1);
  EXPECT_EQ(table.entries()[1], -1);
  EXPECT_GE(table.entries()[2], 0);
  EXPECT_EQ(table.live(), 2u);
  table.release_from(3, pool);
  EXPECT_EQ(table.size(), 3u);
  EXPECT_EQ(pool.counts().held, 1u);
  table.release_before(9, pool);  // no further than there are entries
  EXPECT_EQ(table.live(), 0u);
  EXPECT_EQ(pool.counts().held, 0u);
  table.release_from(0, pool);
  EXPECT_EQ(table.size(), 0u);
  table.append(pool.take().value());
  EXPECT_EQ(table.live(), 1u);
}

}  // namespace
}  // namespace backplane::kv
