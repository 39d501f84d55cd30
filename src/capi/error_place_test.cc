#include "capi/error_place.h"

#include <gtest/gtest.h>

namespace swale::capi::error_place_test {
namespace {

TEST(ErrorPlace, IsWhatTheMessageNames) {
  const ErrorPlace block{"out/particles/jobs/0001/part-00000003.data", 8192, -1, 3};
  EXPECT_EQ(
      place_in(
          "out/particles/jobs/0001/part-00000003.data: offset 8192: block 2 has checksum 1, expected 2; run "
          "`swale verify`"),
      block);
  EXPECT_EQ(place_in("reading epoch 7: a/b c: d/index: offset 0: is no header"),
            (ErrorPlace{"d/index", 0, 7, -1}));
  EXPECT_EQ(place_in("/x/manifest.json: is of format version 9; read it with a newer swale"),
            (ErrorPlace{"/x/manifest.json", -1, -1, -1}));
  EXPECT_EQ(place_in("swale_reader_open: /x: no such directory: 2"), (ErrorPlace{"/x", -1, -1, -1}));
}

TEST(ErrorPlace, IsUnknownIfTheMessageNamesNone) {
  for (const char* text : {"", ":", ": ", "swale_reader_open: argument \"path\" is NULL", "offset 12",
                           ": offset x", "epoch", "epoch -1"}) {
    EXPECT_EQ(place_in(text), ErrorPlace()) << text;
  }
}

}  // namespace
}  // namespace swale::capi::error_place_test
