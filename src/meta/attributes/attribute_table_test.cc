// The root's table of attributes: what each request answers, and that its records make it again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "meta/attributes/testing/attribute_changes.h"

namespace swale::meta::attributes_test {
namespace {

using testing::HasSubstr;

TEST(AttributeTable, ExclusiveCreationHasOneWinnerAlsoWhenItIsRepeated) {
  AttributeTable table;
  const auto first = ask(&table, request(AttributeOp::kCreateExclusive, "f", 7, 3));
  const auto second = ask(&table, request(AttributeOp::kCreateExclusive, "f", 8, 1));
  const auto again = ask(&table, request(AttributeOp::kCreateExclusive, "f", 7, 3));
  ASSERT_TRUE(first.ok() && second.ok() && again.ok());
  const RequestName winner{7, 3};
  EXPECT_EQ(first->answer.attributes.creator, winner);
  EXPECT_EQ(second->answer.attributes.creator, winner);
  EXPECT_EQ(again->answer.attributes.creator, winner);
}

TEST(AttributeTable, CloseTakesTheLargestSizeOfTheNewestGeneration) {
  AttributeTable table;
  const uint64_t born = ask(&table, request(AttributeOp::kCreate, "f"))->answer.attributes.generation;
  AttributeRequest close = request(AttributeOp::kClose, "f");
  close.generation = born;
  for (const uint64_t size : {100, 300, 200}) {
    close.size = size;
    ASSERT_TRUE(ask(&table, close).ok());
  }
  EXPECT_EQ(ask(&table, request(AttributeOp::kStat, "f"))->answer.attributes.size, 300u);
  AttributeRequest truncate = request(AttributeOp::kTruncate, "f", 1, 1);
  truncate.size = 50;
  const auto cut = ask(&table, truncate);
  EXPECT_EQ(cut->follow_up, FollowUp::kTrim);
  EXPECT_GT(cut->answer.attributes.generation, born);
  close.size = 1000;  // written before the truncate
  EXPECT_EQ(ask(&table, close)->answer.attributes.size, 50u);
  close.generation = cut->answer.attributes.generation;
  close.size = 60;
  EXPECT_EQ(ask(&table, close)->answer.attributes.size, 60u);
}

TEST(AttributeTable, ARepeatedTruncateDoesNotCutWhatWasWrittenAfterIt) {
  AttributeTable table;
  ASSERT_TRUE(ask(&table, request(AttributeOp::kCreate, "f")).ok());
  const AttributeRequest truncate = request(AttributeOp::kTruncate, "f", 5, 9);
  const uint64_t generation = ask(&table, truncate)->answer.attributes.generation;
  std::string record;
  ASSERT_TRUE(table.followed(truncate, FollowUp::kTrim, generation, "", &record).ok());
  AttributeRequest close = request(AttributeOp::kClose, "f");
  close.generation = generation;
  close.size = 77;
  ASSERT_TRUE(ask(&table, close).ok());
  const auto again = ask(&table, truncate);
  EXPECT_EQ(again->follow_up, FollowUp::kNone);
  EXPECT_EQ(again->answer.attributes.size, 77u);
  EXPECT_EQ(again->answer.attributes.generation, generation);
}

// What was put after it is beyond its size and must stay.
TEST(AttributeTable, ATruncateThatFailedIsFinishedInItsGenerationBeforeTheNext) {
  AttributeTable table;
  ASSERT_TRUE(ask(&table, request(AttributeOp::kCreate, "f")).ok());
  AttributeRequest truncate = request(AttributeOp::kTruncate, "f", 5, 1);
  truncate.size = 100;
  const auto failed = ask(&table, truncate);
  AttributeRequest next = request(AttributeOp::kTruncate, "f", 5, 2);
  next.size = 1000;
  for (const AttributeRequest& later : {next, request(AttributeOp::kSeal, "f")}) {
    const auto first = ask(&table, later);
    EXPECT_TRUE(first->again);
    EXPECT_EQ(first->follow_up, FollowUp::kTrim);
    EXPECT_EQ(first->trim_size, 100u);
    EXPECT_EQ(first->answer.attributes.generation, failed->answer.attributes.generation);
  }
  std::string record;
  ASSERT_TRUE(table.followed(next, FollowUp::kTrim, failed->answer.attributes.generation, "", &record).ok());
  const auto second = ask(&table, next);
  EXPECT_FALSE(second->again);
  EXPECT_EQ(second->trim_size, 1000u);
  EXPECT_GT(second->answer.attributes.generation, failed->answer.attributes.generation);
}

// Whoever asks again, because the answer was lost, hears no other file's attributes: what he removed may have
// been sealed, and only a removal of any file, or of that one, is told to all ranks.
TEST(AttributeTable, ARepeatedRemovalNamesNoFileThatWasMadeSince) {
  AttributeTable table;
  std::string record;
  const auto end_removal = [&](const AttributeRequest& of, const Applied& begun) {
    return table.followed(of, begun.follow_up, begun.answer.attributes.generation, "", &record);
  };
  ASSERT_TRUE(ask(&table, request(AttributeOp::kCreate, "f")).ok());
  ASSERT_EQ(ask(&table, request(AttributeOp::kSeal, "f"))->follow_up, FollowUp::kCollect);
  ASSERT_TRUE(
      table.followed(request(AttributeOp::kSeal, "f"), FollowUp::kCollect, 0, "a table", &record).ok());
  const AttributeRequest remove = request(AttributeOp::kRemove, "f", 5, 9);
  const auto removed = ask(&table, remove);
  EXPECT_TRUE(removed->answer.attributes.sealed);
  ASSERT_TRUE(end_removal(remove, *removed).ok());
  ASSERT_TRUE(ask(&table, request(AttributeOp::kCreate, "f")).ok());
  const auto again = ask(&table, remove);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->follow_up, FollowUp::kNone);
  EXPECT_TRUE(again->answer.attributes.file.none()) << "it names the new file";
  // Somebody removes the new one, and that does not end: it is ended, and is not what was removed.
  const AttributeRequest other = request(AttributeOp::kRemove, "f", 6, 1);
  ASSERT_EQ(ask(&table, other)->follow_up, FollowUp::kForget);
  const auto during = ask(&table, remove);
  EXPECT_EQ(during->follow_up, FollowUp::kForget);
  EXPECT_TRUE(during->again);
  ASSERT_TRUE(end_removal(remove, *during).ok());
  EXPECT_EQ(table.find("f"), nullptr);
  const auto last = ask(&table, remove);
  ASSERT_TRUE(last.ok());
  EXPECT_FALSE(last->again);
  EXPECT_TRUE(last->answer.attributes.file.none());
}

TEST(AttributeTable, ARepeatedRemovalDoesNotTakeAFileThatWasMadeSince) {
  AttributeTable table;
  ASSERT_TRUE(ask(&table, request(AttributeOp::kCreate, "f")).ok());
  const AttributeRequest remove = request(AttributeOp::kRemove, "f", 5, 9);
  const auto removed = ask(&table, remove);
  ASSERT_EQ(removed->follow_up, FollowUp::kForget);
  EXPECT_EQ(ask(&table, request(AttributeOp::kCreate, "f")).status().code(), Code::kUnavailable);
  std::string record;
  ASSERT_TRUE(
      table.followed(remove, FollowUp::kForget, removed->answer.attributes.generation, "", &record).ok());
  EXPECT_EQ(ask(&table, request(AttributeOp::kStat, "f")).status().code(), Code::kNotFound);
  EXPECT_EQ(ask(&table, remove)->follow_up, FollowUp::kNone);
  const auto made = ask(&table, request(AttributeOp::kCreate, "f"));
  EXPECT_GT(made->answer.attributes.generation, removed->answer.attributes.generation);
  EXPECT_EQ(ask(&table, remove)->follow_up, FollowUp::kNone);
  EXPECT_TRUE(ask(&table, request(AttributeOp::kStat, "f")).ok());
}

TEST(AttributeTable, ARequestThatWasTakenBackIsNotDone) {
  for (const AttributeOp op : {AttributeOp::kTruncate, AttributeOp::kRemove}) {
    for (const uint64_t before : {0, 4}) {  // what the client asked for last
      AttributeTable table;
      ASSERT_TRUE(ask(&table, request(AttributeOp::kCreate, "f")).ok());
      ASSERT_TRUE(ask(&table, request(AttributeOp::kCreate, "g")).ok());
      if (before != 0) {
        ASSERT_TRUE(ask(&table, request(AttributeOp::kTruncate, "g", 5, before)).ok());
      }
      table.keep(table.changes());
      const auto first = ask(&table, request(op, "f", 5, 9));
      ASSERT_NE(first->follow_up, FollowUp::kNone);
      table.undo();
      const auto again = ask(&table, request(op, "f", 5, 9));
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(again->follow_up, first->follow_up);
      EXPECT_GT(again->answer.attributes.generation, first->answer.attributes.generation);
    }
  }
}

// What a handle asks for is of the file that it opened, whatever file has the name by now.
TEST(AttributeTable, AHandleOfARemovedFileFindsNothing) {
  AttributeTable table;
  const FileId first = ask(&table, request(AttributeOp::kCreate, "f"))->answer.attributes.file;
  const auto remove = [&](uint64_t number) {
    const AttributeRequest what = request(AttributeOp::kRemove, "f", 7, number);
    const auto begun = ask(&table, what);
    std::string record;
    ASSERT_TRUE(
        table.followed(what, begun->follow_up, begun->answer.attributes.generation, {}, &record).ok());
  };
  const auto by_handle = [&](AttributeOp op) {
    AttributeRequest what = request(op, "f", 8);
    what.file = first;
    return ask(&table, what).status();
  };
  remove(1);
  constexpr AttributeOp kOfHandles[] = {AttributeOp::kStat, AttributeOp::kClose, AttributeOp::kTruncate,
                                        AttributeOp::kSeal};
  for (const AttributeOp op : kOfHandles) EXPECT_EQ(by_handle(op).code(), Code::kNotFound);
  const FileId second = ask(&table, request(AttributeOp::kCreate, "f"))->answer.attributes.file;
  EXPECT_NE(second, first);
  const std::string before = dump(table);
  for (const AttributeOp op : kOfHandles) {
    EXPECT_EQ(by_handle(op).code(), Code::kNotFound);
    EXPECT_THAT(std::string(by_handle(op).message()), HasSubstr("another file's now"));
  }
  EXPECT_EQ(dump(table), before);
  EXPECT_EQ(table.find("f")->file, second);
}

// The counter is in the records, also when no file is left: a later job goes on.
TEST(AttributeTable, IdsAreDrawnOnceInTheLifeOfAStore) {
  std::set<FileId> drawn;
  std::string state;
  for (int job = 0; job < 5; ++job) {
    AttributeTable table(3);
    Decoder in(state);
    while (in.remaining() > 0) ASSERT_TRUE(table.replay(in.sized()).ok());
    for (uint64_t i = 0; i < 4; ++i) {
      const auto made = ask(&table, request(AttributeOp::kCreate, "f", 7, 1));
      EXPECT_EQ(made->answer.attributes.file.high, 3u);
      EXPECT_TRUE(drawn.insert(made->answer.attributes.file).second);
      const AttributeRequest remove =
          request(AttributeOp::kRemove, "f", 7, 10 * static_cast<uint64_t>(job) + i + 1);
      const auto begun = ask(&table, remove);
      std::string record;
      ASSERT_TRUE(
          table.followed(remove, begun->follow_up, begun->answer.attributes.generation, {}, &record).ok());
    }
    EXPECT_EQ(table.files(), 0u);
    state = dump(table);
  }
}

// With a right checksum: the next id would be none, or one that was drawn; the next generation an old one.
TEST(AttributeTable, ACounterThatCannotBeIsDamage) {
  constexpr uint64_t kMost = uint64_t{1} << 62;
  for (const auto& [generation, drawn] : std::vector<std::pair<uint64_t, uint64_t>>{
           {1, ~uint64_t{0}}, {1, kMost + 1}, {~uint64_t{0}, 1}, {kMost + 1, 1}, {kMost, kMost}}) {
    std::string record;
    append_u8(&record, 4);  // a number
    append_u64(&record, generation);
    append_u64(&record, drawn);
    append_u64(&record, 0);
    append_u64(&record, 0);
    AttributeTable table;
    const bool possible = generation <= kMost && drawn <= kMost;
    EXPECT_EQ(table.replay(record).code(), possible ? Code::kOk : Code::kCorruption);
  }
}

TEST(AttributeTable, ASealedFileDoesNotChange) {
  AttributeTable table;
  ASSERT_TRUE(ask(&table, request(AttributeOp::kCreate, "f")).ok());
  const AttributeRequest seal = request(AttributeOp::kSeal, "f");
  EXPECT_EQ(ask(&table, seal)->follow_up, FollowUp::kCollect);
  std::string record;
  const auto sealed = table.followed(seal, FollowUp::kCollect, 0, "runs", &record);
  EXPECT_TRUE(sealed->attributes.sealed);
  EXPECT_EQ(sealed->table, "runs");
  EXPECT_EQ(ask(&table, request(AttributeOp::kOpen, "f"))->answer.table, "runs");
  EXPECT_EQ(ask(&table, request(AttributeOp::kStat, "f"))->answer.table, "");
  EXPECT_EQ(ask(&table, request(AttributeOp::kTruncate, "f", 1, 1)).status().code(), Code::kInvalidArgument);
  AttributeRequest close = request(AttributeOp::kClose, "f");
  close.size = 10;
  close.generation = UINT64_MAX;
  EXPECT_EQ(ask(&table, close)->answer.attributes.size, 0u);
}

TEST(AttributeRequests, AnyBytesAreDecodedOrRefused) {
  Rng rng(4);
  const std::string whole = [] {
    std::string out;
    append_request(&out, request(AttributeOp::kTruncate, "name", 2, 3));
    return out;
  }();
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    Decoder in(Bytes(whole).substr(0, cut));
    EXPECT_FALSE(read_request(&in).ok());
  }
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = whole;
    damaged[rng.below(damaged.size())] = static_cast<char>(rng.next());
    Decoder in(damaged);
    static_cast<void>(read_request(&in));
  }
}

TEST(AttributeTable, TheRecordsMakeTheSameTable) {
  Rng rng(8);
  AttributeTable table, replayed;
  for (uint64_t i = 1; i < 3000; ++i) {
    std::string record;
    const AttributeRequest what = any_request(rng, i);
    const auto applied = table.apply(what, &record);
    ASSERT_TRUE(record.empty() || replayed.replay(record).ok());
    if (applied.ok() && applied->follow_up != FollowUp::kNone && rng.chance(2, 3)) {
      record.clear();
      static_cast<void>(
          table.followed(what, applied->follow_up, applied->answer.attributes.generation, "table", &record));
      ASSERT_TRUE(record.empty() || replayed.replay(record).ok());
    }
    ASSERT_EQ(dump(table), dump(replayed)) << "after " << i;
  }
  AttributeTable copy;  // and so does a snapshot
  table.for_each_record([&](Bytes record) { ASSERT_TRUE(copy.replay(record).ok()); });
  EXPECT_EQ(dump(copy), dump(table));
}

}  // namespace
}  // namespace swale::meta::attributes_test
