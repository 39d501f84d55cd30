#include "base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/rng.h"

namespace swale::hash_test {
namespace {

std::string random_bytes(Rng& rng, size_t bytes) {
  std::string out(bytes, '\0');
  for (char& byte : out) byte = static_cast<char>(rng.next());
  return out;
}

TEST(Hash, IsXxh3) {
  EXPECT_EQ(hash_bytes(""), 0x2d06800538d394c2u);
  EXPECT_EQ(hash_bytes("12345678"), hash_bytes_of_any_length("12345678"));
  EXPECT_EQ(hash_bytes_seeded("", 0), hash_bytes(""));
  EXPECT_NE(hash_bytes_seeded("a", 1), hash_bytes("a"));
}

TEST(Hash, ChoicesLeaveAFreshRest) {
  EXPECT_EQ(choose(0x8000000000000001, 1).index, 0u);
  EXPECT_EQ(choose(0x8000000000000001, 1).rest, 0x8000000000000001u);
  EXPECT_EQ(choose(0xc000000000000000, 4).index, 3u);
  EXPECT_EQ(choose(0xc000000000000000, 4).rest, 0u);
}

// By the text of docs/formats/manifest.md, with nothing shared.
uint64_t digest_by_the_book(const std::string& row, uint64_t key_bytes) {
  const uint64_t n = row.size();
  const auto word = [&](const std::string& bytes, size_t at) {
    uint64_t value = 0;
    for (size_t i = 8; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
    return value;
  };
  uint64_t sum = (n * 256 | key_bytes) * 0x2d358dccaa6c78a5;
  uint64_t first = 0x9e3779b97f4a7c15;
  const auto add = [&](const std::string& bytes, size_t at) {
    const Uint128 wide =
        static_cast<Uint128>(word(bytes, at) ^ first) * (word(bytes, at + 8) ^ 0xd1b54a32d192ed03);
    sum += static_cast<uint64_t>(wide >> 64) ^ static_cast<uint64_t>(wide);
    first += 0x8bb84b93962eacc8;
  };
  size_t at = 0;
  for (; at + 16 <= n; at += 16) add(row, at);
  if (at != n) n < 16 ? add(row + std::string(16 - n, '\0'), 0) : add(row, n - 16);
  sum = (sum ^ sum >> 32) * 0x2d358dccaa6c78a5;
  return sum ^ sum >> 29;
}

// In memory of just its size, so that the address sanitizer sees a read beyond.
std::vector<char> vector_of(const std::string& text) { return {text.begin(), text.end()}; }

TEST(RecordDigest, IsAsTheFormatSays) {
  Rng rng(1);
  for (size_t bytes = 1; bytes < 200; ++bytes) {
    const std::string row = random_bytes(rng, bytes);
    const size_t key_bytes = 1 + bytes / 3;
    const uint64_t expected = digest_by_the_book(row, key_bytes);
    EXPECT_EQ(record_digest(row, key_bytes), expected) << bytes;
    const auto expect_same = [&](uint64_t digest) { EXPECT_EQ(digest, expected) << bytes; };
    if (bytes == 16) expect_same(record_digest_of<1, false>(row.data(), bytes, key_bytes));
    if (bytes == 48) expect_same(record_digest_of<3, false>(row.data(), bytes, key_bytes));
    if (bytes > 16 && bytes < 32) expect_same(record_digest_of<1, true>(row.data(), bytes, key_bytes));
    if (bytes > 128 && bytes < 144) expect_same(record_digest_of<8, true>(row.data(), bytes, key_bytes));
  }
  EXPECT_EQ(record_digest("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL", 8), 14218936686790043401u);
}

// Every size that it takes; it reads nothing outside key and value, which lie apart, and writes nothing
// behind the row.
TEST(CopyAndDigest, MakesTheRowAndItsDigest) {
  Rng rng(2);
  for (size_t bytes = 0; bytes < 128; ++bytes) {
    const std::vector<char> key = vector_of(random_bytes(rng, 8));
    const std::vector<char> value = vector_of(random_bytes(rng, bytes));
    const std::string row = std::string(key.begin(), key.end()) + std::string(value.begin(), value.end());
    std::string out(row.size() + 1, '#');
    const char none = 0;
    EXPECT_EQ(copy_and_digest(out.data(), key.data(), {bytes == 0 ? &none : value.data(), bytes}),
              record_digest(row, 8))
        << bytes;
    EXPECT_EQ(out, row + '#') << bytes;
  }
}

TEST(RecordDigest, SeesEveryBitTheSplitAndTheLength) {
  Rng rng(2);
  for (const size_t bytes : {1, 7, 8, 15, 16, 17, 31, 48, 100}) {
    std::string row = random_bytes(rng, bytes);
    std::set<uint64_t> digests = {record_digest(row, 1), record_digest(row + '\0', 1)};
    if (bytes > 1) digests.insert(record_digest(row, 2));
    for (size_t bit = 0; bit < bytes * 8; ++bit) {
      row[bit / 8] = static_cast<char>(row[bit / 8] ^ 1 << bit % 8);
      digests.insert(record_digest(row, 1));
      row[bit / 8] = static_cast<char>(row[bit / 8] ^ 1 << bit % 8);
    }
    EXPECT_EQ(digests.size(), 2 + (bytes > 1 ? 1 : 0) + bytes * 8) << bytes;
  }
}

// What a plain sum of words would not see.
TEST(RecordDigest, SeesValuesThatHaveChangedPlaces) {
  Rng rng(3);
  for (int i = 0; i < 1000; ++i) {
    const std::string keys[] = {random_bytes(rng, 8), random_bytes(rng, 8)};
    const std::string values[] = {random_bytes(rng, 40), random_bytes(rng, 40)};
    for (size_t at = 0; at < 40; at += 8) {  // one word of the value, or all of it
      std::string swapped[] = {values[0], values[1]};
      const size_t count = at == 0 ? 40 : 8;
      swapped[0].replace(at, count, values[1], at, count);
      swapped[1].replace(at, count, values[0], at, count);
      ASSERT_NE(record_digest(keys[0] + values[0], 8) + record_digest(keys[1] + values[1], 8),
                record_digest(keys[0] + swapped[0], 8) + record_digest(keys[1] + swapped[1], 8));
    }
  }
}

}  // namespace
}  // namespace swale::hash_test
