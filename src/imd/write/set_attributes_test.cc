// Attributes are committed with their epoch and go with it, whatever fails, stops or is damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "imd/check/repair.h"
#include "imd/check/verify.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::set_attributes_test {
namespace {

using testing::HasSubstr;
using What = Writer::Described;

constexpr char kDir[] = "/dir";

WriterOptions small() {
  WriterOptions options;
  options.memory_bytes = 4 * kMiB;
  return options;
}

// What a job does at one epoch, before it ends it.
struct Epoch {
  int64_t step;
  std::string directory = {};  // "": nothing is set
  std::string own = {};
};

Status write_epoch(Writer& writer, net::Rank rank, const Epoch& epoch) {
  for (int i = 0; i < 10; ++i) SWALE_RETURN_IF_ERROR(writer.append(fmt::format("{}/{}", rank, i), "value"));
  if (!epoch.directory.empty())
    SWALE_RETURN_IF_ERROR(writer.set_attributes(What::kDirectory, epoch.directory));
  if (!epoch.own.empty()) SWALE_RETURN_IF_ERROR(writer.set_attributes(What::kEpoch, epoch.own));
  return writer.epoch_end(epoch.step, 0.5);
}

// The worst of what the ranks return.
Status write(io::Device& device, int32_t ranks, const std::vector<Epoch>& epochs,
             std::optional<int64_t> resume_after = {}) {
  std::vector<Status> outcomes(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](net::Job& job) {
    Status& outcome = outcomes[static_cast<size_t>(job.rank())];
    WriterOptions options = small();
    options.resume_after = resume_after;
    auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, options);
    outcome = writer.status();
    if (!writer.ok()) return;
    for (const Epoch& epoch : epochs) {
      if (outcome.ok()) outcome = write_epoch(**writer, job.rank(), epoch);
    }
    const Status closed = (*writer)->close();
    if (outcome.ok()) outcome = closed;
  });
  for (const Status& outcome : outcomes) {
    if (!outcome.ok()) return outcome;
  }
  return {};
}

// "directory | epoch" of each epoch, as a new reader finds it.
std::vector<std::string> look(io::Device& device) {
  std::vector<std::string> found;
  const auto reader = Reader::open(device, kDir, {});
  if (!reader.ok()) return {std::string(reader.status().message())};
  const auto text = [](const Result<std::string>& result) {
    return result.ok() ? *result : std::string(result.status().message());
  };
  for (const EpochEntry& epoch : (*reader)->manifest().epochs) {
    found.push_back(fmt::format("{} | {}", text((*reader)->directory_attributes(epoch.epoch)),
                                text((*reader)->epoch_attributes(epoch.epoch))));
  }
  return found;
}

std::vector<Status> problems(io::Device& device) {
  return verify_directory(*Reader::open(device, kDir, {}).value(), 10).problems;
}

const std::vector<Epoch> kThree = {{0, R"({"units":"lj"})", R"({"box":1})"}, {10}, {20, "", R"({"box":3})"}};
const std::vector<std::string> kThreeFound = {R"({"units":"lj"} | {"box":1})", R"({"units":"lj"} | {})",
                                              R"({"units":"lj"} | {"box":3})"};

TEST(SetAttributes, AreOfTheDirectoryFromTheirEpochOnAndOfOneEpoch) {
  for (const int32_t ranks : {1, 3}) {
    io::MemoryDevice device;
    const Status status = write(device, ranks, kThree);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(look(device), kThreeFound);
    EXPECT_TRUE(problems(device).empty());
    const auto reader = Reader::open(device, kDir, {}).value();
    EXPECT_EQ(reader->directory_attributes().value(), R"({"units":"lj"})");
    EXPECT_EQ(reader->directory_attributes(3).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(reader->epoch_attributes(-1).status().code(), Code::kInvalidArgument);
  }
}

TEST(SetAttributes, TheLastCallOfAnEpochCountsAndAnEmptyObjectTakesAway) {
  io::MemoryDevice device;
  run_ranks(2, [&](net::Job& job) {
    auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, small()).value();
    EXPECT_TRUE(writer->set_attributes(What::kDirectory, R"({"a":1})").ok());
    EXPECT_TRUE(writer->set_attributes(What::kDirectory, R"({"a":2})").ok());
    EXPECT_TRUE(writer->set_attributes(What::kEpoch, R"({"b":1})").ok());
    EXPECT_TRUE(writer->set_attributes(What::kEpoch, "{}").ok());
    EXPECT_TRUE(writer->epoch_end(0, 0).ok());
    EXPECT_TRUE(writer->set_attributes(What::kDirectory, "{ }").ok());
    EXPECT_TRUE(writer->epoch_end(1, 0).ok());
    EXPECT_TRUE(writer->set_attributes(What::kEpoch, R"({"never":"committed"})").ok());
    EXPECT_TRUE(writer->close().ok());
  });
  EXPECT_EQ(look(device), (std::vector<std::string>{R"({"a":2} | {})", "{} | {}"}));
  EXPECT_TRUE(problems(device).empty());
}

