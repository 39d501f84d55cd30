// OpeningAhead: what it fetches, when it starts no thread, and that nothing depends on it.
#include "imd/read/opening_ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/mutex.h"
#include "base/testing/sanitizers.h"
#include "imd/testing/test_optimize.h"
#include "io/memory_device.h"
#include "io/posix_device.h"
#include "io/testing/forwarding_file.h"

namespace swale::imd::opening_ahead_test {
namespace {

using test::JobShape;
using testing::Contains;
using testing::EndsWith;
using testing::Ge;
using testing::Not;

constexpr uint64_t kKeys = 20;
constexpr char kIndex[] = "clusters/0001.part-000000.j0001.index";
constexpr char kEpochs[] = "/jobs/0001/epochs";
constexpr char kList[] = "clusters/manifest.json";
constexpr char kData[] = "clusters/0001.part-000000.j0001.data";

class File final : public io::ForwardingFile {
 public:
  File(std::unique_ptr<io::File> file, bool resident)
      : ForwardingFile(std::move(file)), resident_(resident) {}
  bool read_resident(uint64_t offset, MutableBytes out) override {
    return resident_ && pread(offset, out).ok();
  }

 private:
  const bool resident_;
};

// Whose files are all in memory, or none is; whose names all are, or none is. Knows which were opened.
class Device final : public io::PosixDevice {
 public:
  Result<std::unique_ptr<io::File>> open(const std::string& path, io::OpenMode mode) override {
    const MutexLock lock(mutex_);
    opened_.push_back(path);
    SWALE_ASSIGN_OR_RETURN(auto file, PosixDevice::open(path, mode));
    return std::unique_ptr<io::File>(std::make_unique<File>(std::move(file), resident));
  }
  bool knows(const std::string&) override { return known; }
  std::vector<std::string> opened() {
    const MutexLock lock(mutex_);
    return std::exchange(opened_, {});
  }
  bool resident = false;
  bool known = true;

 private:
  Mutex mutex_;
  std::vector<std::string> opened_ GUARDED_BY(mutex_);
};

class OpeningAheadTest : public testing::Test {
 protected:
  OpeningAheadTest() { std::filesystem::remove_all(path_); }
  ~OpeningAheadTest() override { std::filesystem::remove_all(path_); }

  void write(bool optimized) {
    test::write_job(device_, JobShape{.keys = kKeys}, 1, path_);
    if (optimized) {
      ASSERT_TRUE(optimize_directory(device_, path_, test::small_pass()).ok());
    }
    device_.opened();
  }

  const std::string path_ = fmt::format("{}swale-opening-ahead-{}", testing::TempDir(), getpid());
  Device device_;
};

TEST_F(OpeningAheadTest, OpeningADirectoryFetchesWhatAQueryOfTheNewestClusterNeeds) {
  write(/*optimized=*/true);
  auto reader = Reader::open(device_, path_, {});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ((*reader)->stats().reads, 0U);  // they are no reads of a query
  reader->reset();                          // waits for them
  const std::vector<std::string> opened = device_.opened();
  EXPECT_THAT(opened, Contains(EndsWith(kIndex)));
  EXPECT_THAT(opened, Contains(EndsWith(kData)));
  // By a thread, and by the opening itself.
  EXPECT_THAT(opened, Contains(EndsWith(kEpochs)).Times(Ge(2)));
  EXPECT_THAT(opened, Contains(EndsWith(kList)).Times(Ge(2)));
}

// Clusters of builds that had their logs in folders, and no copy of the list.
TEST_F(OpeningAheadTest, AnEarlierBuildsClusterIsFetchedFromItsFolders) {
  write(/*optimized=*/true);
  const std::string folder = cluster_folder(path_, 1);
  std::filesystem::create_directory(folder + "/p000");
  for (const auto path_of : {data_log_path, index_log_path})
    std::filesystem::rename(path_of(folder, test::log_of_cluster()), path_of(folder, LogId{.job = 1}));
  std::filesystem::remove(cluster_list_copy_path(path_));
  { const OpeningAhead ahead(device_, path_); }
  const std::vector<std::string> opened = device_.opened();
  for (const auto path_of : {data_log_path, index_log_path})
    EXPECT_THAT(opened, Contains(path_of(folder, LogId{.job = 1})));
  EXPECT_THAT(opened, Contains(cluster_list_path(path_, 1)));
}

TEST_F(OpeningAheadTest, ThreadsStartBeforeANameIsLookedUpThatIsNotInMemory) {
  write(/*optimized=*/true);
  device_.resident = true;
  device_.known = false;
  EXPECT_TRUE(OpeningAhead(device_, path_).started());
  EXPECT_THAT(device_.opened(), Not(Contains(EndsWith("swale.json"))));
}

TEST_F(OpeningAheadTest, NoThreadStartsIfTheDirectoryIsInMemory) {
  write(/*optimized=*/true);
  device_.resident = true;
  EXPECT_FALSE(OpeningAhead(device_, path_).started());
  ASSERT_TRUE(Reader::open(device_, path_, {}).ok());
  EXPECT_THAT(device_.opened(), Not(Contains(EndsWith(kIndex))));
}

TEST_F(OpeningAheadTest, NoThreadStartsWhereFilesHaveNoDescriptors) {
  io::MemoryDevice device;
  test::write_job(device, JobShape{.keys = kKeys}, 1, "/dir");
  ASSERT_TRUE(Reader::open(device, "/dir", {}).ok());
  EXPECT_FALSE(OpeningAhead(device, "/dir").started());
}

TEST_F(OpeningAheadTest, AnswersDoNotDependOnWhatItFinds) {
  write(/*optimized=*/false);
  const test::Answers plain = test::ask_directory(device_, kKeys, path_);
  EXPECT_EQ(plain.problem, "");
  EXPECT_FALSE(plain.each.empty());
  ASSERT_TRUE(optimize_directory(device_, path_, test::small_pass()).ok());
  EXPECT_EQ(test::ask_directory(device_, kKeys, path_), plain);
  for (const char* const name : {kData, kIndex}) {  // the epochs themselves answer then
    std::filesystem::remove(path_ + "/" + name);
    EXPECT_EQ(test::ask_directory(device_, kKeys, path_), plain);
  }
  std::filesystem::remove(path_ + "/" + kList);
  std::filesystem::create_directory(path_ + "/clusters/0002");  // a pass that has just begun
  EXPECT_EQ(test::ask_directory(device_, kKeys, path_), plain);
}

TEST_F(OpeningAheadTest, AChildCanCloseAReaderThatItsParentHasOpened) {
  if (swale::test::kThreadSanitizer)
    GTEST_SKIP() << "ThreadSanitizer kills a child that detaches its parent's thread";
  write(/*optimized=*/true);
  auto reader = Reader::open(device_, path_, {});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  const auto close = [&] {
    const bool found = (*reader)->get(test::optimized_key(0), Reader::kAllEpochs).ok();
    reader->reset();
    std::_Exit(found ? 0 : 1);
  };
  EXPECT_EXIT(close(), testing::ExitedWithCode(0), "");
}

TEST_F(OpeningAheadTest, ADirectoryThatIsNotThereIsNone) {
  EXPECT_FALSE(OpeningAhead(device_, path_).started());
  EXPECT_EQ(Reader::open(device_, path_, {}).status().code(), Code::kNotFound);
  device_.known = false;
  EXPECT_EQ(Reader::open(device_, path_, {}).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace swale::imd::opening_ahead_test
