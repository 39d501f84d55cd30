// Numbers of epochs, of partitions and of blocks, as types that the compiler keeps apart. Two integers that
// stand side by side in a call can be swapped, and nothing notices; two numbers of different kinds cannot.
//
// An integer becomes a number only by name: `EpochNumber(3)`. A number is read as the integer that it is,
// without a cast: it indexes a vector, is compared with a count, printed, and put into a format. Numbers of
// two kinds are neither compared nor subtracted. A partition has the number of the rank that writes it:
// `PartitionNumber(rank)`.
//
// Rejected: no conversion to the integer (each index and message would need value(), and
// scripts/check-numbers.py finds what that would find); `enum class` (every `epoch + 1` needs two casts); a
// type for ranks (a struct with named members separates a rank from the size of its job as well).
//
// Threads: values. Cost: none; a number has the size of its integer and is passed in a register (as many
// instructions, counted on the tests of run builders).
#pragma once

#include <fmt/format.h>

#include <compare>
#include <concepts>
#include <cstdint>
#include <type_traits>

namespace swale {

template <class Kind, std::unsigned_integral Integer>
class Number {
 public:
  constexpr Number() = default;
  constexpr explicit Number(Integer value) : value_(value) {}

  constexpr operator Integer() const { return value_; }  // NOLINT(google-explicit-constructor): see above
  // For templates that take integers.
  constexpr Integer value() const { return value_; }

  constexpr Number& operator++() {
    ++value_;
    return *this;
  }
  template <std::integral Count>
    requires(sizeof(Count) <= sizeof(Integer))
  constexpr Number& operator+=(Count count) {
    return *this = *this + count;
  }

  // A wider count makes an integer of its width.
  template <std::integral Count>
    requires(sizeof(Count) <= sizeof(Integer))
  friend constexpr Number operator+(Number number, Count count) {
    return Number(number.value_ + static_cast<Integer>(count));
  }
  template <std::integral Count>
    requires(sizeof(Count) <= sizeof(Integer))
  friend constexpr Number operator-(Number number, Count count) {
    return Number(number.value_ - static_cast<Integer>(count));
  }
  friend constexpr Integer operator-(Number end, Number begin) { return end.value_ - begin.value_; }

  friend constexpr bool operator==(Number, Number) = default;
  friend constexpr auto operator<=>(Number, Number) = default;

 private:
  Integer value_ = 0;
};

// Of two kinds.
template <class A, class B, class I, class J>
  requires(!std::same_as<A, B>)
void operator==(Number<A, I>, Number<B, J>) = delete;
template <class A, class B, class I, class J>
  requires(!std::same_as<A, B>)
void operator<=>(Number<A, I>, Number<B, J>) = delete;
template <class A, class B, class I, class J>
  requires(!std::same_as<A, B>)
void operator-(Number<A, I>, Number<B, J>) = delete;

// Counts the commits of a directory: 0, 1, 2, ... without gaps.
using EpochNumber = Number<struct EpochKind, uint32_t>;
// The share of a job's keys that one rank indexes, and the number of that rank.
using PartitionNumber = Number<struct PartitionKind, uint32_t>;
// A block of 4 KiB in a data log.
using BlockNumber = Number<struct BlockKind, uint64_t>;

static_assert(std::is_trivially_copyable_v<EpochNumber> && sizeof(EpochNumber) == 4 &&
              sizeof(BlockNumber) == 8);

}  // namespace swale

template <class Kind, class Integer>
struct fmt::formatter<swale::Number<Kind, Integer>> : fmt::formatter<Integer> {
  template <class Context>
  auto format(swale::Number<Kind, Integer> number, Context& context) const {
    return fmt::formatter<Integer>::format(number.value(), context);
  }
};
