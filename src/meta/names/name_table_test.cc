// The table of names, its records, and what a crash or damage of its server's log leaves.
#include "meta/names/name_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::meta::name_table_test {
namespace {

using testing::HasSubstr;

constexpr FileId kDirectory{2, 5};

std::vector<std::string> rows(const NameTable& table) {
  std::vector<std::string> records;
  table.for_each_record([&](Bytes record) { records.emplace_back(record); });
  return records;
}

FileId id(uint64_t low) { return {1, low}; }

// A record with each kind of step; `salt` varies it.
NameRecord change(Rng& rng) {
  NameRecord record;
  for (uint64_t steps = 1 + rng.below(4); steps > 0; --steps) {
    const FileId file = id(2 + rng.below(6));
    const EntryKey key(kDirectory, "n" + std::to_string(rng.below(6)));
    const Transaction transaction{1, 2, rng.below(3)};
    TreeNode node;
    node.type = static_cast<NodeType>(1 + rng.below(3));
    node.mode = static_cast<uint32_t>(rng.next());
    node.target = std::string(rng.below(9), 'x');
    Intent intent;
    intent.source = key;
    intent.moved = DirEntry{file, NodeType::kFile};
    switch (static_cast<StepKind>(1 + rng.below(18))) {
      case StepKind::kEntry:
        record.entry(key, {file, NodeType::kDirectory});
        break;
      case StepKind::kNoEntry:
        record.no_entry(key);
        break;
      case StepKind::kNode:
        record.node(file, node);
        break;
      case StepKind::kNoNode:
        record.no_node(file);
        break;
      case StepKind::kUser:
        record.user(file, key.name, std::string(rng.below(300), 'v'));
        break;
      case StepKind::kNoUser:
        record.no_user(file, key.name);
        break;
      case StepKind::kHolder:
        record.pair(StepKind::kHolder, file, rng.below(3));
        break;
      case StepKind::kNoHolder:
        record.pair(StepKind::kNoHolder, file, rng.below(3));
        break;
      case StepKind::kMember:
        record.pair(StepKind::kMember, file, rng.below(3));
        break;
      case StepKind::kNoMember:
        record.pair(StepKind::kNoMember, file, rng.below(3));
        break;
      case StepKind::kEnrolled:
        record.enrolled(file);
        break;
      case StepKind::kNotEnrolled:
        record.not_enrolled(file);
        break;
      case StepKind::kLock:
        record.lock(key, {transaction, rng.next()});
        break;
      case StepKind::kNoLock:
        record.no_lock(key);
        break;
      case StepKind::kIntent:
        record.intent(transaction, intent);
        break;
      case StepKind::kNoIntent:
        record.no_intent(transaction);
        break;
      case StepKind::kAnswer:
        record.answer({1 + rng.below(4), rng.next()}, {file, NodeType::kFile});
        break;
      case StepKind::kCounters:
        record.counters(rng.below(99), rng.below(99));
        break;
    }
  }
  return record;
}

TEST(NameTable, ATableThatIsMadeOfItsRowsIsTheSame) {
  Rng rng(1);
  NameTable table(1);
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(table.apply(change(rng).bytes()).ok());
  table.keep(table.changes());
  NameTable again(1);
  for (const std::string& each : rows(table)) ASSERT_TRUE(again.replay(each).ok());
  EXPECT_EQ(rows(again), rows(table));
  EXPECT_GT(table.entries().size(), 2u);
}

TEST(NameTable, WhatIsTakenBackLeavesTheTableAsItWas) {
  Rng rng(2);
  NameTable table(1);
  for (int round = 0; round < 200; ++round) {
    ASSERT_TRUE(table.apply(change(rng).bytes()).ok());
    table.keep(1);
    auto before = rows(table);
    const size_t count = 1 + rng.below(8);
    for (size_t i = 0; i < count; ++i) ASSERT_TRUE(table.apply(change(rng).bytes()).ok());
    const size_t kept = rng.below(count);
    table.undo_to(kept);
    EXPECT_EQ(table.changes(), kept);
    table.undo();
    auto after = rows(table);
    before.erase(before.begin()), after.erase(after.begin());  // counters do not go back
    ASSERT_EQ(after, before);
  }
}

TEST(NameTable, TheRootDirectoryIsThereFromTheStartAndItsIdIsNotDrawnAgain) {
  EXPECT_NE(NameTable(0).node(kRootDirectory), nullptr);
  EXPECT_EQ(NameTable(1).node(kRootDirectory), nullptr);
  EXPECT_EQ(NameTable(0).drawn(), kRootDirectory.low);
}

TEST(NameTable, ACounterThatNoServerReachesIsDamage) {
  constexpr uint64_t kMost = uint64_t{1} << 62;
  for (const auto& [drawn, grants] :
       std::vector<std::pair<uint64_t, uint64_t>>{{kMost, kMost}, {kMost + 1, 1}, {1, kMost + 1}}) {
    NameTable table(1);
    const bool possible = drawn <= kMost && grants <= kMost;
    EXPECT_EQ(table.replay(NameRecord().counters(drawn, grants).bytes()).code(),
              possible ? Code::kOk : Code::kCorruption);
  }
}

TEST(NameTable, ARemovedNodeTakesItsAttributesHoldersAndMembersWithIt) {
  NameTable table(1);
  TreeNode node;
  NameRecord made;
  made.node(id(3), node).user(id(3), "user.a", "1").user(id(3), "user.b", "2");
  made.pair(StepKind::kHolder, id(3), 7).pair(StepKind::kMember, id(3), 0);
  made.node(id(4), node).user(id(4), "user.c", "3");
  ASSERT_TRUE(table.apply(made.bytes()).ok());
  ASSERT_TRUE(table.apply(NameRecord().no_node(id(3)).bytes()).ok());
  EXPECT_EQ(table.user(id(3), "user.a"), nullptr);
  EXPECT_FALSE(table.held(id(3)) || table.member(id(3), 0));
  EXPECT_NE(table.user(id(4), "user.c"), nullptr);
  table.undo_to(1);
  EXPECT_EQ(*table.user(id(3), "user.b"), "2");
  EXPECT_TRUE(table.has(id(3), 7));
}

// DO NOT CHANGE THESE BYTES: records are on disk. A new kind of step is a new line.
TEST(NameRecord, GoldenBytes) {
  TreeNode node;
  node.type = NodeType::kLink;
  node.unlinked = true;
  node.mode = 0777, node.uid = 1, node.gid = 2;
  node.accessed_ns = 3, node.modified_ns = 4, node.changed_ns = -1;
  node.parent = {5, 6};
  node.move = 7;
  node.target = "t";
  Intent intent;
  intent.kind = IntentKind::kRename;
  intent.phase = IntentPhase::kFinishing;
  intent.flags = kExchange;
  intent.from = {8, 9};
  intent.source = EntryKey({1, 2}, "a");
  intent.target = EntryKey({1, 2}, "b");
  intent.moved = DirEntry{{1, 3}, NodeType::kFile};
  intent.replaced = DirEntry{{1, 4}, NodeType::kDirectory};
  intent.move = 10;
  intent.grant = 11;
  const EntryKey key({1, 2}, "a");
  const Transaction transaction{1, 2, 3};
  NameRecord record;
  record.entry(key, {{1, 3}, NodeType::kFile}).no_entry(key).node({1, 3}, node).no_node({1, 3});
  record.user({1, 3}, "u", "v").no_user({1, 3}, "u");
  for (const StepKind kind : {StepKind::kHolder, StepKind::kNoHolder, StepKind::kMember, StepKind::kNoMember})
    record.pair(kind, {1, 3}, 4);
  record.enrolled({1, 3}).not_enrolled({1, 3}).lock(key, {transaction, 4}).no_lock(moves_key());
  record.intent(transaction, intent).no_intent(transaction);
  record.answer({8, 9}, {{1, 3}, NodeType::kFile}).counters(11, 12);
  std::string hex;
  for (const char each : record.bytes()) hex += fmt::format("{:02x}", static_cast<uint8_t>(each));
  const std::string one = "0100000000000000";
  const std::string file = "0300000000000000" + one;
  const std::string directory = "0200000000000000" + one;
  const std::string by = "01000000020000000300000000000000";
  const std::string four = "0400000000000000";
  EXPECT_EQ(hex, "01" + directory + "0161" + file + "01" +                                                //
                     "02" + directory + "0161" +                                                          //
                     "03" + file + "0301" + "ff010000" + "01000000" + "02000000" +                        //
                     "0300000000000000" + four + "ffffffffffffffff" +                                     //
                     "0600000000000000" + "0500000000000000" + "0700000000000000" + "0174" +              //
                     "04" + file + "05" + file + "01750176" + "06" + file + "0175" +                      //
                     "07" + file + four + "08" + file + four + "09" + file + four + "0a" + file + four +  //
                     "0b" + file + "0c" + file + "0d" + directory + "0161" + by + four +                  //
                     "0e" + std::string(32, '0') + "00" +                                                 //
                     "0f" + by + "030202" + "0800000000000000" + "0900000000000000" +                     //
                     directory + "0161" + directory + "0162" + "03" + file + "01" + four + one + "02" +
                     "0a00000000000000" + "0b00000000000000" +                                   //
                     "10" + by + "11" + "0800000000000000" + "0900000000000000" + file + "01" +  //
                     "12" + "0b00000000000000" + "0c00000000000000");
  ASSERT_TRUE(NameTable(1).apply(record.bytes()).ok());
}

// Where an entry is must not change either: its log stays where it is.
TEST(NameRecord, GoldenPlaces) {
  EXPECT_EQ(EntryKey(kRootDirectory, "checkpoint.0001").hash, 9407360656648975302u);
  EXPECT_EQ(EntryKey({3, 77}, "a").hash, 10370559210647546526u);
  EXPECT_EQ(server_of(moves_key(), 7), 0u);
}

TEST(NameRecord, OtherBytesAreAnErrorThatNamesTheByteAndChangeNothing) {
  Rng rng(3);
  uint64_t refused = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string bytes(change(rng).bytes());
    if (rng.chance(1, 2)) bytes.resize(rng.below(bytes.size()));
    for (uint64_t flips = rng.below(3); flips > 0 && !bytes.empty(); --flips)
      bytes[rng.below(bytes.size())] ^= static_cast<char>(1 << rng.below(8));
    NameTable table(1);
    const auto before = rows(table);
    const Status status = table.apply(bytes);
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.code(), Code::kCorruption);
    EXPECT_THAT(std::string(status.message()), HasSubstr("byte"));
    auto after = rows(table);
    after[0] = before[0];  // counters may have been read before the damage
    ASSERT_EQ(after, before);
  }
  EXPECT_GT(refused, 1000u);
}

