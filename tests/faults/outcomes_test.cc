// Stated outcomes of what a user may do to a directory, through the C interface: two writers, readers beside
// a writer and beside one that crashes, limits of keys and values, absurd options, directories that are
// missing, read-only, of a newer version, full. The table that is printed stands in docs/reliability.md.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "swale/swale.h"
#include "tests/faults/job_files.h"
#include "tests/faults/launcher.h"

namespace swale::faults::outcomes_test {
namespace {

using testing::HasSubstr;

constexpr Seconds kPatience(120);

class Outcomes : public testing::Test {
 protected:
  Outcomes() { EXPECT_EQ(swale_job_open(nullptr, nullptr, &job_), SWALE_OK) << swale_last_error(); }
  ~Outcomes() override { EXPECT_EQ(swale_job_close(job_), SWALE_OK) << swale_last_error(); }

  swale_dir* make(const std::string& path) {
    swale_dir* dir = nullptr;
    EXPECT_EQ(swale_dir_open(job_, path.c_str(), SWALE_CREATE, kSmall, &dir), SWALE_OK) << swale_last_error();
    return dir;
  }
  int open(const std::string& path, const char* options = kSmall, int flags = SWALE_CREATE) {
    swale_dir* dir = nullptr;
    const int code = swale_dir_open(job_, path.c_str(), flags, options, &dir);
    if (code == SWALE_OK) {
      EXPECT_EQ(swale_dir_close(dir), SWALE_OK);
    }
    return code;
  }
  static int read(const std::string& path) {
    swale_reader* reader = nullptr;
    const int code = swale_reader_open(path.c_str(), nullptr, &reader);
    if (code == SWALE_OK) swale_reader_close(reader);
    return code;
  }
  // What happened, and that the message says `part`.
  static void expect(const char* what, int code, int wanted, const std::string& part = "") {
    EXPECT_EQ(code, wanted) << what << ": " << swale_last_error();
    if (wanted != SWALE_OK) {
      EXPECT_THAT(std::string(swale_last_error()), HasSubstr(part)) << what;
    }
    fmt::print("| {} | {} |\n", what, swale_code_name(code));
  }
  static std::string contents(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  static constexpr char kSmall[] = "imd.memory=8M";
  JobFiles files_;
  swale_job* job_ = nullptr;
};

// Canary: another code, and another message.
TEST_F(Outcomes, AnotherOutcomeThanTheStatedOneIsNoticed) {
  EXPECT_NONFATAL_FAILURE(expect("canary: success", SWALE_OK, SWALE_BUSY), "canary: success");
  EXPECT_NONFATAL_FAILURE(expect("canary: an empty path", open(""), SWALE_INVALID_ARGUMENT, "other words"),
                          "other words");
}

TEST_F(Outcomes, KeysAndValuesAtTheirLimits) {
  swale_dir* dir = make(files_.path());
  const std::string key(SWALE_KEY_BYTES_MAX + 1, 'k');
  const std::string value(16'385, 'v');
  expect("a key of 0 bytes", swale_dir_append(dir, "", 0, "v", 1), SWALE_INVALID_ARGUMENT, "1 to 255");
  expect("a key of 256 bytes", swale_dir_append(dir, key.data(), 256, "v", 1), SWALE_INVALID_ARGUMENT,
         "1 to 255");
  expect("a value of 1 GiB and a byte", swale_dir_append(dir, "k", 1, value.data(), (size_t{1} << 30) + 1),
         SWALE_INVALID_ARGUMENT, "1073741824");
  expect("a key of 255 bytes, a value of 0", swale_dir_append(dir, key.data(), 255, nullptr, 0), SWALE_OK);
  expect("a value of 16,384 bytes", swale_dir_append(dir, "k", 1, value.data(), 16384), SWALE_OK);
  expect("a value of 16,385 bytes", swale_dir_append(dir, "l", 1, value.data(), value.size()), SWALE_OK);
  expect("the end of that epoch", swale_dir_epoch_end(dir, 1, 1), SWALE_OK);
  EXPECT_EQ(swale_dir_close(dir), SWALE_OK);
  swale_reader* reader = nullptr;
  ASSERT_EQ(swale_reader_open(files_.path().c_str(), nullptr, &reader), SWALE_OK);
  for (const auto& [asked, bytes] :
       {std::pair{key.substr(1), size_t{0}}, std::pair{std::string("k"), size_t{16384}},
        std::pair{std::string("l"), size_t{16385}}}) {
    swale_values* values = nullptr;
    int64_t epoch = -1;
    const void* found = nullptr;
    size_t found_bytes = 1;
    ASSERT_EQ(swale_reader_get(reader, asked.data(), asked.size(), 0, &values), SWALE_OK);
    ASSERT_EQ(swale_values_count(values), 1u);
    EXPECT_EQ(swale_values_at(values, 0, &epoch, &found, &found_bytes), SWALE_OK);
    EXPECT_EQ(found_bytes, bytes);
    swale_values_free(values);
  }
  swale_reader_close(reader);
}

// What was read before the damage is not lost, and the failure comes with the next call.
TEST_F(Outcomes, ASubfileIsReadUpToItsDamage) {
  constexpr size_t kBytes = 100'000;
  swale_dir* dir = make(files_.path());
  for (const char letter : {'a', 'b'}) {
    const std::string value(kBytes, letter);
    ASSERT_EQ(swale_dir_append(dir, "k", 1, value.data(), value.size()), SWALE_OK);
    ASSERT_EQ(swale_dir_epoch_end(dir, letter, 0), SWALE_OK);
  }
  ASSERT_EQ(swale_dir_close(dir), SWALE_OK);
  size_t damaged = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(files_.path())) {
    if (!entry.is_regular_file()) continue;
    const size_t at = contents(entry.path()).find(std::string(kBytes / 2, 'b'));
    if (at == std::string::npos) continue;
    std::fstream(entry.path(), std::ios::in | std::ios::out)
        .seekp(static_cast<std::streamoff>(at + 100))
        .put('c');
    ++damaged;
  }
  ASSERT_EQ(damaged, 1u);
  swale_reader* reader = nullptr;
  ASSERT_EQ(swale_reader_open(files_.path().c_str(), nullptr, &reader), SWALE_OK);
  swale_subfile* file = nullptr;
  ASSERT_EQ(swale_subfile_open_read(reader, "k", &file), SWALE_OK);
  std::string piece(2 * kBytes, '\0');
  size_t bytes = 0;
  EXPECT_EQ(swale_subfile_read(file, piece.data(), piece.size(), &bytes), SWALE_OK);
  EXPECT_EQ(piece.substr(0, bytes), std::string(kBytes, 'a'));
  for (int again = 0; again < 2; ++again) {
    expect("reading what is damaged", swale_subfile_read(file, piece.data(), piece.size(), &bytes),
           SWALE_CORRUPTION, "");
  }
  EXPECT_EQ(swale_subfile_close(file), SWALE_OK);
  swale_reader_close(reader);
}

// Written from memory of which little is backed, with a budget of 8 MiB; read piece by piece, and whole.
TEST_F(Outcomes, AValueOfOneGiB) {
  constexpr size_t kGiB = size_t{1} << 30;
  constexpr size_t kStamp = size_t{1} << 24;
  void* const memory =
      ::mmap(nullptr, kGiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  char* const value = static_cast<char*>(memory);
  for (size_t at = 0; at < kGiB; at += kStamp) std::memcpy(value + at + at / kStamp, &at, sizeof at);
  swale_dir* dir = make(files_.path());
  const size_t before = ::mallinfo2().arena + ::mallinfo2().hblkhd;
  expect("a value of 1 GiB", swale_dir_append(dir, "k", 1, value, kGiB), SWALE_OK);
  EXPECT_LT(::mallinfo2().arena + ::mallinfo2().hblkhd, before + (1 << 20)) << "no copy of it";
  expect("the end of that epoch", swale_dir_epoch_end(dir, 1, 1), SWALE_OK);
  EXPECT_EQ(swale_dir_close(dir), SWALE_OK);
  swale_reader* reader = nullptr;
  ASSERT_EQ(swale_reader_open(files_.path().c_str(), nullptr, &reader), SWALE_OK);
  swale_subfile* file = nullptr;
  ASSERT_EQ(swale_subfile_open_read(reader, "k", &file), SWALE_OK);
  std::string piece(4 << 20, '\0');
  size_t read = 0;
  for (size_t bytes = 1; bytes != 0; read += bytes) {
    ASSERT_EQ(swale_subfile_read(file, piece.data(), piece.size(), &bytes), SWALE_OK) << swale_last_error();
    ASSERT_EQ(std::memcmp(piece.data(), value + read, bytes), 0) << read;
  }
  EXPECT_EQ(read, kGiB);
  EXPECT_EQ(swale_subfile_close(file), SWALE_OK);
  swale_values* values = nullptr;
  ASSERT_EQ(swale_reader_get(reader, "k", 1, 0, &values), SWALE_OK) << swale_last_error();
  const void* found = nullptr;
  size_t found_bytes = 0;
  EXPECT_EQ(swale_values_at(values, 0, nullptr, &found, &found_bytes), SWALE_OK);
  EXPECT_TRUE(found_bytes == kGiB && std::memcmp(found, value, kGiB) == 0);
  swale_values_free(values);
  swale_reader_close(reader);
  EXPECT_EQ(::munmap(memory, kGiB), 0);
}

TEST_F(Outcomes, AbsurdOptions) {
  for (const char* options : {"imd.memory=-1", "imd.memory=1e300", "imd.memory=99999999999999999999",
                              "imd.ways=0", "imd.ways=1x", "imd.ways=nan", "imd.window=65536", "nonsense=1",
                              "imd.memory", "=", "imd.schema=;;;", "imd.schema=a:u8,imd.extrema=b"})
    expect(options, open(files_.path(), options), SWALE_INVALID_ARGUMENT);
  expect("imd.memory=1", open(files_.path(), "imd.memory=1"), SWALE_RESOURCE_EXHAUSTED, "memory");
  EXPECT_NE(read(files_.path()), SWALE_OK) << "nothing was made";
  swale_job* job = nullptr;
  expect("net.silence_deadline_s=0.1", swale_job_open(nullptr, "net.silence_deadline_s=0.1", &job),
         SWALE_INVALID_ARGUMENT, "heartbeat");
}

TEST_F(Outcomes, DirectoriesThatAreNotThereOrNotOurs) {
  expect("reading what is missing", read(files_.path()), SWALE_NOT_FOUND, files_.path());
  expect("writing what is missing, without CREATE", open(files_.path(), kSmall, 0), SWALE_NOT_FOUND,
         files_.path());
  std::ofstream(files_.scratch() + "/file") << "text";
  EXPECT_NE(read(files_.scratch() + "/file"), SWALE_OK);
  EXPECT_NE(open(files_.scratch() + "/file"), SWALE_OK);
  expect("writing to a directory with other files", open(files_.scratch()), SWALE_ALREADY_EXISTS,
         "other files");
  expect("an empty path", open(""), SWALE_INVALID_ARGUMENT);
  ASSERT_EQ(swale_dir_close(make(files_.path())), SWALE_OK);
}

// The newest manifest is there twice.
TEST_F(Outcomes, AManifestThatIsMissingOrWasEditedIsAnsweredFromTheOtherCopy) {
  ASSERT_EQ(swale_dir_close(make(files_.path())), SWALE_OK);
  const std::string manifest = files_.path() + "/swale.json";
  const std::string copy = files_.path() + "/jobs/0001/manifest.json";
  const std::string json = contents(manifest);
  ASSERT_EQ(json, contents(copy));
  std::string edited = json;
  const size_t at = edited.find("\"version\":1");
  ASSERT_NE(at, std::string::npos);
  edited.replace(at, 11, "\"version\":9");
  std::ofstream(manifest) << edited;
  expect("reading a swale.json that was edited by hand", read(files_.path()), SWALE_OK);
  std::ofstream(copy) << edited;
  expect("reading if the second copy was, too", read(files_.path()), SWALE_CORRUPTION, copy);
  expect("writing with it", open(files_.path()), SWALE_CORRUPTION, copy);
  std::ofstream(manifest) << json;
  expect("reading if only the second copy was", read(files_.path()), SWALE_OK);
  std::ofstream(copy) << json;
  ASSERT_EQ(::unlink(manifest.c_str()), 0);
  expect("reading without a swale.json", read(files_.path()), SWALE_OK);
  expect("writing without it", open(files_.path()), SWALE_OK);
  // The opening that was refused has used a number.
  EXPECT_EQ(contents(manifest), contents(files_.path() + "/jobs/0003/manifest.json")) << "it is there again";
}

// A writer that is killed while it makes the directory leaves a manifest that was never finished.
TEST_F(Outcomes, ADirectoryThatWasNeverFinishedIsMadeAnew) {
  for (const char* folder : {"", "/jobs", "/jobs/0000"})
    ASSERT_EQ(::mkdir((files_.path() + folder).c_str(), 0755), 0);
  std::ofstream(files_.path() + "/jobs/0000/epochs") << "half";
  std::ofstream(files_.path() + "/jobs/0000/manifest.json.tmp") << "{\"format\":";
  expect("reading where making the directory was interrupted", read(files_.path()), SWALE_NOT_FOUND,
         files_.path());
  expect("writing where making the directory was interrupted", open(files_.path()), SWALE_OK);
  expect("reading it then", read(files_.path()), SWALE_OK);
}

TEST_F(Outcomes, AReadOnlyDirectoryIsReadAndNotWritten) {
  swale_dir* dir = make(files_.path());
  ASSERT_EQ(swale_dir_append(dir, "k", 1, "v", 1), SWALE_OK);
  ASSERT_EQ(swale_dir_epoch_end(dir, 0, 0), SWALE_OK);
  ASSERT_EQ(swale_dir_close(dir), SWALE_OK);
  const std::string kept = files_.path();
  if (::geteuid() != 0 || ::mount(kept.c_str(), kept.c_str(), nullptr, MS_BIND, nullptr) != 0)
    GTEST_SKIP() << "needs root and mounts";
  ASSERT_EQ(::mount(nullptr, kept.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr), 0);
  expect("reading a read-only file system", read(kept), SWALE_OK);
  expect("writing to a read-only file system", open(kept), SWALE_IO_ERROR, kept);
  EXPECT_EQ(::umount(kept.c_str()), 0);
}

TEST_F(Outcomes, AFullDiskIsToldAndTheEarlierEpochStays) {
  const std::string disk = files_.scratch() + "/disk";
  ASSERT_EQ(::mkdir(disk.c_str(), 0755), 0);
  if (::geteuid() != 0 || ::mount("swale-test", disk.c_str(), "tmpfs", 0, "size=4m") != 0)
    GTEST_SKIP() << "needs root and mounts";
  swale_dir* dir = make(disk + "/directory");
  const std::string value(1000, 'v');
  ASSERT_EQ(swale_dir_append(dir, "first", 5, "v", 1), SWALE_OK);
  ASSERT_EQ(swale_dir_epoch_end(dir, 0, 0), SWALE_OK) << swale_last_error();
  int code = SWALE_OK;
  for (uint64_t i = 0; i < 50'000 && code == SWALE_OK; ++i)
    code = swale_dir_append(dir, &i, sizeof i, value.data(), value.size());
  if (code == SWALE_OK) code = swale_dir_epoch_end(dir, 1, 1);
  expect("appending 50 MB to a disk of 4 MiB", code, SWALE_NO_SPACE, "part-000000");
  expect("the next append", swale_dir_append(dir, "k", 1, "v", 1), SWALE_ABORTED, "part-000000");
  EXPECT_NE(swale_dir_close(dir), SWALE_OK);
  swale_reader* reader = nullptr;
  ASSERT_EQ(swale_reader_open((disk + "/directory").c_str(), nullptr, &reader), SWALE_OK)
      << swale_last_error();
  EXPECT_EQ(swale_reader_epoch_count(reader), 1);
  swale_reader_close(reader);
  // A job frees nothing that another one has written.
  expect("opening the full directory again", open(disk + "/directory"), SWALE_NO_SPACE, disk);
  ASSERT_EQ(::mount(nullptr, disk.c_str(), nullptr, MS_REMOUNT, "size=16m"), 0);
  expect("opening it when there is space again", open(disk + "/directory"), SWALE_OK);
  expect("reading it then", read(disk + "/directory"), SWALE_OK);
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

// The example of docs/guide/first-trajectory.md: 4 MB from four ranks.
TEST_F(Outcomes, FourRanksFindRoomOnASmallDisk) {
  const std::string disk = files_.scratch() + "/disk";
  ASSERT_EQ(::mkdir(disk.c_str(), 0755), 0);
  if (::geteuid() != 0 || ::mount("swale-test", disk.c_str(), "tmpfs", 0, "size=200m") != 0)
    GTEST_SKIP() << "needs root and mounts";
  LaunchParams params = files_.job(4, 10, 2'500);
  std::replace(params.arguments.begin(), params.arguments.end(), files_.path(), disk + "/directory");
  {
    Launcher job(params);
    EXPECT_TRUE(job.wait_for_ends(kPatience)) << job.describe();
    for (int rank = 0; rank < job.size(); ++rank) EXPECT_EQ(job.end(rank).status, 0) << job.describe();
    EXPECT_EQ(promised_epochs(job), 10);
  }
  EXPECT_THAT(check_job_files(disk + "/directory", 10), testing::IsEmpty());
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

// ramfs has no O_DIRECT.
TEST_F(Outcomes, MkdirHeedsStorageOptions) {
  const std::string disk = files_.scratch() + "/disk";
  ASSERT_EQ(::mkdir(disk.c_str(), 0755), 0);
  if (::geteuid() != 0 || ::mount("swale-test", disk.c_str(), "ramfs", 0, nullptr) != 0)
    GTEST_SKIP() << "needs root and mounts";
  EXPECT_EQ(swale_dir_make(job_, (disk + "/a").c_str(), "io.direct=always"), SWALE_IO_ERROR);
  EXPECT_THAT(std::string(swale_last_error()), HasSubstr("O_DIRECT"));
  EXPECT_EQ(swale_dir_make(job_, (disk + "/b").c_str(), "io.direct=auto"), SWALE_OK) << swale_last_error();
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

TEST_F(Outcomes, TwoWritersAndReadersBesideThem) {
  LaunchParams params = files_.job(2, 3, 1000);
  params.held = 1;
  params.hold = "append 1";
  Launcher job(params);
  ASSERT_TRUE(job.wait_for_line(1, "append 1", kPatience)) << job.describe();
  expect("a second writer", open(files_.path()), SWALE_BUSY, "host");
  expect("a reader while a writer appends", read(files_.path()), SWALE_OK);
  EXPECT_TRUE(check_job_files(files_.path(), 1).empty());
  swale_reader* before = nullptr;
  ASSERT_EQ(swale_reader_open(files_.path().c_str(), nullptr, &before), SWALE_OK);
  EXPECT_EQ(swale_reader_epoch_count(before), 1);
  job.send_signal(0, SIGKILL);
  job.send_signal(1, SIGKILL);
  ASSERT_TRUE(job.wait_for_ends(kPatience));
  Launcher later(files_.job(3, 1, 1000));
  ASSERT_TRUE(later.wait_for_ends(kPatience));
  EXPECT_TRUE(check_job_files(files_.path(), 2).empty());
  uint64_t records = 0;
  const auto count = [](void* context, int64_t, const void*, size_t, const void*, size_t) {
    ++*static_cast<uint64_t*>(context);
    return 0;
  };
  expect("a reader from before the crash and the takeover",
         swale_reader_scan(before, SWALE_ALL_EPOCHS, count, &records), SWALE_OK);
  EXPECT_EQ(records, 2000u);
  swale_reader_close(before);
}

}  // namespace
}  // namespace swale::faults::outcomes_test
