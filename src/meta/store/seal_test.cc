// Sealed files: what a relocation does to the runs that handles have, and seals that fail half way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/fault_device.h"
#include "io/memory_device.h"
#include "meta/store/testing/test_store_ranks.h"

namespace swale::meta::store_test {
namespace {

constexpr uint64_t kBlocks = 200;  // of a writer

// Blocks of 512 bytes of several writers by turns, each in its own log.
std::vector<Extent> part_of(net::Rank writer, int32_t writers) {
  std::vector<Extent> segments;
  for (uint64_t i = 0; i < kBlocks; ++i) {
    const uint64_t cell = i * static_cast<uint64_t>(writers) + static_cast<uint64_t>(writer);
    segments.push_back({cell * 512, 512, {static_cast<LogId>(writer), i * 512}});
  }
  return segments;
}

// Where block i of a writer is: in its log, or as the rule says.
Place place_of(net::Rank writer, uint64_t block, const Relocation* rule) {
  const Place old{static_cast<LogId>(writer), block * 512};
  if (rule == nullptr || old.log != rule->from || old.address < rule->begin || old.address >= rule->end)
    return old;
  return {rule->to.log, rule->to.address + (old.address - rule->begin)};
}

void expect_places(RankOf& rank, const File& file, int32_t writers, const Relocation* rule) {
  for (const uint64_t block : {uint64_t{0}, uint64_t{1}, kBlocks / 2, kBlocks - 1}) {
    for (net::Rank writer = 0; writer < writers; ++writer) {
      const uint64_t cell = block * static_cast<uint64_t>(writers) + static_cast<uint64_t>(writer);
      const ByteRange range{cell * 512, 512};
      Found found;
      ASSERT_TRUE(rank.client->get(file, std::span(&range, 1), &found).ok());
      ASSERT_EQ(found.extents.size(), 1u);
      EXPECT_EQ(found.extents[0].place, place_of(writer, block, rule))
          << "block " << block << " of " << writer;
    }
  }
}

void write_and_seal(RankOf& rank, File* file, int32_t writers) {
  auto opened = rank.client->open("f", Client::kCreate, 0, 0);
  ASSERT_TRUE(opened.ok());
  ASSERT_TRUE(rank.client->put(&*opened, part_of(rank.job.rank(), writers)).ok());
  barrier(rank);
  ASSERT_TRUE(rank.client->seal(&*opened).ok());
  ASSERT_NE(opened->table, nullptr);
  *file = *opened;
  barrier(rank);
}

// The table of runs follows where whole runs have moved, and goes where a part has.
void relocate_sealed(const Relocation& rule, bool keeps_a_table) {
  constexpr int32_t kRanks = 3;
  io::MemoryDevice device;
  StoreOptions options = small_ranges();
  options.servers_per_node = 2;  // rank 2 hosts none
  run_ranks(kRanks, device, options, [&](RankOf& rank) {
    File file;
    write_and_seal(rank, &file, kRanks);
    expect_places(rank, file, kRanks, nullptr);
    barrier(rank);
    if (rank.job.rank() == 0) {
      const Status moved = rank.client->relocate(rule);
      ASSERT_TRUE(moved.ok()) << moved.to_string();
    }
    barrier(rank);
    expect_places(rank, file, kRanks, &rule);  // a handle that is older
    const auto again = rank.client->open("f", 0, 0, 0);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->table != nullptr, keeps_a_table);
    expect_places(rank, *again, kRanks, &rule);
  });
  run_ranks(kRanks, device, options, [&](RankOf& rank) {
    const auto file = rank.client->open("f", 0, 0, 0);
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(file->table != nullptr, keeps_a_table);
    expect_places(rank, *file, kRanks, &rule);
  });
}

TEST(Seal, GetsByAllHandlesAnswerWhereBytesHaveMoved) { relocate_sealed({1, 0, 1 << 20, {50, 1000}}, true); }

TEST(Seal, ARunThatMovesInPartIsAskedForAtTheServers) {
  relocate_sealed({1, 512 * (kBlocks / 2), 1 << 20, {50, 7}}, false);
}

TEST(Seal, ARelocationOfAnotherLogLeavesTheTable) { relocate_sealed({9, 0, 1 << 20, {50, 7}}, true); }

// One server finds no space for its mark: as soon as the next job has the store open, the file is sealed at
// all offsets.
TEST(Seal, OneThatFailsHalfWayIsFinishedByTheNextJob) {
  io::MemoryDevice memory;
  io::FaultDevice device(memory);
  const Partition partition(2, small_ranges().range_bytes);
  std::string name;  // of a file whose root is server 0
  for (int i = 0; name.empty() || partition.root_of(name) != 0; ++i) name = fmt::format("f{}", i);
  const Extent early{0, 100, {1, 0}}, late{4096, 100, {1, 100}};  // of server 0, and of server 1
  run_ranks(2, device, small_ranges(), [&](RankOf& rank) {
    if (rank.job.rank() == 0) {
      auto file = rank.client->open(name, Client::kCreate, 0, 0);
      ASSERT_TRUE(file.ok());
      ASSERT_TRUE(rank.client->put(&*file, std::span(&early, 1)).ok());
      find_no_space(&device, "shard-000001");
      EXPECT_EQ(rank.client->seal(&*file).code(), Code::kNoSpace);
      device.clear();
      EXPECT_FALSE(rank.client->stat(name)->sealed);
      EXPECT_EQ(rank.client->truncate(&*file, 0, 0).code(), Code::kUnavailable);
      // Server 1 has not heard of it, and what it takes now is in the file that is sealed later.
      ASSERT_TRUE(rank.client->put(&*file, std::span(&late, 1)).ok());
    }
    barrier(rank);
  });
  run_ranks(2, device, small_ranges(), [&](RankOf& rank) {
    auto file = rank.client->open(name, 0, 0, 0);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(file->attributes.sealed);
    for (const Extent& each : {early, late}) {
      File blind;  // as a handle that was opened before the seal
      blind.attributes.file = file->attributes.file;
      EXPECT_EQ(rank.client->put(&blind, std::span(&each, 1)).code(), Code::kInvalidArgument) << each.offset;
      Found found;
      const ByteRange range{each.offset, each.length};
      ASSERT_TRUE(rank.client->get(*file, std::span(&range, 1), &found).ok());
      EXPECT_THAT(found.extents, testing::ElementsAre(each));
    }
  });
}

// In the same job, by whoever asks again.
TEST(Seal, OneThatFailsHalfWayIsFinishedByTheNextSeal) {
  io::MemoryDevice memory;
  io::FaultDevice device(memory);
  run_ranks(2, device, small_ranges(), [&](RankOf& rank) {
    if (rank.job.rank() == 0) {
      auto file = rank.client->open("f", Client::kCreate, 0, 0);
      ASSERT_TRUE(file.ok());
      const Extent one{0, 100, {1, 0}};
      ASSERT_TRUE(rank.client->put(&*file, std::span(&one, 1)).ok());
      for (const char* const part : {"shard-000000", "shard-000001"}) {
        find_no_space(&device, part);
        EXPECT_EQ(rank.client->seal(&*file).code(), Code::kNoSpace);
        device.clear();
      }
      ASSERT_TRUE(rank.client->seal(&*file).ok());
      EXPECT_TRUE(rank.client->stat("f")->sealed);
      ASSERT_TRUE(rank.client->remove("f").ok());
      auto again = rank.client->open("f", Client::kCreate, 0, 0);
      ASSERT_TRUE(again.ok());
      EXPECT_TRUE(rank.client->put(&*again, std::span(&one, 1)).ok());
    }
    barrier(rank);
  });
}

}  // namespace
}  // namespace swale::meta::store_test