TEST(SetAttributes, AnEpochThatIsEndingKeepsItsOwnAndTheNextOneGetsItsOwn) {
  io::MemoryDevice device;
  run_ranks(3, [&](net::Job& job) {
    auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, small()).value();
    for (int epoch = 0; epoch < 20; ++epoch) {
      EXPECT_TRUE(writer->epoch_end_wait().ok());
      EXPECT_TRUE(writer->epoch_end_begin(epoch, 0).ok());
      const Status set = writer->set_attributes(What::kEpoch, fmt::format(R"({{"n":{}}})", epoch + 1));
      EXPECT_TRUE(set.ok()) << set.to_string();
    }
    EXPECT_TRUE(writer->close().ok());
  });
  const std::vector<std::string> found = look(device);
  ASSERT_EQ(found.size(), 20u);
  for (int epoch = 0; epoch < 20; ++epoch)
    EXPECT_EQ(found[static_cast<size_t>(epoch)],
              epoch == 0 ? "{} | {}" : fmt::format(R"({{}} | {{"n":{}}})", epoch));
}

TEST(SetAttributes, AnEpochThatStaysOpenForAWrongStepKeepsThem) {
  io::MemoryDevice device;
  run_ranks(2, [&](net::Job& job) {
    WriterOptions options = small();
    options.steps = WriterOptions::Steps::kIncreasing;
    auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, options).value();
    EXPECT_TRUE(writer->epoch_end(5, 0).ok());
    EXPECT_TRUE(writer->set_attributes(What::kEpoch, R"({"a":1})").ok());
    EXPECT_EQ(writer->epoch_end(5, 0).code(), Code::kInvalidArgument);
    EXPECT_TRUE(writer->epoch_end(6, 0).ok());
    EXPECT_TRUE(writer->close().ok());
  });
  EXPECT_EQ(look(device)[1], R"({} | {"a":1})");
}

TEST(SetAttributes, LaterJobsContinueThemAndResumeAfterDropsThemWithTheirEpochs) {
  io::MemoryDevice device;
  ASSERT_TRUE(
      write(device, 2, {{0, R"({"v":1})"}, {10, R"({"v":2})", R"({"e":10})"}, {20, R"({"v":3})"}}).ok());
  ASSERT_TRUE(write(device, 1, {{30}, {40, "", R"({"e":40})"}}).ok());
  EXPECT_EQ(look(device),
            (std::vector<std::string>{R"({"v":1} | {})", R"({"v":2} | {"e":10})", R"({"v":3} | {})",
                                      R"({"v":3} | {})", R"({"v":3} | {"e":40})"}));
  ASSERT_TRUE(write(device, 3, {{15}}, 10).ok());
  EXPECT_EQ(look(device),
            (std::vector<std::string>{R"({"v":1} | {})", R"({"v":2} | {"e":10})", R"({"v":2} | {})"}));
  ASSERT_TRUE(write(device, 2, {{1, "", R"({"e":1})"}}, -1).ok());
  EXPECT_EQ(look(device), (std::vector<std::string>{R"({} | {"e":1})"}));
  EXPECT_TRUE(problems(device).empty());
}

