// What tests of damage and repair do with one damaged directory: ask everything, repair, ask again.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "imd/check/repair.h"
#include "imd/testing/test_repair.h"
#include "io/memory_device.h"

namespace swale::imd::test {

inline std::string joined(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "\n  "));
}

struct Counts {
  uint64_t cases = 0;
  uint64_t before_right = 0;
  uint64_t before_errors = 0;
  uint64_t right = 0;
  uint64_t errors = 0;
  uint64_t lossless = 0;   // repairs that lost nothing
  uint64_t refused = 0;    // by repair
  uint64_t recovered = 0;  // epochs that were open
};

inline void append_an_epoch(io::Device& device, Truth* truth) {
  Contents& contents = truth->epochs.emplace_back();
  run_ranks(2, [&](net::Job& job) {
    WriterOptions options;
    options.memory_bytes = 20 * kMiB;  // enough for every format
    auto writer = Writer::open(job, device, kRepairDir, Writer::Create::kNever, options);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    if (job.rank() == 1) {
      for (int i = 0; i < 20; ++i) {
        const std::string key = fmt::format("key-{}", i % 7);
        contents[key].push_back(fmt::format("{:020}", i));
        ASSERT_TRUE((*writer)->append(key, contents[key].back()).ok());
      }
    }
    const Status ended = (*writer)->epoch_end(1'000, 0);
    ASSERT_TRUE(ended.ok()) << ended.to_string();
    ASSERT_TRUE((*writer)->close().ok());
  });
  truth->sort();
}

// Repairs what is in `image`, asks before and after, repairs again, and lets a job go on.
inline void check_case(const Image& image, const Truth& truth, bool go_on, Counts* counts) {
  io::MemoryDevice device;
  put_back(image, device);
  ++counts->cases;
  Asker before(device, truth);
  const auto wrong_before = before.run();
  EXPECT_TRUE(wrong_before.empty()) << "before repair: " << joined(wrong_before);
  counts->before_right += before.right();
  counts->before_errors += before.errors();
  const auto report = repair_directory(device, kRepairDir, {});
  if (!report.ok()) {
    EXPECT_THAT(report.status().code(), testing::AnyOf(Code::kUnsupported, Code::kNotFound))
        << report.status().to_string();
    ++counts->refused;
    return;
  }
  Asker after(device, truth);
  const auto wrong = after.run();
  EXPECT_TRUE(wrong.empty()) << "after repair: " << joined(wrong) << "\n" << joined(report->lost);
  counts->right += after.right();
  counts->recovered += report->epochs_recovered;
  counts->errors += after.errors();
  if (report->lost.empty()) {
    ++counts->lossless;
    EXPECT_EQ(after.errors(), 0u) << "nothing was said to be lost, but: " << joined(after.error_messages());
  }
  const auto again = repair_directory(device, kRepairDir, {});
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(again->done.empty()) << "again: " << joined(again->done)
                                   << "\n first: " << joined(report->done);
  EXPECT_EQ(again->lost_parts, report->lost_parts);
  if (!go_on) return;
  Truth more = truth;
  const auto reader = Reader::open(device, kRepairDir, {});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  for (size_t i = more.epochs.size(); i < (*reader)->manifest().epochs.size(); ++i) return;
  append_an_epoch(device, &more);
  more.uncommitted.clear();
  Asker later(device, more);
  const auto wrong_later = later.run();
  EXPECT_TRUE(wrong_later.empty()) << "after another job: " << joined(wrong_later);
  EXPECT_EQ(later.errors() > 0, after.errors() > 0);
}

}  // namespace swale::imd::test
