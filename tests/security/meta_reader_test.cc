// A metadata store of another user, whose files one may read and not write: jobs that only read open it, and
// leave nothing. As root, who then acts as that user.
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "swale/swale_meta.h"

namespace swale::security {
namespace {

constexpr uid_t kAlice = 20001;

// What `body` answers in a process of the user: 0 is good.
int as(uid_t user, const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (user != 0 && (::setgroups(0, nullptr) != 0 || ::setresgid(user, user, user) != 0 ||
                      ::setresuid(user, user, user) != 0))
      ::_exit(254);
    const int answer = body();
    if (answer != 0) std::fprintf(stderr, "step %d: %s\n", answer, swale_last_error());
    ::_exit(answer);
  }
  int state = 0;
  ::waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 255;
}

constexpr swale_meta_segment kSegment = {4096, 100, 700, 3, 0};

int write_store(const std::string& path) {
  swale_job* job = nullptr;
  swale_meta* meta = nullptr;
  swale_meta_file* file = nullptr;
  if (swale_job_open(nullptr, nullptr, &job) != SWALE_OK) return 1;
  if (swale_meta_open(job, path.c_str(), SWALE_CREATE, nullptr, &meta) != SWALE_OK) return 2;
  if (swale_meta_file_open(meta, "f", SWALE_CREATE | SWALE_EXCLUSIVE, 0644, &file) != SWALE_OK) return 3;
  if (swale_meta_put(file, &kSegment, 1) != SWALE_OK || swale_meta_file_close(file) != SWALE_OK) return 4;
  if (swale_meta_close(meta) != SWALE_OK || swale_job_close(job) != SWALE_OK) return 5;
  return 0;
}

int read_store(const std::string& path) {
  swale_job* job = nullptr;
  swale_meta* meta = nullptr;
  swale_meta_file* file = nullptr;
  swale_meta_found* found = nullptr;
  const swale_meta_segment* segments = nullptr;
  size_t count = 0;
  if (swale_job_open(nullptr, nullptr, &job) != SWALE_OK) return 1;
  // To write is not allowed, and says so.
  if (swale_meta_open(job, path.c_str(), 0, nullptr, &meta) == SWALE_OK) return 2;
  if (swale_meta_open(job, path.c_str(), SWALE_READ_ONLY, nullptr, &meta) != SWALE_OK) return 3;
  if (swale_meta_file_open(meta, "f", 0, 0, &file) != SWALE_OK) return 4;
  const swale_meta_range range = {0, 10'000};
  if (swale_meta_get(file, &range, 1, &found) != SWALE_OK) return 5;
  if (swale_meta_found_at(found, 0, &segments, &count) != SWALE_OK || count != 1) return 6;
  if (segments[0].offset != kSegment.offset || segments[0].address != kSegment.address) return 7;
  if (swale_meta_put(file, &kSegment, 1) != SWALE_INVALID_ARGUMENT) return 8;
  if (swale_meta_remove(meta, "f") != SWALE_INVALID_ARGUMENT) return 9;
  swale_meta_found_free(found);
  if (swale_meta_file_close(file) != SWALE_OK) return 10;
  if (swale_meta_close(meta) != SWALE_OK || swale_job_close(job) != SWALE_OK) return 11;
  return 0;
}

std::map<std::string, std::string> state_of(const std::string& path) {
  std::map<std::string, std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    struct stat state = {};
    EXPECT_EQ(::stat(entry.path().c_str(), &state), 0);
    all[entry.path().filename()] = std::to_string(state.st_size) + " " +
                                   std::to_string(state.st_mtim.tv_sec) + "." +
                                   std::to_string(state.st_mtim.tv_nsec);
  }
  return all;
}

TEST(AnotherUsersStore, IsReadByWhoMayReadIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs two users: run it as root";
  char scratch[] = "/tmp/swale-test-XXXXXX";
  ASSERT_NE(::mkdtemp(scratch), nullptr);
  ASSERT_EQ(::chmod(scratch, 0755), 0);
  const std::string path = std::string(scratch) + "/store";
  ASSERT_EQ(as(0, [&] { return write_store(path); }), 0);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch))
    ASSERT_EQ(::chmod(entry.path().c_str(), entry.is_directory() ? 0755 : 0644), 0);
  const auto before = state_of(path);
  EXPECT_EQ(as(kAlice, [&] { return read_store(path); }), 0);
  EXPECT_EQ(state_of(path), before);
  std::filesystem::remove_all(scratch);
}

}  // namespace
}  // namespace swale::security
