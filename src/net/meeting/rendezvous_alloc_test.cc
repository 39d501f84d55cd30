// Memory runs out while a rank leaves the directory in which it has met the others: its process goes on.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <iterator>

#include "base/testing/test_allocations.h"
#include "net/meeting/rendezvous.h"

namespace swale::net::rendezvous_alloc_test {
namespace {

using swale::test::Allocations;

class First final : public Survey {
 public:
  void take(Rank, size_t, Bytes) override {}
  std::string answer() override { return "met"; }
};

ptrdiff_t descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

TEST(RendezvousWithoutMemory, LeavingEndsNoProcess) {
  Allocations::spare_this_thread();
  const ptrdiff_t before = descriptors();
  char path[] = "/tmp/swale_rendezvous_XXXXXX";
  RendezvousOptions options;
  options.directory = ::mkdtemp(path);
  options.job_id = "job";
  options.node_id = "node";
  int64_t n = 1;
  for (bool hit = true; hit; ++n) {
    ASSERT_LT(n, 100) << "it allocates without end";
    auto rank = rendezvous_bootstrap(options);
    ASSERT_TRUE(rank.ok()) << rank.status().to_string();
    First survey;
    const auto met = (*rank)->ask("hello", &survey);
    ASSERT_TRUE(met.ok()) << met.status().to_string();
    Allocations::fail(n, test::kForGood);
    {
      const Allocations::Library inside;
      rank->reset();
    }
    Allocations::stop();
    hit = Allocations::hit();
  }
  EXPECT_GT(n, 3) << "it allocates nothing";
  EXPECT_EQ(descriptors(), before);
  std::filesystem::remove_all(options.directory);
}

}  // namespace
}  // namespace swale::net::rendezvous_alloc_test
