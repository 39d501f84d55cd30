#include "base/codec.h"

#include <gtest/gtest.h>

#include <string>

#include "base/coding.h"
#include "base/rng.h"

namespace swale::codec_test {
namespace {

std::string sample(Rng& rng, size_t bytes, uint32_t alphabet) {
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(rng.below(alphabet));
  return text;
}

TEST(Codec, WhatWasCompressedComesBack) {
  Rng rng(1);
  size_t points = 0;
  for (const Codec codec : {Codec::kLz4, Codec::kZstd}) {
    Compressor compressor = Compressor::create(codec).value();
    for (const size_t bytes : {1, 2, 100, 4'072, 30'000}) {
      for (const uint32_t alphabet : {1, 4, 200}) {
        const std::string text = sample(rng, bytes, alphabet);
        std::string out(bytes + 600, '\x5a');
        const size_t stored = compressor.compress(text, out);
        ASSERT_GT(stored, 0u);
        std::string back(bytes, '\0');
        ASSERT_TRUE(decompress(codec, Bytes(out).substr(0, stored), back));
        ASSERT_EQ(back, text);
        if (bytes >= 4'072 && alphabet == 4) {
          EXPECT_LT(stored, bytes * 3 / 4);
        }
        ++points;
      }
    }
  }
  std::printf("%zu points\n", points);
}

TEST(Codec, WhatDoesNotFitIsRefusedAndNothingIsWrittenBehindIt) {
  Rng rng(2);
  const std::string text = sample(rng, 8'000, 256);
  for (const Codec codec : {Codec::kNone, Codec::kLz4, Codec::kZstd}) {
    Compressor compressor = Compressor::create(codec).value();
    std::string out(4'000, '\x5a');
    EXPECT_EQ(compressor.compress(text, MutableBytes(out.data(), 3'000)), 0u);
    EXPECT_EQ(out.substr(3'000), std::string(1'000, '\x5a'));
  }
}

// Damaged bytes either do not decompress, or to so many bytes as were asked for; sanitizers and fuzz/ watch
// the rest.
TEST(Codec, DamagedBytesAreRefusedOrHaveTheRightSize) {
  Rng rng(3);
  size_t refused = 0;
  for (const Codec codec : {Codec::kLz4, Codec::kZstd}) {
    Compressor compressor = Compressor::create(codec).value();
    const std::string text = sample(rng, 2'000, 8);
    std::string stored(3'000, '\0');
    stored.resize(compressor.compress(text, stored));
    for (size_t at = 0; at < stored.size(); ++at) {
      std::string damaged = stored;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << at % 8);
      std::string back(text.size(), '\0');
      refused += decompress(codec, damaged, back) ? 0 : 1;
      std::string cut_back(text.size(), '\0');
      EXPECT_FALSE(decompress(codec, Bytes(stored).substr(0, at), cut_back)) << at;
    }
    std::string longer(text.size() + 1, '\0');
    EXPECT_FALSE(decompress(codec, stored, longer));
    std::string shorter(text.size() - 1, '\0');
    EXPECT_FALSE(decompress(codec, stored, shorter));
  }
  EXPECT_GT(refused, 10u) << "canary: nothing was ever refused";
}

TEST(Codec, NamesGoBothWays) {
  for (const Codec codec : {Codec::kNone, Codec::kLz4, Codec::kZstd})
    EXPECT_EQ(codec_named(codec_name(codec)), codec);
  EXPECT_FALSE(codec_named("snappy"));
  EXPECT_FALSE(codec_named("as_made"));
}

TEST(Codec, RowsBecomeColumnsAndRowsAgain) {
  std::string out(7, '\0');
  transpose_rows("abcABC!", 3, out);
  EXPECT_EQ(out, "aAbBcC!");
  Rng rng(4);
  for (size_t bytes = 1; bytes < 200; bytes += 7) {
    for (size_t row_bytes = 1; row_bytes <= bytes + 1; ++row_bytes) {
      const std::string text = sample(rng, bytes, 256);
      std::string columns(bytes, '\0');
      std::string back(bytes, '\0');
      transpose_rows(text, row_bytes, columns);
      restore_rows(columns, row_bytes, back);
      ASSERT_EQ(back, text);
    }
  }
}

}  // namespace
}  // namespace swale::codec_test