TEST(SetAttributes, RanksThatDifferOrGiveNoJsonChangeNothingAndGoOn) {
  io::MemoryDevice device;
  run_ranks(3, [&](net::Job& job) {
    auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, small()).value();
    EXPECT_TRUE(writer->set_attributes(What::kDirectory, R"({"a":1})").ok());
    const bool odd = job.rank() == 2;
    const Status differs = writer->set_attributes(What::kDirectory, odd ? R"({"a":3})" : R"({"a":2})");
    EXPECT_EQ(differs.code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(differs.message()), HasSubstr("rank 2 sets other attributes than rank 0"));
    const Status other = writer->set_attributes(odd ? What::kEpoch : What::kDirectory, R"({"a":2})");
    EXPECT_EQ(other.code(), Code::kInvalidArgument) << other.to_string();
    const Status wrong = writer->set_attributes(What::kEpoch, job.rank() == 1 ? "no JSON" : R"({"a":2})");
    EXPECT_EQ(wrong.code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(wrong.message()), HasSubstr("rank 1"));
    EXPECT_TRUE(writer->append(fmt::format("{}", job.rank()), "value").ok());
    EXPECT_TRUE(writer->epoch_end(0, 0).ok());
    EXPECT_TRUE(writer->close().ok());
  });
  EXPECT_EQ(look(device), (std::vector<std::string>{R"({"a":1} | {})"}));
}

TEST(SetAttributes, AReaderSeesThoseOfItsView) {
  io::MemoryDevice device;
  ASSERT_TRUE(write(device, 1, {{0, R"({"v":1})"}}).ok());
  const auto reader = Reader::open(device, kDir, {}).value();
  run_ranks(1, [&](net::Job& job) {
    auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, small()).value();
    for (int n = 2; n < 6; ++n) {
      const std::string before = reader->directory_attributes().value();
      EXPECT_TRUE(writer->set_attributes(What::kDirectory, fmt::format(R"({{"v":{}}})", n)).ok());
      EXPECT_TRUE(writer->append("k", "value").ok());
      EXPECT_TRUE(writer->epoch_end(n, 0).ok());
      EXPECT_EQ(reader->directory_attributes().value(), before);
      EXPECT_TRUE(reader->refresh().value().added);
      EXPECT_EQ(reader->directory_attributes().value(), fmt::format(R"({{"v":{}}})", n));
      EXPECT_EQ(reader->directory_attributes(0).value(), R"({"v":1})");
    }
    EXPECT_TRUE(writer->close().ok());
  });
}

// A build that does not know the feature refuses the directory, from before the first epoch that has any.
TEST(SetAttributes, TheManifestSaysThatThereAreSome) {
  io::MemoryDevice device;
  const auto feature = [&] { return Reader::open(device, kDir, {}).value()->manifest().has_attributes; };
  ASSERT_TRUE(write(device, 2, {{0}}).ok());
  EXPECT_FALSE(feature());
  run_ranks(2, [&](net::Job& job) {
    auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, small()).value();
    EXPECT_TRUE(writer->set_attributes(What::kEpoch, R"({"a":1})").ok());
    EXPECT_TRUE(writer->epoch_end(1, 0).ok());
    EXPECT_TRUE(job.rank() != 0 || feature());
    EXPECT_TRUE(writer->close().ok());
  });
  ASSERT_TRUE(write(device, 1, {{2}}).ok());
  EXPECT_TRUE(feature());
}

// Storage fails at the n-th call, or the machine stops there, for every n: an epoch that is there has its
// attributes, and nothing else is wrong.
TEST(SetAttributes, AFailureOrCrashAtAnyCallLeavesEpochsWithTheirAttributes) {
  uint64_t points = 0;
  uint64_t cut = 0;
  for (const bool crash : {false, true}) {
    for (uint64_t n = 1;; ++n, ++points) {
      io::MemoryDevice memory;
      ASSERT_TRUE(write(memory, 1, {{-10, R"({"old":1})"}}).ok());
      io::FaultDevice device(memory);
      device.inject({.nth = n, .from_then_on = crash});
      const Status status = write(device, 1, kThree);
      const bool faulty = device.faults() != 0;
      Rng rng(n);
      if (crash) memory.crash(rng, io::CrashMode::kTearPages);
      std::vector<std::string> expected = {R"({"old":1} | {})"};
      expected.insert(expected.end(), kThreeFound.begin(), kThreeFound.end());
      const std::vector<std::string> found = look(memory);
      ASSERT_LE(found.size(), expected.size());
      expected.resize(found.size());
      ASSERT_EQ(found, expected) << "call " << n << ": " << status.to_string();
      ASSERT_TRUE(problems(memory).empty()) << "call " << n << ": " << problems(memory).front().to_string();
      ASSERT_FALSE(status.ok() && found.size() < 4);
      cut += found.size() < 4 ? 1 : 0;
      if (!faulty) break;
    }
  }
  EXPECT_GT(cut, 50u);
  fmt::print("visited {} failures and crashes, {} of them before the last commit\n", points, cut);
}