// ---- with the shard's log

struct Server {
  io::MemoryDevice memory;
  io::FaultDevice disk{memory};
  ShardOptions options;
  std::unique_ptr<NameTable> table;
  std::unique_ptr<Shard> shard;

  Server() {
    options.directory = "/names";
    options.table_bytes_min = 2000;  // checkpoints again and again
    EXPECT_TRUE(memory.make_directory(options.directory).ok());
    EXPECT_TRUE(memory.sync_directory("/").ok());
  }
  Status open() {
    shard.reset();
    table = std::make_unique<NameTable>(1);
    options.table = table.get();
    auto opened = Shard::open(disk, options);
    if (!opened.ok()) return opened.status();
    shard = *std::move(opened);
    return {};
  }
  // One change, durable when it returns OK.
  Status add(const NameRecord& record) {
    SWALE_RETURN_IF_ERROR(table->apply(record.bytes()));
    shard->add_record(record.bytes());
    SWALE_RETURN_IF_ERROR(shard->commit());
    while (auto work = shard->next_background()) {
      work->run();
      SWALE_RETURN_IF_ERROR(shard->finish(std::move(work)));
    }
    return {};
  }
};

// The power fails at every call of storage in turn, with the last write torn; what was acknowledged is there.
TEST(NameLog, ACrashAtEveryCallLosesNothingThatWasAcknowledged) {
  uint64_t points = 0;
  for (uint64_t stop = 1;; ++stop) {
    Server server;
    ASSERT_TRUE(server.open().ok());
    server.disk.clear();
    io::Fault fault;
    fault.action = io::FaultAction::kTear;
    fault.nth = stop;
    fault.from_then_on = true;
    fault.position = stop % 40;
    server.disk.inject(fault);
    Rng rng(stop % 5);
    std::vector<std::string> acknowledged = rows(*server.table), tried;
    bool failed = false;
    for (int i = 0; i < 40 && !failed; ++i) {
      const NameRecord record = change(rng);
      failed = !server.add(record).ok();
      // What has failed may have become durable before a later call failed.
      (failed ? tried : acknowledged) = rows(*server.table);
      if (failed) {
        NameTable wanted(1);
        for (const std::string& each : acknowledged) ASSERT_TRUE(wanted.replay(each).ok());
        ASSERT_TRUE(wanted.replay(record.bytes()).ok());
        tried = rows(wanted);
      }
    }
    Rng crash(stop);
    server.shard.reset();
    server.memory.crash(crash, io::CrashMode::kTearPages);
    server.disk.clear();
    const Status again = server.open();
    ASSERT_TRUE(again.ok()) << stop << ": " << again.to_string();
    const auto found = rows(*server.table);
    ASSERT_TRUE(found == acknowledged || (failed && found == tried)) << "stopped at call " << stop;
    if (!failed) break;
    ++points;
  }
  std::printf("%lu calls of storage at which the power failed\n", static_cast<unsigned long>(points));
  EXPECT_GT(points, 80u);
}

