// ftw and nftw where a tree is mounted nowhere (unmounted.h): the C library would walk the backing, by calls
// inside itself. Here the walk is made of calls that are seen.
//
// A directory is read whole before anything in it is visited: so no descriptor is held meanwhile.
// Limits: paths of PATH_MAX.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/next_calls.h"
#include "preload/unmounted.h"

namespace swale::preload {
namespace {

class Walk {
 public:
  Walk(__ftw_func_t simple, __nftw_func_t full, int flags) : simple_(simple), full_(full), flags_(flags) {}
  ~Walk() {
    ::free(seen_);
    if (here_ < 0) return;
    const int kept = errno;
    static_cast<void>(::fchdir(here_));
    ::close(here_);
    errno = kept;
  }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  int run(const char* path) {
    bytes_ = path == nullptr ? 0 : ::strnlen(path, sizeof(path_));
    while (bytes_ > 1 && bytes_ < sizeof(path_) && path[bytes_ - 1] == '/') --bytes_;
    if (bytes_ == 0 || bytes_ == sizeof(path_)) return fail(bytes_ == 0 ? ENOENT : ENAMETOOLONG);
    ::memcpy(path_, path, bytes_);
    path_[bytes_] = '\0';
    if (has(FTW_CHDIR)) {
      here_ = ::open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      if (here_ < 0 || go_to(base()) != 0) return -1;
    }
    const int result = visit(0);
    return result == FTW_SKIP_SIBLINGS && has(FTW_ACTIONRETVAL) ? 0 : result;
  }

 private:
  struct Inode {
    dev_t device;
    ino_t number;
  };