// Canary: without the sync of the lines, a crash leaves epochs that point to nothing.
TEST(SetAttributes, CanaryALineThatIsNotDurableIsNoticed) {
  io::MemoryDevice memory;
  io::FaultDevice device(memory);
  device.inject({.action = io::FaultAction::kDrop,
                 .kind = io::CallKind::kSync,
                 .path_part = "attributes.jsonl",
                 .from_then_on = true});
  ASSERT_TRUE(write(device, 1, kThree).ok());
  Rng rng(1);
  memory.crash(rng, io::CrashMode::kDropAll);
  EXPECT_NE(look(memory), kThreeFound);
  EXPECT_FALSE(problems(memory).empty());
}

// Every byte of the lines: a reader says so, with file and offset, and of other epochs it is right; verify
// says so; repair takes away what is damaged, and the directory has what an earlier epoch brought.
TEST(SetAttributes, EveryDamagedByteIsToldAndRepaired) {
  io::MemoryDevice written;
  ASSERT_TRUE(write(written, 1, {{0, R"({"v":1})"}, {10, R"({"v":2})", R"({"e":10})"}, {20}}).ok());
  const std::string path = attributes_path(kDir, 1);
  const std::string lines = io::read_file(written, path, kMiB).value();
  const size_t second = lines.find('\n') + 1;
  for (size_t at = 0; at < lines.size(); ++at) {
    io::MemoryDevice device;
    ASSERT_TRUE(write(device, 1, {{0, R"({"v":1})"}, {10, R"({"v":2})", R"({"e":10})"}, {20}}).ok());
    const char wrong = static_cast<char>(lines[at] ^ 0x15);
    ASSERT_TRUE(device.open(path, io::OpenMode::kReadWrite).value()->pwrite(at, {&wrong, 1}).ok());
    const size_t hit = at < second ? 0 : 1;
    const std::vector<std::string> found = look(device);
    EXPECT_THAT(found[hit], HasSubstr(fmt::format("{}: offset {}", path, hit == 0 ? 0 : second))) << at;
    EXPECT_EQ(found[hit == 0 ? 2 : 0], hit == 0 ? R"({"v":2} | {})" : R"({"v":1} | {})");
    EXPECT_EQ(problems(device).size(), 1u) << "one for the line, not for each epoch that refers to it";
    const auto report = repair_directory(device, kDir, {});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_THAT(report->lost, testing::Contains(HasSubstr(fmt::format("attributes of epoch {}", hit))));
    EXPECT_TRUE(problems(device).empty());
    EXPECT_EQ(look(device),
              hit == 0 ? (std::vector<std::string>{"{} | {}", R"({"v":2} | {"e":10})", R"({"v":2} | {})"})
                       : (std::vector<std::string>{R"({"v":1} | {})", R"({"v":1} | {})", R"({"v":1} | {})"}));
    EXPECT_TRUE(repair_directory(device, kDir, {})->done.empty()) << "nothing is left to repair";
  }
  fmt::print("damaged each of {} bytes\n", lines.size());
}

TEST(SetAttributes, RepairKeepsThemWhenDocumentsAreLost) {
  io::MemoryDevice device;
  ASSERT_TRUE(write(device, 2, kThree).ok());
  for (const std::string& path : {manifest_path(kDir), generation_path(kDir, 1), generation_path(kDir, 0)})
    static_cast<void>(device.remove(path));
  ASSERT_TRUE(repair_directory(device, kDir, {}).ok());
  EXPECT_EQ(look(device), kThreeFound);
  EXPECT_TRUE(Reader::open(device, kDir, {}).value()->manifest().has_attributes);
}

}  // namespace
}  // namespace swale::imd::set_attributes_test
