#include "run/slice_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/bits.h"
#include "base/coding.h"
#include "base/rng.h"
#include "run/format.h"

namespace swale::run::slice_search_test {
namespace {

TEST(Bits, SelectAgreesWithAWalk) {
  Rng rng(1);
  for (int round = 0; round < 2'000; ++round) {
    uint64_t word = rng.next();
    for (uint64_t i = rng.below(4); i > 0; --i) word &= rng.next();
    if (round == 0) word = ~uint64_t{0};
    if (round == 1) word = uint64_t{1} << 63;
    uint32_t seen = 0;
    for (uint32_t bit = 0; bit < 64; ++bit) {
      if ((word >> bit & 1) != 0) {
        EXPECT_EQ(select_one(word, seen), bit);
        ++seen;
      }
    }
    EXPECT_EQ(count_ones(word), seen);
  }
}

// A uniform slice made by hand, and what is in it.
struct MadeSlice {
  struct Piece {
    uint8_t bucket_bits;
    std::vector<uint64_t> fingerprints;  // bucket and remainder, ascending
  };
  std::vector<Piece> pieces;
  std::vector<char> bytes;  // exactly: a sanitizer sees reads past the end
  SlicePieces layout;

  static constexpr uint8_t kSliceBits = 3;

  void add_piece(Rng& rng, uint32_t records, uint8_t bucket_bits, bool hot) {
    Piece& piece = pieces.emplace_back(Piece{bucket_bits, {}});
    const uint64_t hottest = rng.below(uint64_t{1} << (bucket_bits + kRemainderBits));
    for (uint32_t i = 0; i < records; ++i) {
      piece.fingerprints.push_back(
          hot && rng.chance(1, 2) ? hottest : rng.below(uint64_t{1} << (bucket_bits + kRemainderBits)));
    }
    std::sort(piece.fingerprints.begin(), piece.fingerprints.end());
  }

  void build() {
    std::string headers, arrays, remainders;
    for (const Piece& piece : pieces) {
      append_u32(&headers, 0);
      append_u32(&headers,
                 static_cast<uint32_t>(piece.fingerprints.size() | uint32_t{piece.bucket_bits} << 24));
      std::vector<bool> bits;
      size_t at = 0;
      for (uint64_t bucket = 0; bucket >> piece.bucket_bits == 0; ++bucket) {
        for (; at < piece.fingerprints.size() && piece.fingerprints[at] >> kRemainderBits == bucket; ++at) {
          bits.push_back(true);
          remainders.push_back(static_cast<char>(piece.fingerprints[at]));
        }
        bits.push_back(false);
      }
      std::string array((bits.size() + 7) / 8, '\0');
      for (size_t i = 0; i < bits.size(); ++i) {
        if (bits[i]) array[i / 8] = static_cast<char>(array[i / 8] | 1 << i % 8);
      }
      arrays += array;
    }
    const std::string all = headers + arrays + remainders;
    bytes.assign(all.begin(), all.end());
    layout = {.headers = bytes.data(),
              .arrays = bytes.data() + headers.size(),
              .remainders = bytes.data() + headers.size() + arrays.size(),
              .end = bytes.data() + bytes.size(),
              .count = static_cast<uint32_t>(pieces.size()),
              .records = static_cast<uint32_t>(remainders.size()),
              .slice_bits = kSliceBits,
              .uniform = true};
  }

  // (piece, index in it, index of the rest), in the order in which a search must find them.
  using Places = std::vector<std::array<uint32_t, 3>>;
  Places expected(const std::vector<Hash>& rests) const {
    Places places;
    for (uint32_t p = 0; p < pieces.size(); ++p) {
      const uint32_t shift = 64u - kSliceBits - pieces[p].bucket_bits - kRemainderBits;
      const uint64_t mask = (uint64_t{1} << (pieces[p].bucket_bits + kRemainderBits)) - 1;
      for (uint32_t k = 0; k < rests.size(); ++k) {
        for (uint32_t i = 0; i < pieces[p].fingerprints.size(); ++i) {
          if (pieces[p].fingerprints[i] == (rests[k] >> shift & mask)) places.push_back({p, i, k});
        }
      }
    }
    return places;
  }

  Places found(const std::vector<Hash>& rests, size_t at_once, bool portable) const {
    SliceSearch search(layout, rests);
    if (portable) search.use_portable();
    std::vector<SliceMatch> matches(at_once);
    Places places;
    for (size_t count = at_once; count == at_once;) {
      count = search.next(matches);
      for (size_t i = 0; i < count; ++i) {
        places.push_back({static_cast<uint32_t>((matches[i].header - layout.headers) / 8), matches[i].index,
                          matches[i].hash});
      }
    }
    return places;
  }
};

TEST(SliceSearch, BothVersionsAgreeWithAModelInAnyOrderOfHashes) {
  Rng rng(2);
  size_t matches = 0;
  for (int round = 0; round < 300; ++round) {
    MadeSlice slice;
    const uint64_t pieces = rng.below(6);
    for (uint64_t i = 0; i < pieces; ++i) {
      slice.add_piece(rng, static_cast<uint32_t>(rng.below(400)), static_cast<uint8_t>(rng.below(9)),
                      rng.chance(1, 3));
    }
    slice.build();
    std::vector<Hash> rests;
    for (uint64_t i = rng.below(40); i > 0; --i) {
      Hash rest = rng.next();
      if (pieces > 0 && rng.chance(2, 3)) {  // one that is there
        const MadeSlice::Piece& piece = slice.pieces[rng.below(pieces)];
        if (!piece.fingerprints.empty()) {
          const uint64_t fingerprint = piece.fingerprints[rng.below(piece.fingerprints.size())];
          rest = fingerprint << (64u - MadeSlice::kSliceBits - piece.bucket_bits - kRemainderBits);
        }
      }
      rests.push_back(rest);
    }
    if (rng.chance(1, 2)) std::sort(rests.begin(), rests.end());
    const auto expected = slice.expected(rests);
    matches += expected.size();
    for (const size_t at_once : {1, 2, 32}) {
      EXPECT_EQ(slice.found(rests, at_once, false), expected);
      EXPECT_EQ(slice.found(rests, at_once, true), expected);
    }
  }
  EXPECT_GT(matches, 10'000u);
}

// Arrays that no writer makes: whatever is found names a record, and nothing outside is read.
TEST(SliceSearch, StaysInsideWhateverTheArraysHold) {
  Rng rng(3);
  for (int round = 0; round < 300; ++round) {
    MadeSlice slice;
    for (int i = 0; i < 3; ++i) {
      slice.add_piece(rng, static_cast<uint32_t>(rng.below(60)), static_cast<uint8_t>(rng.below(7)), false);
    }
    slice.build();
    const uint64_t fill = rng.below(3);
    for (char* at = slice.bytes.data() + 24; at < slice.layout.remainders; ++at) {
      *at = static_cast<char>(fill == 0 ? 0 : fill == 1 ? 0xff : rng.next());
    }
    std::vector<Hash> rests;
    for (int i = 0; i < 50; ++i) rests.push_back(rng.next());
    for (const bool portable : {false, true}) {
      for (const auto& [piece, index, hash] : slice.found(rests, 7, portable)) {
        ASSERT_LT(piece, slice.pieces.size());
        ASSERT_LT(index, slice.pieces[piece].fingerprints.size());
        ASSERT_LT(hash, rests.size());
      }
    }
  }
}

}  // namespace
}  // namespace swale::run::slice_search_test
