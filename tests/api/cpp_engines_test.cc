// swale_tier.hpp and swale_meta.hpp as a program of a user would use them: with nothing but the public
// headers and libswale.so.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "swale/swale_iond.hpp"
#include "swale/swale_meta.hpp"
#include "swale/swale_tier.hpp"

namespace {

namespace fs = std::filesystem;

class CppEngines : public testing::Test {
 protected:
  // Not in /tmp, which may be without extended attributes.
  CppEngines() : path_(fs::current_path() / ("swale-cpp-" + std::to_string(getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_ / "slow");
  }
  ~CppEngines() override { fs::remove_all(path_); }

  std::string path(const std::string& name) const { return path_ / name; }
  swale::Tier open_tier(int flags = SWALE_CREATE) const {
    return swale::Tier(path("slow"), path("ssd"), flags, "tier.size=16M,tier.policy=ssd");
  }
  template <class Fn>
  static int code_of(Fn&& fn) {
    try {
      fn();
    } catch (const swale::Error& error) {
      return error.code();
    }
    return SWALE_OK;
  }

  const fs::path path_;
};

TEST_F(CppEngines, ABufferKeepsWhatIsWritten) {
  EXPECT_EQ(code_of([&] { open_tier(0); }), SWALE_NOT_FOUND);
  {
    swale::Tier tier = open_tier();
    swale::TierFile file = tier.open_file("f", SWALE_CREATE | SWALE_EXCLUSIVE, 0600);
    file.write(100, "hello");
    file.sync();
    EXPECT_EQ(file.read(100, 10), "hello");
    EXPECT_EQ(file.read(105, 10), "");
    file.truncate(103);
    EXPECT_EQ(file.stat().size, 103u);
    EXPECT_EQ(file.stat().mode & 0777u, 0600u);
    tier.rename("f", "g");
    EXPECT_EQ(code_of([&] { tier.stat("f"); }), SWALE_NOT_FOUND);
    EXPECT_EQ(swale::sum_of(tier.stats(), "write.bytes"), 5u);
    EXPECT_TRUE(tier.losses().empty());
    EXPECT_EQ(code_of([&] { open_tier(0); }), SWALE_BUSY);
    file.close();
    tier.close();
  }
  swale::Tier tier = open_tier(0);
  EXPECT_EQ(tier.open_file("g").read(100, 10), "hel");
  tier.drain();
  EXPECT_EQ(fs::file_size(path("slow/g")), 103u);
  tier.remove("g");
  EXPECT_FALSE(fs::exists(path("slow/g")));
}

TEST_F(CppEngines, ABufferThatIsMovedIsClosedOnce) {
  swale::Tier one = open_tier();
  swale::TierFile file = one.open_file("f", SWALE_CREATE);
  swale::Tier other = std::move(one);
  swale::TierFile moved = std::move(file);
  moved.write(0, "x");
  moved.close();
  moved.close();  // of nothing: as in C
  other.close();
  EXPECT_EQ(open_tier(0).stat("f").size, 1u);
}

TEST_F(CppEngines, AStoreSaysWhereBytesAre) {
  swale::Job job;
  swale::MetaStore store(job, path("meta"), SWALE_CREATE);
  swale::MetaFile file = store.open_file("data", SWALE_CREATE | SWALE_EXCLUSIVE, 0640);
  std::vector<swale_meta_segment> all;
  for (std::uint64_t i = 0; i < 100; ++i) all.push_back({i * 4000, 1000, i * 1000, 7, 0});
  file.put(all);
  const auto found = file.get({{0, 1000}, {1000, 1000}, {4000, 8000}});
  ASSERT_EQ(found.size(), 3u);
  ASSERT_EQ(found[0].size(), 1u);
  EXPECT_EQ(found[0][0].log, 7u);
  EXPECT_TRUE(found[1].empty()) << "a hole";
  ASSERT_EQ(found[2].size(), 2u);
  EXPECT_EQ(found[2][1].address, 2000u);
  swale_meta_run query = {};
  query.length = 1000;
  query.levels = 1;
  query.level[0] = {10, 4000, 0};
  std::uint64_t blocks = 0;
  const auto runs = file.get_runs({query});
  ASSERT_EQ(runs.size(), 1u);
  for (const swale_meta_run& run : runs[0]) blocks += run.levels == 0 ? 1 : run.level[0].count;
  EXPECT_EQ(blocks, 10u);
  std::uint64_t bytes = 0, seen = 0;
  file.scan(0, [&](const swale_meta_segment& segment) {
    bytes += segment.length;
    return true;
  });
  EXPECT_EQ(bytes, 100'000u);
  file.scan(0, [&](const swale_meta_segment&) { return ++seen < 3; });
  EXPECT_EQ(seen, 3u);
  EXPECT_THROW(file.scan(0, [](const swale_meta_segment&) -> bool { throw std::runtime_error("mine"); }),
               std::runtime_error);
  EXPECT_EQ(code_of([&] { file.put({{0, 0, 0, 0, 0}}); }), SWALE_INVALID_ARGUMENT);
  store.relocate(7, 0, 1000, 8, 500);
  EXPECT_EQ(file.get({{0, 1000}})[0][0].log, 8u);
  file.truncate(4000);
  file.seal();
  file.close();
  EXPECT_EQ(store.stat("data").size, 4000u);
  EXPECT_EQ(store.stat("data").sealed, 1u);
  EXPECT_GE(swale::sum_of(store.stats(), "put.requests"), 1u);
  store.remove("data");
  EXPECT_EQ(code_of([&] { store.open_file("data"); }), SWALE_NOT_FOUND);
  store.close();
  swale::MetaStore reader(job, path("meta"), SWALE_READ_ONLY);
  EXPECT_EQ(code_of([&] { reader.open_file("new", SWALE_CREATE); }), SWALE_INVALID_ARGUMENT);
  reader.close();
  // Nobody serves: what the I/O servers' calls do beside a server, a test of the installed library says.
  EXPECT_EQ(code_of([&] { swale::IoServers servers(job); }), SWALE_INVALID_ARGUMENT);
  job.close();
}

}  // namespace