  bool has(int flag) const { return (flags_ & flag) != 0; }
  int at() const { return here_ >= 0 ? here_ : AT_FDCWD; }
  static int fail(int error) {
    errno = error;
    return -1;
  }
  // Where the last name begins.
  size_t base() const {
    const char* const slash = ::strrchr(path_, '/');
    return slash == nullptr || slash[1] == '\0' ? 0 : static_cast<size_t>(slash + 1 - path_);
  }
  // The directory that the first `bytes` of the path lead to.
  int go_to(size_t bytes) {
    if (::fchdir(here_) != 0 || bytes == 0) return bytes == 0 ? 0 : -1;
    const char kept = path_[bytes];
    path_[bytes] = '\0';
    const int gone = ::chdir(path_);
    path_[bytes] = kept;
    return gone;
  }
  int call(const struct stat& found, int type, int level) {
    FTW place = {static_cast<int>(base()), level};
    if (full_ != nullptr) return full_(path_, &found, type, &place);
    const int simple = type == FTW_SL ? FTW_F : type == FTW_SLN ? FTW_NS : type == FTW_DP ? FTW_D : type;
    return simple_(path_, &found, simple);
  }
  // 0, or -1 and errno.
  int look(int level, struct stat* found, int* type) {
    const int how = has(FTW_PHYS) ? AT_SYMLINK_NOFOLLOW : 0;
    if (::fstatat(at(), path_, found, how) == 0) {
      *type = S_ISDIR(found->st_mode) ? FTW_D : S_ISLNK(found->st_mode) ? FTW_SL : FTW_F;
      return 0;
    }
    const int why = errno;
    const bool is_link = !has(FTW_PHYS) && why == ENOENT &&
                         ::fstatat(at(), path_, found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(found->st_mode);
    *type = is_link ? FTW_SLN : FTW_NS;
    if (is_link || (level > 0 && (why == ENOENT || why == EACCES))) return 0;
    return fail(why);
  }
  // A directory that links lead to again. -1: no memory.
  int was_seen(const struct stat& found) {
    for (size_t i = 0; i < seen_count_; ++i)
      if (seen_[i].number == found.st_ino && seen_[i].device == found.st_dev) return 1;
    if (seen_count_ == seen_space_) {
      const size_t space = seen_space_ == 0 ? 64 : 2 * seen_space_;
      auto* const larger = static_cast<Inode*>(::realloc(seen_, space * sizeof(Inode)));
      if (larger == nullptr) return -1;
      seen_ = larger;
      seen_space_ = space;
    }
    seen_[seen_count_++] = {found.st_dev, found.st_ino};
    return 0;
  }

  int visit(int level) {
    struct stat found = {};
    int type = FTW_NS;
    if (look(level, &found, &type) != 0) return -1;
    if (level == 0) device_ = found.st_dev;
    if (type != FTW_NS && has(FTW_MOUNT) && found.st_dev != device_) return 0;
    int result = 0;
    if (type != FTW_D)
      result = call(found, type, level);
    else if (const int seen = has(FTW_PHYS) ? 0 : was_seen(found); seen == 0)
      result = enter(found, level);
    else
      result = seen > 0 ? 0 : -1;
    return result == FTW_SKIP_SUBTREE && has(FTW_ACTIONRETVAL) ? 0 : result;
  }

  int enter(const struct stat& found, int level) {
    dirent** names = nullptr;
    const int count = ::scandirat(at(), path_, &names, nullptr, nullptr);
    if (count < 0) return errno == EACCES ? call(found, FTW_DNR, level) : -1;
    int result = has(FTW_DEPTH) ? 0 : call(found, FTW_D, level);
    if (result == 0 && here_ >= 0) result = go_to(bytes_);
    for (int i = 0; i < count; ++i) {
      if (result == 0) result = visit_below(names[i]->d_name, level + 1);
      ::free(names[i]);
    }
    ::free(static_cast<void*>(names));
    if (result == FTW_SKIP_SIBLINGS && has(FTW_ACTIONRETVAL)) result = 0;
    // As the C library: the directory is still the one that is told of.
    if (result == 0 && here_ >= 0) result = go_to(bytes_);
    if (result == 0 && has(FTW_DEPTH)) result = call(found, FTW_DP, level);
    if (here_ >= 0 && go_to(base()) != 0 && result == 0) result = -1;
    return result;
  }

  int visit_below(const char* name, int level) {
    if (::strcmp(name, ".") == 0 || ::strcmp(name, "..") == 0) return 0;
    const size_t above = bytes_, more = ::strlen(name);
    const bool is_root = above == 1 && path_[0] == '/';
    if (above + 1 + more >= sizeof(path_)) return fail(ENAMETOOLONG);
    if (!is_root) path_[bytes_++] = '/';
    ::memcpy(path_ + bytes_, name, more + 1);
    bytes_ += more;
    const int result = visit(level);
    bytes_ = above;
    path_[bytes_] = '\0';
    return result;
  }

  const __ftw_func_t simple_;
  const __nftw_func_t full_;
  const int flags_;
  int here_ = -1;  // where the walk began, if it changes that
  dev_t device_ = 0;
  Inode* seen_ = nullptr;
  size_t seen_count_ = 0, seen_space_ = 0;
  size_t bytes_ = 0;
  char path_[PATH_MAX] = "";
};

}  // namespace

extern "C" {

int swale_take_ftw(const char* path, __ftw_func_t call, int descriptors) {
  if (is_unmounted()) return Walk(call, nullptr, 0).run(path);
  return next<int(const char*, __ftw_func_t, int)>(calls::ftw)(path, call, descriptors);
}

int swale_take_nftw(const char* path, __nftw_func_t call, int descriptors, int flags) {
  constexpr int kFlags = FTW_PHYS | FTW_MOUNT | FTW_CHDIR | FTW_DEPTH | FTW_ACTIONRETVAL;
  if (is_unmounted() && (flags & ~kFlags) == 0) return Walk(nullptr, call, flags).run(path);
  return next<int(const char*, __nftw_func_t, int, int)>(calls::nftw)(path, call, descriptors, flags);
}

}  // extern "C"

}  // namespace swale::preload
