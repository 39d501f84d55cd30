// NodeFiles and Drain without memory: an allocation that fails is an error, nothing is lost, and the call may
// be repeated.
#include <gtest/gtest.h>

#include "base/testing/test_allocations.h"
#include "fs/node/drain.h"
#include "fs/node/testing/node_rig.h"

namespace swale::fs::node_alloc_test {
namespace {

using test::Allocations;

class NodeAllocTest : public NodeRig {
 protected:
  void SetUp() override { Allocations::spare_this_thread(); }
};

TEST_F(NodeAllocTest, EachAllocationMayFail) {
  small_chunks(64 * 1024, 8);
  int points = 0;
  for (int64_t n = 1;; ++n) {
    options_.memory_directory = memory_.path() + "/node" + std::to_string(n);
    options_.spill_directory = storage_.path() + "/spill" + std::to_string(n);
    put_file(disk_, "/b/other", "0123456789");
    static_cast<void>(disk_.remove("/b/file"));
    restart();
    start_writer();
    std::unique_ptr<Drain> drain;
    Allocations::fail(n, 1);
    // Everything is tried again once: one allocation fails.
    const auto twice = [&](const auto& call) {
      Status status;
      for (int i = 0; i < 2; ++i) {
        const Allocations::Library library;
        status = call();
        if (status.ok()) break;
      }
      EXPECT_TRUE(status.ok()) << status.to_string() << " at allocation " << n;
    };
    const auto open_drain = [&]() -> Status {
      SWALE_ASSIGN_OR_RETURN(drain, Drain::open(*node_, backing_, {.job = "j"}));
      return {};
    };
    twice(open_drain);
    twice([&] { return node_->open_file(kFile); });
    twice([&] { return node_->open_file(kOther); });
    std::string expected;
    for (uint64_t i = 0; i < 6; ++i) {
      const std::string bytes = pattern(i, 20'000);
      write(kFile, i * 10'000, bytes);
      write(kOther, i * 3, bytes.substr(0, 2));
      expected.resize(i * 10'000);
      expected += bytes;
      twice([&] { return node_->serve(); });
    }
    twice([&] { return node_->truncate(kFile, 50'000); });
    expected.resize(50'000);
    std::string out(50'000, '\0');
    twice([&] { return node_->read(kFile, 0, out).status(); });
    EXPECT_EQ(out, expected) << "at allocation " << n;
    twice([&] { return drain->all(); });
    twice([&] { return node_->remove(kOther); });
    Allocations::stop();
    const bool hit = Allocations::hit();
    ASSERT_EQ(content_of(disk_, "/b/file"), expected) << "at allocation " << n;
    ASSERT_EQ(content_of(disk_, "/b/other").substr(0, 5), pattern(0, 2) + "2" + pattern(1, 2));
    ASSERT_EQ(node_->logs().live_bytes(), 0u) << "at allocation " << n;
    drain.reset();
    restart();
    ASSERT_EQ(node_->logs().live_bytes(), 0u) << "at allocation " << n;
    node_.reset();
    std::filesystem::remove_all(options_.memory_directory);
    std::filesystem::remove_all(options_.spill_directory);
    if (!hit) break;
    ++points;
  }
  std::printf("%d allocations failed\n", points);
  EXPECT_GT(points, 100);
}

}  // namespace
}  // namespace swale::fs::node_alloc_test
