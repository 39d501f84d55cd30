// FileSyncs and QueueSlots: who is served by which sync, and when a slot is free.
#include "tier/store/file_syncs.h"

#include <gtest/gtest.h>

#include <random>

#include "tier/store/queue_slots.h"

namespace swale::tier {
namespace {

const Status kSyncFailed = error(Code::kIoError, Scope::kFile, "a test");

TEST(FileSyncsTest, AFileThatWasJustOpenedIsUnsynced) {
  FileSyncs syncs;
  syncs.opened(3);
  EXPECT_TRUE(syncs.unsynced(3));
  EXPECT_TRUE(syncs.want(3));
  EXPECT_EQ(syncs.next(), FileIndex{3});
  EXPECT_FALSE(syncs.next());
  EXPECT_TRUE(syncs.busy(3));
  const auto ended = syncs.ended(3, {});
  EXPECT_TRUE(ended.of_file);
  EXPECT_FALSE(ended.of_all);
  EXPECT_FALSE(syncs.busy(3));
  EXPECT_FALSE(syncs.want(3)) << "nothing was written since";
  EXPECT_FALSE(syncs.want_all());
}

TEST(FileSyncsTest, BytesThatStandInTheLogAreOfTheSyncOfAllOnly) {
  FileSyncs syncs;
  syncs.opened(0);
  ASSERT_TRUE(syncs.want(0));
  syncs.next();
  syncs.ended(0, {});
  syncs.written(0, false);
  EXPECT_FALSE(syncs.want(0));
  EXPECT_TRUE(syncs.want_all());
  EXPECT_EQ(syncs.next(), FileIndex{0});
  EXPECT_TRUE(syncs.ended(0, {}).of_all);
}

TEST(FileSyncsTest, WhoAsksMeanwhileSharesASyncThatCoversItsBytesAndElseGetsTheNext) {
  FileSyncs syncs;
  syncs.opened(0);
  ASSERT_TRUE(syncs.want_all());
  ASSERT_TRUE(syncs.next());
  ASSERT_TRUE(syncs.want(0)) << "shares it";
  auto ended = syncs.ended(0, kSyncFailed);
  EXPECT_TRUE(ended.of_file && ended.of_all && !ended.another_to_begin);
  EXPECT_FALSE(ended.all.ok()) << "the failure is told";
  EXPECT_EQ(syncs.failures(0), 1u);

  syncs.written(0, true);
  ASSERT_TRUE(syncs.want_all());
  ASSERT_TRUE(syncs.next());
  syncs.written(0, true);
  ASSERT_TRUE(syncs.want(0)) << "needs another one";
  EXPECT_FALSE(syncs.next()) << "one sync at a time";
  ended = syncs.ended(0, {});
  EXPECT_TRUE(ended.of_all && !ended.of_file && ended.another_to_begin);
  EXPECT_TRUE(ended.all.ok());
  EXPECT_EQ(syncs.next(), FileIndex{0});
  EXPECT_TRUE(syncs.ended(0, {}).of_file);
}

TEST(FileSyncsTest, ASyncOfAllEndsWithTheLastAndFailsWithAny) {
  FileSyncs syncs;
  for (const FileIndex file : {0u, 1u, 2u}) syncs.opened(file);
  syncs.closed(1);
  ASSERT_TRUE(syncs.want_all());
  ASSERT_TRUE(syncs.next() && syncs.next());
  EXPECT_FALSE(syncs.next());
  EXPECT_FALSE(syncs.ended(0, kSyncFailed).of_all);
  const auto last = syncs.ended(2, {});
  EXPECT_TRUE(last.of_all);
  EXPECT_FALSE(last.all.ok());
}

// Whatever is asked, written and ended in whatever order: everyone who waits is served once, by a sync that
// began after the last write before the asking.
TEST(FileSyncsTest, EveryoneIsServedOnceByASyncThatCoversThem) {
  std::mt19937 random(20261124);
  uint64_t served_of_file = 0, served_of_all = 0;
  for (int life = 0; life < 200; ++life) {
    constexpr FileIndex kFiles = 4;
    FileSyncs syncs;
    struct Model {
      uint64_t written = 1, covered = 0, covering = 0;  // a sync that succeeds covers what was written before
      bool running = false;
      uint64_t waits = 0;  // for the bytes up to this write; 0: nobody
    } files[kFiles];
    uint64_t all_waits[kFiles] = {};
    bool all = false;
    for (FileIndex file = 0; file < kFiles; ++file) syncs.opened(file);
    const auto begin_some = [&] {
      while (const auto file = syncs.next()) {
        ASSERT_FALSE(files[*file].running) << "one sync of a file at a time";
        files[*file].running = true;
        files[*file].covering = files[*file].written;
      }
    };
    for (int step = 0; step < 300; ++step) {
      const FileIndex file = random() % kFiles;
      Model& model = files[file];
      switch (random() % 4) {
        case 0:
          begin_some();
          ++model.written;
          syncs.written(file, true);
          break;
        case 1:
          if (model.waits != 0) break;
          if (syncs.want(file))
            model.waits = model.written;
          else
            EXPECT_EQ(model.covered, model.written);
          begin_some();
          break;
        case 2:
          if (all) break;
          for (FileIndex each = 0; each < kFiles; ++each) all_waits[each] = files[each].written;
          all = syncs.want_all();
          begin_some();
          break;
        default:
          begin_some();
          if (!model.running) break;
          model.running = false;
          model.covered = model.covering;
          const auto ended = syncs.ended(file, {});
          if (ended.of_file) {
            ASSERT_NE(model.waits, 0u) << "nobody waits";
            EXPECT_GE(model.covered, std::exchange(model.waits, 0));
            ++served_of_file;
          }
          if (ended.of_all) {
            ASSERT_TRUE(std::exchange(all, false));
            for (FileIndex each = 0; each < kFiles; ++each) EXPECT_GE(files[each].covered, all_waits[each]);
            ++served_of_all;
          }
          begin_some();
      }
    }
  }
  std::printf("served: %llu syncs of a file, %llu of all\n", static_cast<unsigned long long>(served_of_file),
              static_cast<unsigned long long>(served_of_all));
  EXPECT_GT(served_of_file, 1000u);
  EXPECT_GT(served_of_all, 300u);
}

TEST(QueueSlotsTest, ASlotIsFreeOnceItsWriterAndTheEngineAreDoneWithIt) {
  QueueSlots slots(2);
  const uint32_t first = slots.take(), second = slots.take();
  EXPECT_EQ(first, 0u);
  EXPECT_FALSE(slots.any_free());
  slots.set_check(first, 7);
  slots.answer(first, Code::kNoSpace);
  EXPECT_EQ(slots.code(first), Code::kNoSpace);
  EXPECT_FALSE(slots.release(first)) << "its writer has not seen the answer";
  EXPECT_TRUE(slots.collect(first));
  slots.answer(second, Code::kOk);
  EXPECT_FALSE(slots.collect(second)) << "its bytes are still needed";
  EXPECT_FALSE(slots.all_free());
  EXPECT_TRUE(slots.release(second));
  EXPECT_TRUE(slots.all_free());
  EXPECT_EQ(slots.check(slots.take()), 0u) << "nothing is left of the last one";
}

}  // namespace
}  // namespace swale::tier