TEST(NameLog, DamageIsAnErrorThatNamesFileAndOffset) {
  Server server;
  ASSERT_TRUE(server.open().ok());
  Rng rng(4);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(server.add(change(rng)).ok());
  server.shard.reset();
  uint64_t refused = 0;
  const auto names = server.memory.list("/names");
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    const std::string path = "/names/" + name;
    auto file = server.memory.open(path, io::OpenMode::kReadWrite);
    if (!file.ok() || name.find("log") == std::string::npos) continue;
    const uint64_t size = *(*file)->size();
    for (uint64_t at = 0; at + 200 < size; at += 7) {  // the last record may pass for a torn one
      char byte = 0;
      ASSERT_TRUE((*file)->pread(at, {&byte, 1}).ok());
      const char flipped = static_cast<char>(byte ^ 0x10);
      ASSERT_TRUE((*file)->pwrite(at, {&flipped, 1}).ok());
      const Status status = server.open();
      ASSERT_TRUE((*file)->pwrite(at, {&byte, 1}).ok());
      ASSERT_FALSE(status.ok()) << path << " at " << at;
      EXPECT_EQ(status.code(), Code::kCorruption) << status.to_string();
      EXPECT_THAT(std::string(status.message()), HasSubstr(path));
      EXPECT_THAT(std::string(status.message()), HasSubstr("offset"));
      ++refused;
    }
  }
  EXPECT_GT(refused, 20u);
}

}  // namespace
}  // namespace swale::meta::name_table_test
