// library_random TREE PLAIN CALLS SEED [loses]: random calls (src/fs/testing/random_calls.h) in the tree of a
// job beside a plain directory. What swale_fs.h has a call for goes through the library; all else through the
// mount, on a descriptor of the same file, as programs mix them. library_test.py runs it under `swale run`.
// loses: a canary, one write in a hundred is left out.
//
// Exit status: 0, and the calls that were made; 1, and the first that differs.
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "fs/testing/plain_calls.h"
#include "fs/testing/random_calls.h"
#include "swale/swale_fs.h"

namespace swale::fs {
namespace {

constexpr int kOtherThanTheMount = EPROTO;  // the library and the mount answer in different ways
constexpr uint64_t kLosesEvery = 100;       // writes, of the canary
constexpr uint64_t kLogShare = 10;          // of so many writes at least one goes to the log

class LibraryCalls final : public PosixCalls {
 public:
  LibraryCalls(const std::string& root, bool loses) : PosixCalls(root), root_(root), loses_(loses) {}

  int open(const std::string& path, int flags, mode_t mode, int* handle) override {
    struct stat found = {};
    if (look(path, &found) == 0 && S_ISLNK(found.st_mode)) return PosixCalls::open(path, flags, mode, handle);
    const bool reads_only = (flags & O_ACCMODE) == O_RDONLY;
    // The library makes no file to read it, and has each handle read what it may write.
    const bool mount_creates = (flags & O_CREAT) != 0 && (reads_only || (mode & S_IWUSR) == 0);
    swale_fs_file* file = nullptr;
    const int opened = mount_creates ? SWALE_OK : open_by_library(path, flags, mode, &file);
    const int left = file != nullptr ? flags & ~(O_CREAT | O_EXCL | O_TRUNC) : flags;
    int failed = PosixCalls::open(path, left, mode, handle);
    if (failed == 0 && mount_creates && reads_only) {
      if (open_by_library(path, O_RDONLY, 0, &file) != SWALE_OK) failed = differs("swale_fs_open");
    }
    if (failed == 0 && opened != SWALE_OK) failed = differs("swale_fs_open");
    if (failed == 0 && file != nullptr) files_[*handle] = {file, (flags & O_APPEND) != 0};
    return failed;
  }
  int close(int handle) override {
    const auto found = files_.find(handle);
    int failed = 0;
    if (found != files_.end()) {
      if (swale_fs_close(found->second.file) != SWALE_OK) failed = differs("swale_fs_close");
      files_.erase(found);
    }
    const int closed = PosixCalls::close(handle);
    return failed != 0 ? failed : closed;
  }
  int write(int handle, uint64_t offset, Bytes data) override {
    const auto found = files_.find(handle);
    if (found == files_.end()) return PosixCalls::write(handle, offset, data);
    swale_fs_file* const file = found->second.file;
    ++writes_;
    if (loses_ && writes_ % kLosesEvery == 0) return 0;
    int by_log = 0;
    if (swale_fs_writes_by_log(file, &by_log) != SWALE_OK) return differs("swale_fs_writes_by_log");
    by_log_ += static_cast<uint64_t>(by_log);
    if (found->second.appends)
      return answer("swale_fs_write", swale_fs_write(file, data.data(), data.size()));
    const size_t half = data.size() / 2;
    const swale_fs_part parts[] = {{data.data(), half}, {data.data() + half, data.size() - half}};
    switch (writes_ % 3) {
      case 0:
        return answer("swale_fs_pwritev", swale_fs_pwritev(file, offset, parts, 2));
      case 1:
        if (data.size() % 2 != 0 || half == 0) break;
        return answer("swale_fs_write_many", swale_fs_write_many(file, offset, half, data.data(), half, 2));
    }
    return answer("swale_fs_pwrite", swale_fs_pwrite(file, offset, data.data(), data.size()));
  }
  int read(int handle, uint64_t offset, size_t size, std::string* out) override {
    const auto found = files_.find(handle);
    if (found == files_.end()) return PosixCalls::read(handle, offset, size, out);
    out->resize(size);
    size_t got = 0;
    const size_t half = size / 2;
    const swale_fs_space parts[] = {{out->data(), half}, {out->data() + half, size - half}};
    const int failed =
        ++reads_ % 2 == 0
            ? answer("swale_fs_preadv", swale_fs_preadv(found->second.file, offset, parts, 2, &got))
            : answer("swale_fs_pread", swale_fs_pread(found->second.file, offset, out->data(), size, &got));
    out->resize(got);
    return failed;
  }
  // A program asks how long a file is before it maps or copies it. Else the kernel does not know of what was
  // appended to the log, and gives SIGBUS, or copies less.
  int map_write(int handle, uint64_t offset, Bytes data) override {
    struct stat found = {};
    const int failed = PosixCalls::state(handle, &found);
    return failed != 0 ? failed : PosixCalls::map_write(handle, offset, data);
  }
  int map_read(int handle, uint64_t offset, size_t size, std::string* out) override {
    struct stat found = {};
    const int failed = PosixCalls::state(handle, &found);
    return failed != 0 ? failed : PosixCalls::map_read(handle, offset, size, out);
  }
  int copy(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t length,
           uint64_t* copied) override {
    struct stat found = {};
    const int failed = PosixCalls::state(from, &found);
    return failed != 0 ? failed : PosixCalls::copy(from, from_offset, to, to_offset, length, copied);
  }
  int resize(int handle, uint64_t size) override {
    const auto found = files_.find(handle);
    if (found == files_.end()) return PosixCalls::resize(handle, size);
    return answer("swale_fs_truncate", swale_fs_truncate(found->second.file, size));
  }
  // Programs commit, too.
  int sync(int handle) override {
    const auto found = files_.find(handle);
    if (found == files_.end()) return PosixCalls::sync(handle);
    if (++syncs_ % 2 == 0) return answer("swale_fs_commit", swale_fs_commit(found->second.file));
    return answer("swale_fs_sync", swale_fs_sync(found->second.file));
  }
  int state(int handle, struct stat* state) override {
    if (const int failed = PosixCalls::state(handle, state); failed != 0) return failed;
    const auto found = files_.find(handle);
    if (found == files_.end()) return 0;
    swale_attributes seen = {};
    seen.struct_bytes = sizeof(seen);
    if (swale_fs_stat(found->second.file, &seen) != SWALE_OK) return differs("swale_fs_stat");
    const bool same = seen.size == static_cast<uint64_t>(state->st_size) &&
                      seen.mode == (state->st_mode & 07777u) &&
                      seen.modified_ns == state->st_mtim.tv_sec * 1'000'000'000 + state->st_mtim.tv_nsec;
    if (same) return 0;
    std::fprintf(stderr, "swale_fs_stat: size %lu and mode %o instead of %ld and %o\n", seen.size, seen.mode,
                 state->st_size, state->st_mode);
    return kOtherThanTheMount;
  }

