// LockRoot and LockNode without memory: whatever allocation fails, each request is told something, and when
// all has ended no lock is left.
#include <gtest/gtest.h>

#include <cerrno>

#include "base/contain.h"
#include "base/testing/test_allocations.h"
#include "fs/locks/lock_node.h"
#include "fs/locks/lock_root.h"

namespace swale::fs::lock_alloc_test {
namespace {

using test::Allocations;

constexpr NodeId kRoot = 0;
constexpr meta::FileId kFile{0, 7};

// Calls as RemoteLocks makes them.
struct World {
  LockRoot root;
  LockNode nodes[2] = {LockNode(1), LockNode(2)};

  // One allocation fails: what is repeated is done.
  template <class Call>
  static bool twice(const Call& call) {
    for (int i = 0; i < 2; ++i) {
      const Allocations::Library library;
      if (contain(call).ok()) return true;
    }
    return false;
  }
  void send(LockNode& node, const LockMessage& message) {
    LockAnswer answer;
    const Status asked = contain([&]() -> Status {
      const Allocations::Library library;
      SWALE_ASSIGN_OR_RETURN(answer, root.handle(message));
      return {};
    });
    asked.ok() ? node.answered(kRoot, message, answer) : node.failed(kRoot, message, false);
    for (const LockRoot::Grant& each : root.take_grants()) nodes[each.node - 1].granted(kRoot, each.number);
  }
  void settle(LockNode& node) {
    for (int tries = 0; tries < 9; ++tries)
      if (const auto owed = node.owed(kRoot)) send(node, *owed);
    EXPECT_FALSE(node.owed(kRoot));
  }
  uint64_t set(LockNode& node, const FileLock& wanted, bool waits) {
    settle(node);
    uint64_t request = 0;
    EXPECT_TRUE(twice([&] { request = node.begin(); }));
    std::optional<LockMessage> message;
    const Status made = contain([&] {
      const Allocations::Library library;
      message = node.set(request, kRoot, kFile, wanted.owner, wanted, waits);
    });
    if (made.ok())
      send(node, *message);
    else
      node.refuse(request, ENOMEM);
    return request;
  }
  void look(LockNode& node) {
    std::vector<LockNode::Due> due;
    EXPECT_TRUE(twice([&] { due = node.due(true, 9); }));
    for (const auto& each : due) send(node, each.message);
  }
};

TEST(LockAlloc, EachAllocationMayFail) {
  Allocations::spare_this_thread();
  int points = 0;
  for (int64_t n = 1;; ++n) {
    World world;
    LockNode &one = world.nodes[0], &two = world.nodes[1];
    Allocations::fail(n, 1);
    const FileLock first{.type = LockType::kWrite, .end = 10, .owner = 5};
    const FileLock second{.type = LockType::kWrite, .begin = 5, .owner = 6};
    world.set(one, first, false);
    world.set(two, second, true);
    world.set(one, {.begin = 3, .end = 8, .owner = 5}, false);
    world.set(one, {.begin = 0, .end = 10, .owner = 5}, false);
    world.look(two);
    const uint64_t third = world.set(one, {.type = LockType::kRead, .owner = 7}, true);
    one.interrupt(third);
    world.look(one);
    world.look(one);
    for (LockNode* const node : {&one, &two}) {
      EXPECT_TRUE(World::twice([&] { node->end_owner(kRoot, kFile, 6); }));
      for (const uint64_t handle : {5, 6, 7})
        EXPECT_TRUE(World::twice([&] { node->end_handle(kRoot, kFile, handle); }));
      world.settle(*node);
    }
    Allocations::stop();
    world.look(two);
    world.look(one);
    EXPECT_EQ(one.take_told().size() + two.take_told().size(), 5u) << "at allocation " << n;
    EXPECT_TRUE(one.idle() && two.idle()) << "at allocation " << n;
    EXPECT_TRUE(world.root.empty()) << "at allocation " << n;
    if (!Allocations::hit()) break;
    ++points;
  }
  std::printf("%d allocations failed\n", points);
  EXPECT_GT(points, 30);
}

}  // namespace
}  // namespace swale::fs::lock_alloc_test
