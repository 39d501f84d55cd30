#include "tier/engine/elevator.h"

#include <gtest/gtest.h>

namespace swale::tier::elevator_test {
namespace {

Piece piece(uint64_t offset, uint32_t length) {
  return {Piece::Source::kRequest, length, offset, 0, offset, 0};
}

TEST(Elevator, ServesUpwardsAndThenFromTheLowest) {
  Elevator elevator(8, 0);
  for (const uint64_t offset : {500, 100, 900}) elevator.add(0, offset, piece(offset, 10));
  std::vector<uint64_t> order;
  elevator.take(elevator.next());  // 100
  EXPECT_EQ(elevator.head(), 110u);
  elevator.add(0, 50, piece(50, 10));
  while (!elevator.empty()) {
    const SlotIndex next = elevator.next();
    order.push_back(elevator.slot(next).offset);
    elevator.take(next);
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{500, 900, 50}));
}

TEST(Elevator, MergesAtBothEndsUpToALimitAndNeverAcrossFiles) {
  Elevator elevator(8, 40);
  elevator.add(0, 100, piece(100, 10));
  EXPECT_TRUE(elevator.would_merge(0, 110, 110, 10));
  EXPECT_TRUE(elevator.merge(0, 110, piece(110, 10)));
  EXPECT_TRUE(elevator.merge(0, 90, piece(90, 10)));
  EXPECT_FALSE(elevator.merge(1, 120, piece(120, 10)));
  EXPECT_FALSE(elevator.merge(0, 120, piece(120, 20))) << "50 bytes are above the limit";
  EXPECT_FALSE(elevator.merge(0, 125, piece(125, 5))) << "a gap";
  ASSERT_EQ(elevator.depth(), 1u);
  const Slot& slot = elevator.slot(elevator.next());
  EXPECT_EQ(slot.offset, 90u);
  EXPECT_EQ(slot.length, 30u);
  EXPECT_EQ(slot.direct_count, 3u);
  uint64_t at = slot.offset;
  for (const Piece& each : slot.pieces) {
    EXPECT_EQ(each.offset, at);
    at += each.length;
  }
}

TEST(Elevator, IsFullAtItsSlotsAndReusesThem) {
  Elevator elevator(2, 0);
  elevator.add(0, 0, piece(0, 1));
  elevator.add(0, 10, piece(10, 1));
  EXPECT_TRUE(elevator.full());
  const SlotIndex first = elevator.next();
  elevator.take(first);
  EXPECT_FALSE(elevator.full());
  elevator.release(first);
  elevator.add(0, 20, piece(20, 1));
  EXPECT_EQ(elevator.slot(first).offset, 20u);
}

TEST(Elevator, WhatIsWrittenInPassingTakesNoSlot) {
  Elevator elevator(1, 0);
  elevator.add(0, 100, piece(100, 1));
  elevator.add(0, 50, piece(50, 1), true);
  EXPECT_EQ(elevator.depth(), 1u);
  const SlotIndex first = elevator.next();
  EXPECT_EQ(elevator.slot(first).offset, 50u);
  elevator.take(first);
  EXPECT_TRUE(elevator.full()) << "the slot that counts still waits";
  elevator.take(elevator.next());
  EXPECT_EQ(elevator.depth(), 0u);
}

}  // namespace
}  // namespace swale::tier::elevator_test
