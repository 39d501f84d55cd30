// verify_directory: what only it notices. Damage of all kinds is in read/reader_damage_test.cc and
// read/reader_flip_test.cc.
#include "imd/check/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/coding.h"
#include "base/crc32c.h"
#include "imd/testing/test_directory.h"
#include "io/memory_device.h"
#include "run/block.h"

namespace swale::imd::verify_test {
namespace {

using testing::HasSubstr;

// Changes the header of partition 0's first run, and seals the block again.
void change_header(io::Device& device, void (*change)(run::RunHeader*)) {
  const auto file =
      device.open(data_log_path("/dir", {1, PartitionNumber(0)}), io::OpenMode::kReadWrite).value();
  std::string block(run::kBlockBytes, '\0');
  ASSERT_TRUE(file->pread(0, MutableBytes(block.data(), block.size())).ok());
  auto header = get_fixed<run::RunHeader>(block.data());
  change(&header);
  put_fixed(block.data(), header);
  put_u32(block.data() + 60,
          crc32c_extend(run::partition_seed(PartitionNumber(0)), Bytes(block).substr(0, 60)));
  put_u32(block.data() + run::kBlockBytes - 4,
          crc32c_extend(run::epoch_seed(PartitionNumber(0), header.epoch_id),
                        Bytes(block).substr(0, run::kBlockBytes - 4)));
  ASSERT_TRUE(file->pwrite(0, block).ok());
}

// The header says of which job a run is, and so does the manifest.
TEST(Verify, NamesARunOfAnotherKindOfJob) {
  const auto problem_after = [](void (*change)(run::RunHeader*)) {
    io::MemoryDevice device;
    test::TestDirectory directory(device, "/dir");
    directory.begin_job(1, 1);
    directory.write_epoch({{"key", "value"}});
    change_header(device, change);
    const auto reader = Reader::open(device, "/dir", {}).value();
    EXPECT_EQ(reader->get("key", 0).value()[0].bytes, "value");
    const VerifyReport report = verify_directory(*reader, 10);
    return report.problems.empty() ? std::string() : std::string(report.problems.front().message());
  };
  EXPECT_EQ(problem_after([](run::RunHeader*) {}), "");
  EXPECT_THAT(problem_after([](run::RunHeader* header) { header->ranks = 3; }),
              HasSubstr("a job of 3 ranks and 1 ways; swale.json says 1 and 1"));
  EXPECT_THAT(problem_after([](run::RunHeader* header) { header->ways = 2; }),
              HasSubstr("1 ranks and 2 ways"));
  EXPECT_THAT(problem_after([](run::RunHeader* header) { header->home = run::HomeRule::kPartitioner; }),
              HasSubstr("chosen by a partitioner"));
}

// Checksums and counts are right, and yet a lookup would not find some records.
TEST(Verify, NamesARecordThatItsIndexDoesNotNameOnce) {
  for (const size_t value_bytes : {0u, 30u}) {  // rows of one size, and others
    io::MemoryDevice device;
    test::TestDirectory directory(device, "/dir");
    directory.begin_job(1);
    Rng rng(1);
    directory.write_epoch(test::numbered_records(rng, 20, 1'000, value_bytes, value_bytes == 0),
                          {.records_per_run = 10, .first_run_indexed_twice = true});
    const VerifyReport report = verify_directory(*Reader::open(device, "/dir", {}).value(), 100);
    ASSERT_EQ(report.problems.size(), 20u);
    EXPECT_THAT(std::string(report.problems[0].message()),
                HasSubstr("part-000000.j0001.index names it 2 times, expected once"));
    EXPECT_THAT(std::string(report.problems[19].message()), HasSubstr("names it 0 times, expected once"));
  }
}

// Looked up one by one, they would cost their number squared: hours here.
TEST(Verify, AKeyMayHaveManyRecords) {
  for (const size_t value_bytes : {0u, 10u}) {
    io::MemoryDevice device;
    test::TestDirectory directory(device, "/dir");
    directory.begin_job(1);
    Rng rng(1);
    directory.write_epoch(test::numbered_records(rng, 300'000, 2, value_bytes, value_bytes == 0),
                          {.records_per_run = 60'000});
    const VerifyReport report = verify_directory(*Reader::open(device, "/dir", {}).value(), 10);
    for (const Status& problem : report.problems) ADD_FAILURE() << problem.to_string();
    EXPECT_EQ(report.records, 300'000u);
  }
}

// Two epochs of a directory that another job replaces while they are verified.
class VerifyBesideAJob : public testing::Test {
 protected:
  VerifyBesideAJob() : directory_(device_, "/dir") {
    directory_.begin_job(1);
    for (int epoch = 0; epoch < 2; ++epoch) directory_.write_epoch({{"key", "value"}});
    reader_ = Reader::open(device_, "/dir", {}).value();
  }

  // The job goes back to the first epoch, and nothing is left of the second one's records.
  void go_back(bool commits) {
    directory_.begin_job(1);
    directory_.manifest.epochs.pop_back();
    if (commits) directory_.commit();
    const auto log =
        device_.open(data_log_path("/dir", {1, PartitionNumber(0)}), io::OpenMode::kReadWrite).value();
    const auto first =
        run::decode_run_header(first_block(*log), PartitionNumber(0), BlockNumber(0), log->path()).value();
    ASSERT_TRUE(log->truncate(first.blocks * run::kBlockBytes).ok());
  }

  VerifyReport verify(bool commits) {
    bool gone_back = false;
    return verify_directory(*reader_, 10, [&](uint64_t, uint64_t) {
      if (!std::exchange(gone_back, true)) go_back(commits);
    });
  }

  std::string first_block(io::File& file) {
    std::string block(run::kBlockBytes, '\0');
    EXPECT_TRUE(file.pread(0, MutableBytes(block.data(), block.size())).ok());
    return block;
  }

  io::MemoryDevice device_;
  test::TestDirectory directory_;
  std::unique_ptr<Reader> reader_;
};

TEST_F(VerifyBesideAJob, ThatGoesBackTellsWhatIsThereNow) {
  const VerifyReport report = verify(true);
  for (const Status& problem : report.problems) ADD_FAILURE() << problem.to_string();
  EXPECT_EQ(report.epochs, 1U);
}

TEST_F(VerifyBesideAJob, CanaryWithoutTheNewManifestItIsDamage) {
  const VerifyReport report = verify(false);
  EXPECT_FALSE(report.problems.empty());
  EXPECT_EQ(report.epochs, 2U);
}

}  // namespace
}  // namespace swale::imd::verify_test
