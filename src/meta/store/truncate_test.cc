// Truncates that fail half way: their record is durable, and a server has not cut. What is put and
// acknowledged after them stays, whoever finishes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/fault_device.h"
#include "io/memory_device.h"
#include "meta/store/testing/test_store_ranks.h"

namespace swale::meta::store_test {
namespace {

void expect_one_extent(RankOf& rank, const File& file, const Extent& expected) {
  Found found;
  const ByteRange all{0, 1 << 20};
  ASSERT_TRUE(rank.client->get(file, std::span(&all, 1), &found).ok());
  EXPECT_THAT(found.extents, testing::ElementsAre(expected));
}

constexpr Extent kAfterTheTruncate{200, 100, {7, 0}};

class AfterATruncateInVain : public testing::Test {
 protected:
  // A truncate to nothing whose record is durable and whose trim finds no space; then a put that is
  // acknowledged; then `body`.
  void run(const std::function<void(RankOf&, File&)>& body) {
    run_ranks(1, device_, small_ranges(), [&](RankOf& rank) {
      auto file = rank.client->open("f", Client::kCreate, 0, 0);
      ASSERT_TRUE(file.ok());
      const Extent old{0, 1000, {1, 0}};
      ASSERT_TRUE(rank.client->put(&*file, std::span(&old, 1)).ok());
      device_.inject({.kind = io::CallKind::kWrite,
                      .path_part = ".log-",
                      .nth = 2,  // the first one is the record of the truncate
                      .from_then_on = true,
                      .status = error(Code::kNoSpace, Scope::kFile, "no space left on the device")});
      EXPECT_EQ(rank.client->truncate(&*file, 0, 0).code(), Code::kNoSpace);
      device_.clear();
      ASSERT_TRUE(rank.client->put(&*file, std::span(&kAfterTheTruncate, 1)).ok());
      body(rank, *file);
    });
  }

  io::MemoryDevice memory_;
  io::FaultDevice device_{memory_};
};

// Neither now nor by the next job, which repeats the trim.
TEST_F(AfterATruncateInVain, WhatIsPutIsNotCut) {
  run([](RankOf& rank, File& file) { expect_one_extent(rank, file, kAfterTheTruncate); });
  run_ranks(1, device_, small_ranges(), [&](RankOf& rank) {
    const auto file = rank.client->open("f", 0, 0, 0);
    ASSERT_TRUE(file.ok());
    expect_one_extent(rank, *file, kAfterTheTruncate);
  });
}

TEST_F(AfterATruncateInVain, TheNextCutsAtItsOwnSize) {
  run([](RankOf& rank, File& file) {
    const Status truncated = rank.client->truncate(&file, 250, 0);
    EXPECT_TRUE(truncated.ok()) << truncated.to_string();
    EXPECT_EQ(rank.client->stat("f")->size, 250u);
    expect_one_extent(rank, file, {200, 50, {7, 0}});
  });
}

TEST_F(AfterATruncateInVain, ASealFinishesIt) {
  run([](RankOf& rank, File& file) {
    const Status sealed = rank.client->seal(&file);
    EXPECT_TRUE(sealed.ok()) << sealed.to_string();
    expect_one_extent(rank, file, kAfterTheTruncate);
  });
}

// Rank 1 has nothing to finish, so it would be open first, and puts at its own server, to which the trims of
// rank 0 are still on their way.
TEST(Store, NoRankIsOpenBeforeTheTrimsOfTheLastJobHaveArrived) {
  constexpr size_t kFiles = 500;
  constexpr Extent late{4096, 100, {7, 0}};  // in the range of the server after the root
  io::MemoryDevice memory;
  io::FaultDevice device(memory);
  const Partition partition(2, small_ranges().range_bytes);
  std::vector<std::string> names;
  std::vector<FileId> ids;
  for (size_t i = 0; i < 4 * kFiles; ++i) {
    const std::string name = fmt::format("f{}", i);
    if (partition.root_of(name) == 0) names.push_back(name);
  }
  run_ranks(2, device, small_ranges(), [&](RankOf& rank) {
    if (rank.job.rank() == 0) {
      find_no_space(&device, "shard-000001");
      for (const std::string& name : names) {
        auto file = rank.client->open(name, Client::kCreate, 0, 0);
        ASSERT_TRUE(file.ok());
        if (partition.server_of(file->attributes.file, late.offset) != 1) continue;
        EXPECT_EQ(rank.client->truncate(&*file, 0, 0).code(), Code::kNoSpace);
        ids.push_back(file->attributes.file);
      }
      device.clear();
      ASSERT_GT(ids.size(), kFiles / 2);
    }
    barrier(rank);
  });
  run_ranks(2, device, small_ranges(), [&](RankOf& rank) {
    for (const FileId& id : ids) {
      if (rank.job.rank() == 0) break;
      File file;
      file.attributes.file = id;
      ASSERT_TRUE(rank.client->put(&file, std::span(&late, 1)).ok());
    }
    barrier(rank);
    for (const std::string& name : names) {
      const auto file = rank.client->open(name, 0, 0, 0);
      ASSERT_TRUE(file.ok());
      if (partition.server_of(file->attributes.file, late.offset) == 1) expect_one_extent(rank, *file, late);
    }
  });
}

}  // namespace
}  // namespace swale::meta::store_test