  uint64_t writes() const { return writes_; }
  uint64_t by_log() const { return by_log_; }

 private:
  struct Open {
    swale_fs_file* file = nullptr;
    bool appends = false;
  };

  int open_by_library(const std::string& path, int flags, mode_t mode, swale_fs_file** file) {
    const auto has = [flags](int flag, int gives) { return (flags & flag) != 0 ? gives : 0; };
    const int wanted = (flags & O_ACCMODE) == O_RDONLY
                           ? SWALE_READ_ONLY
                           : has(O_CREAT, SWALE_CREATE) | has(O_EXCL, SWALE_EXCLUSIVE) |
                                 has(O_TRUNC, SWALE_FS_EMPTY) | has(O_APPEND, SWALE_FS_APPEND);
    return swale_fs_open((root_ + "/" + path).c_str(), wanted, mode, file);
  }
  static int differs(const char* call) {
    std::fprintf(stderr, "%s: %s\n", call, swale_last_error());
    return kOtherThanTheMount;
  }
  static int answer(const char* call, int status) { return status == SWALE_OK ? 0 : differs(call); }

  const std::string root_;
  const bool loses_;
  std::map<int, Open> files_;
  uint64_t writes_ = 0, reads_ = 0, by_log_ = 0, syncs_ = 0;
};

int run(const std::string& tree, const std::string& plain_directory, uint64_t calls, uint64_t seed,
        bool loses) {
  LibraryCalls tested(tree, loses);
  PlainCalls plain(plain_directory, PlainCalls::Above::kKernel);
  RandomCalls random(tested, plain, seed);
  std::string problem = random.run(calls);
  if (problem.empty()) problem = random.compare_trees();
  random.close_all();
  if (problem.empty()) problem = random.compare_trees();
  std::printf("%s\n%lu calls; %lu writes by the library, %lu to the log\n", random.summary().c_str(),
              random.calls(), tested.writes(), tested.by_log());
  if (problem.empty() && tested.by_log() * kLogShare < tested.writes())
    problem = "nearly all writes of the library went through the mount";
  if (!problem.empty()) std::fprintf(stderr, "%s\n", problem.c_str());
  return problem.empty() ? 0 : 1;
}

}  // namespace
}  // namespace swale::fs

int main(int argc, char** argv) {
  if (argc != 5 && (argc != 6 || std::strcmp(argv[5], "loses") != 0)) {
    std::fprintf(stderr, "usage: library_random TREE PLAIN CALLS SEED [loses]\n");
    return 2;
  }
  return swale::fs::run(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10),
                        std::strtoull(argv[4], nullptr, 10), argc == 6);
}
