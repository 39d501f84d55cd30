#include "fs/testing/random_calls.h"

#include <fmt/format.h>
#include <linux/fs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace swale::fs {
namespace {

constexpr size_t kHandles = 6;
constexpr size_t kRecent = 60;
constexpr uint64_t kOffsetMax = 300'000;
// s: 2001. Times that a test sets lie before it, the others behind.
constexpr int64_t kLongAgo = 1'000'000'000;

}  // namespace

bool RandomCalls::same(const std::string& what, int tested, int plain) {
  Count& count = counts_[what.substr(0, what.find(' '))];
  ++count.made;
  count.succeeded += plain == 0;
  recent_.push_back(fmt::format("{}: {}: {}", calls_, what, plain == 0 ? "fine" : ::strerror(plain)));
  if (recent_.size() > kRecent) recent_.pop_front();
  if (tested != plain)
    differ(fmt::format("{}: {} instead of {}", what, ::strerror(tested), ::strerror(plain)));
  return tested == 0 && plain == 0;
}

void RandomCalls::differ(const std::string& what) {
  if (problem_.empty())
    problem_ = fmt::format("call {}: {}; the last calls:\n{}", calls_, what, fmt::join(recent_, "\n"));
}

std::string RandomCalls::random_bytes(size_t length) {
  std::string bytes(length, '\0');
  const uint64_t word = rng_.next();
  for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<char>((word >> (i % 8 * 8)) + i / 8);
  return bytes;
}

std::string RandomCalls::directory_name() {
  const uint64_t dice = rng_.below(3);
  return dice == 0 ? "" : fmt::format("d{}", dice);
}
std::string RandomCalls::file_name() {
  const std::string directory = directory_name();
  return fmt::format("{}{}f{}", directory, directory.empty() ? "" : "/", rng_.below(5));
}

// A handle by the inode of the plain file and how it was opened.
std::string RandomCalls::name_of(const Pair& pair) {
  struct stat state = {};
  static_cast<void>(plain_.state(pair.plain, &state));
  return fmt::format("inode {} opened {:#o}", state.st_ino, pair.flags);
}

uint64_t RandomCalls::size_of(const Pair& pair) {
  struct stat state = {};
  static_cast<void>(plain_.state(pair.plain, &state));
  return static_cast<uint64_t>(state.st_size);
}

void RandomCalls::open_one() {
  constexpr int kFlags[] = {O_RDWR, O_RDWR, O_RDONLY, O_WRONLY, O_WRONLY | O_APPEND, O_RDWR | O_APPEND};
  int flags = kFlags[rng_.below(6)];
  if (rng_.chance(3, 4)) flags |= O_CREAT;
  if (rng_.chance(1, 8)) flags |= O_EXCL;
  if (rng_.chance(1, 10) && (flags & O_ACCMODE) != O_RDONLY) flags |= O_TRUNC;
  if ((flags & O_CREAT) == 0) flags &= ~O_EXCL;
  const mode_t mode = rng_.chance(1, 10) ? 0444 : 0644;  // git makes the former
  const std::string path = file_name();
  Pair pair{-1, -1, flags};
  const int plain = plain_.open(path, flags, mode, &pair.plain);
  const int tested = tested_.open(path, flags, mode, &pair.tested);
  if (same(fmt::format("open {} flags {:#o}", path, flags), tested, plain)) open_.push_back(pair);
}

void RandomCalls::read_one(const Pair& pair, bool mapped) {
  if ((pair.flags & O_ACCMODE) == O_WRONLY) return;
  const uint64_t size = size_of(pair);
  uint64_t offset = rng_.below(kOffsetMax);
  size_t length = 1 + rng_.below(rng_.chance(1, 20) ? 600'000 : 20'000);
  if (mapped) {
    if (size == 0) return;
    offset %= size;
    length = std::min<uint64_t>(length, size - offset);
  }
  std::string tested, plain;
  const auto what =
      fmt::format("{} {} bytes at {} of {}", mapped ? "map_read" : "read", length, offset, name_of(pair));
  const bool read = both(what, [&](FileCalls& on) {
    std::string& out = &on == &tested_ ? tested : plain;
    const int handle = &on == &tested_ ? pair.tested : pair.plain;
    return mapped ? on.map_read(handle, offset, length, &out) : on.read(handle, offset, length, &out);
  });
  if (!read || tested == plain) return;
  const auto [at, other] = std::mismatch(tested.begin(), tested.end(), plain.begin(), plain.end());
  differ(fmt::format("{}: {} bytes instead of {}, which differ from byte {} on", what, tested.size(),
                     plain.size(), offset + static_cast<uint64_t>(at - tested.begin())));
}

void RandomCalls::write_one(const Pair& pair, bool mapped) {
  if ((pair.flags & O_ACCMODE) == O_RDONLY || (mapped && (pair.flags & O_ACCMODE) != O_RDWR)) return;
  const uint64_t size = size_of(pair);
  uint64_t offset = rng_.chance(1, 4) ? size : rng_.below(kOffsetMax);
  size_t length = 1 + rng_.below(rng_.chance(1, 40) ? 1'500'000 : rng_.chance(1, 3) ? 40'000 : 500);
  if ((pair.flags & O_APPEND) != 0 && size > 2'000'000) length = 1;
  if (mapped) {
    if (size == 0) return;
    offset %= size;
    length = std::min<uint64_t>(length, size - offset);
  }
  const std::string bytes = random_bytes(length);
  both(fmt::format("{} {} bytes at {} of {}", mapped ? "map_write" : "write", length, offset, name_of(pair)),
       [&](FileCalls& on) {
         const int handle = &on == &tested_ ? pair.tested : pair.plain;
         return mapped ? on.map_write(handle, offset, bytes) : on.write(handle, offset, bytes);
       });
}

void RandomCalls::allocate_one(const Pair& pair) {
  if ((pair.flags & O_ACCMODE) == O_RDONLY) return;
  const uint64_t offset = rng_.below(kOffsetMax), length = 1 + rng_.below(100'000);
  const int mode = rng_.chance(1, 2) ? FALLOC_FL_KEEP_SIZE : 0;
  both(fmt::format("allocate mode {} {} bytes at {} of {}", mode, length, offset, name_of(pair)),
       [&](FileCalls& on) {
         return on.allocate(&on == &tested_ ? pair.tested : pair.plain, mode, offset, length);
       });
}

// What is said to be a hole must read as zeros; there is a hole at the end.
void RandomCalls::seek_one(const Pair& pair) {
  if ((pair.flags & O_ACCMODE) == O_WRONLY) return;
  const uint64_t size = size_of(pair);
  const uint64_t offset = rng_.below(kOffsetMax);
  uint64_t data = size;
  int answer = tested_.seek(pair.tested, offset, SEEK_DATA, &data);
  ++counts_["seek"].made;
  counts_["seek"].succeeded += answer == 0;
  if (answer == ENXIO)
    data = std::max(offset, size);
  else if (answer != 0)
    return differ(fmt::format("seek data at {}: {}", offset, ::strerror(answer)));
  if (data < offset || (answer == 0 && data >= size))
    return differ(fmt::format("seek data at {} gives {}, of {} bytes", offset, data, size));
  std::string bytes;
  if (offset < data) static_cast<void>(plain_.read(pair.plain, offset, data - offset, &bytes));
  if (const size_t at = bytes.find_first_not_of('\0'); at != std::string::npos)
    return differ(
        fmt::format("seek data at {} gives {}, but byte {} is not zero", offset, data, offset + at));
  uint64_t hole = 0;
  answer = tested_.seek(pair.tested, offset, SEEK_HOLE, &hole);
  if (answer != (offset < size ? 0 : ENXIO) || (answer == 0 && (hole < offset || hole > size)))
    differ(fmt::format("seek hole at {} of {} bytes: {} {}", offset, size, hole, ::strerror(answer)));
}

void RandomCalls::copy_one(const Pair& to) {
  const Pair& from = open_[rng_.below(open_.size())];
  if ((from.flags & O_ACCMODE) == O_WRONLY || (to.flags & O_ACCMODE) == O_RDONLY ||
      (to.flags & O_APPEND) != 0)
    return;
  const uint64_t source = rng_.below(kOffsetMax), target = rng_.below(kOffsetMax),
                 length = 1 + rng_.below(60'000);
  struct stat one = {}, two = {};
  static_cast<void>(plain_.state(from.plain, &one));
  static_cast<void>(plain_.state(to.plain, &two));
  if (one.st_ino == two.st_ino && source < target + length && target < source + length)
    return;  // EINVAL by the kernel
  uint64_t copied[2] = {0, 0};
  const auto what = fmt::format("copy {} bytes from {} of {} to {} of {}", length, source, name_of(from),
                                target, name_of(to));
  both(what, [&](FileCalls& on) {
    const bool tested = &on == &tested_;
    return on.copy(tested ? from.tested : from.plain, source, tested ? to.tested : to.plain, target, length,
                   &copied[tested ? 0 : 1]);
  });
  if (copied[0] != copied[1]) differ(fmt::format("{}: {} instead of {}", what, copied[0], copied[1]));
}

void RandomCalls::compare_states(const std::string& what, const struct stat& tested,
                                 const struct stat& plain) {
  const auto check = [&](const char* name, uint64_t one, uint64_t two) {
    if (one != two) differ(fmt::format("{}: {} is {} instead of {}", what, name, one, two));
  };
  check("mode", tested.st_mode, plain.st_mode);
  if (S_ISDIR(plain.st_mode)) return;
  check("number of links", tested.st_nlink, plain.st_nlink);
  check("size", static_cast<uint64_t>(tested.st_size), static_cast<uint64_t>(plain.st_size));
  if (plain.st_mtim.tv_sec <= kLongAgo || tested.st_mtim.tv_sec <= kLongAgo)
    check("mtime", static_cast<uint64_t>(tested.st_mtim.tv_sec), static_cast<uint64_t>(plain.st_mtim.tv_sec));
}

void RandomCalls::look_at(const std::string& path) {
  struct stat tested = {}, plain = {};
  if (both("look " + path, [&](FileCalls& on) { return on.look(path, &on == &tested_ ? &tested : &plain); }))
    compare_states(path, tested, plain);
}

void RandomCalls::step_handle(Pair& pair) {
  const uint64_t dice = rng_.below(100);
  const auto handle = [&](FileCalls& on) { return &on == &tested_ ? pair.tested : pair.plain; };
  if (dice < 40) return write_one(pair, false);
  if (dice < 68) return read_one(pair, false);
  if (dice < 71) return write_one(pair, true);
  if (dice < 74) return read_one(pair, true);
  if (dice < 78) {
    if ((pair.flags & O_ACCMODE) == O_RDONLY) return;
    const uint64_t size = rng_.below(kOffsetMax);
    both(fmt::format("resize {} to {}", name_of(pair), size),
         [&](FileCalls& on) { return on.resize(handle(on), size); });
  } else if (dice < 81) {
    allocate_one(pair);
  } else if (dice < 84) {
    seek_one(pair);
  } else if (dice < 87) {
    copy_one(pair);
  } else if (dice < 90) {
    both("sync " + name_of(pair), [&](FileCalls& on) { return on.sync(handle(on)); });
  } else if (dice < 94) {
    struct stat tested = {}, plain = {};
    if (both("state " + name_of(pair),
             [&](FileCalls& on) { return on.state(handle(on), &on == &tested_ ? &tested : &plain); }))
      compare_states("open file " + name_of(pair), tested, plain);
  } else {
    both("close " + name_of(pair), [&](FileCalls& on) { return on.close(handle(on)); });
    open_.erase(open_.begin() + (&pair - open_.data()));
  }
}

void RandomCalls::step_names() {
  const uint64_t dice = rng_.below(100);
  const std::string path = file_name();
  if (dice < 20) {
    both("unlink " + path, [&](FileCalls& on) { return on.unlink(path); });
  } else if (dice < 35) {
    const std::string to = file_name();
    constexpr unsigned kFlags[] = {0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE};
    const unsigned flags = kFlags[rng_.below(5)];
    both(fmt::format("rename {} {} {}", path, to, flags),
         [&](FileCalls& on) { return on.rename(path, to, flags); });
  } else if (dice < 43) {
    const std::string to = file_name();
    both(fmt::format("link {} {}", path, to), [&](FileCalls& on) { return on.link(path, to); });
  } else if (dice < 47) {
    both("symlink s", [&](FileCalls& on) { return on.make_symlink(path, "s"); });
    std::string targets[2];
    both("readlink s", [&](FileCalls& on) { return on.read_symlink("s", &targets[&on == &tested_]); });
    if (targets[0] != targets[1]) differ(fmt::format("readlink: {} instead of {}", targets[1], targets[0]));
  } else if (dice < 49) {
    both("unlink s", [&](FileCalls& on) { return on.unlink("s"); });
  } else if (dice < 55) {
    const std::string directory = fmt::format("d{}", 1 + rng_.below(2));
    both("mkdir " + directory, [&](FileCalls& on) { return on.make_directory(directory, 0755); });
  } else if (dice < 58) {
    const std::string directory = fmt::format("d{}", 1 + rng_.below(2));
    both("rmdir " + directory, [&](FileCalls& on) { return on.remove_directory(directory); });
  } else if (dice < 60) {
    both("rename d1 d2", [&](FileCalls& on) { return on.rename("d1", "d2", 0); });
  } else if (dice < 66) {
    compare_directory(directory_name());
  } else if (dice < 72) {
    const uint64_t size = rng_.below(kOffsetMax);
    both(fmt::format("truncate {} to {}", path, size),
         [&](FileCalls& on) { return on.truncate(path, size); });
  } else if (dice < 77) {
    const int64_t time = 1 + static_cast<int64_t>(rng_.below(kLongAgo));
    both(fmt::format("utimens {} {}", path, time), [&](FileCalls& on) { return on.set_time(path, time); });
  } else if (dice < 80) {
    const mode_t mode = rng_.chance(1, 2) ? 0600 : 0640;
    both("chmod " + path, [&](FileCalls& on) { return on.set_mode(path, mode); });
  } else if (dice < 83) {
    const std::string name = fmt::format("user.a{}", rng_.below(2)), value = random_bytes(rng_.below(100));
    both("setxattr " + path, [&](FileCalls& on) { return on.set_attribute(path, name, value); });
  } else if (dice < 86) {
    std::string values[2];
    both("getxattr " + path,
         [&](FileCalls& on) { return on.get_attribute(path, "user.a0", &values[&on == &tested_]); });
    if (values[0] != values[1]) differ("getxattr: another value");
  } else {
    look_at(path);
  }
}

void RandomCalls::step() {
  ++calls_;
  if (open_.empty() || (open_.size() < kHandles && rng_.chance(1, 12))) return open_one();
  if (rng_.chance(1, 5)) return step_names();
  step_handle(open_[rng_.below(open_.size())]);
}

std::string RandomCalls::run(uint64_t count) {
  for (const uint64_t end = calls_ + count; calls_ < end && problem_.empty();) step();
  return problem_;
}

void RandomCalls::compare_content(const std::string& path) {
  std::string content[2];
  int failed = 0;
  for (FileCalls* on : {&tested_, &plain_}) {
    struct stat state = {};
    int handle = -1;
    failed |= on->look(path, &state);
    failed |= on->open(path, O_RDONLY, 0, &handle);
    failed |= on->read(handle, 0, static_cast<size_t>(state.st_size) + 1, &content[on == &tested_]);
    failed |= on->close(handle);
  }
  if (failed != 0) return differ(fmt::format("{}: cannot be read: {}", path, ::strerror(failed)));
  if (content[0] == content[1]) return;
  const auto [at, other] =
      std::mismatch(content[0].begin(), content[0].end(), content[1].begin(), content[1].end());
  differ(fmt::format("{}: content differs from byte {} on, of {}", path, at - content[0].begin(),
                     content[0].size()));
}

void RandomCalls::compare_directory(const std::string& path) {
  std::vector<std::string> names[2];
  if (!both("list " + path, [&](FileCalls& on) { return on.list(path, &names[&on == &tested_]); })) return;
  if (names[0] != names[1])
    differ(
        fmt::format("list {}: {} instead of {}", path, fmt::join(names[1], " "), fmt::join(names[0], " ")));
}

std::vector<std::string> RandomCalls::files() {
  std::vector<std::string> found, waiting = {""};
  while (!waiting.empty()) {
    const std::string directory = waiting.back();
    waiting.pop_back();
    std::vector<std::string> names;
    static_cast<void>(plain_.list(directory, &names));
    for (const std::string& name : names) {
      const std::string path = directory.empty() ? name : directory + "/" + name;
      struct stat state = {};
      static_cast<void>(plain_.look(path, &state));
      if (S_ISDIR(state.st_mode)) waiting.push_back(path);
      if (S_ISREG(state.st_mode)) found.push_back(path);
    }
  }
  return found;
}

std::string RandomCalls::compare_trees() {
  for (const std::string directory : {"", "d1", "d2"}) {
    compare_directory(directory);
    std::vector<std::string> names;
    static_cast<void>(plain_.list(directory, &names));
    for (const std::string& name : names) look_at(directory.empty() ? name : directory + "/" + name);
  }
  for (const std::string& path : files()) {
    compare_content(path);
    std::vector<std::string> attributes[2];
    both("listxattr " + path,
         [&](FileCalls& on) { return on.list_attributes(path, &attributes[&on == &tested_]); });
    if (attributes[0] != attributes[1]) differ(path + ": other extended attributes");
  }
  return problem_;
}

void RandomCalls::even_times() {
  for (const std::string& path : files())
    both("utimens " + path, [&](FileCalls& on) { return on.set_time(path, 1); });
}

void RandomCalls::close_all() {
  for (const Pair& pair : open_) {
    static_cast<void>(tested_.close(pair.tested));
    static_cast<void>(plain_.close(pair.plain));
  }
  open_.clear();
}

std::string RandomCalls::summary() const {
  std::string text;
  for (const auto& [name, count] : counts_)
    text += fmt::format("{}{} {}/{}", text.empty() ? "" : ", ", name, count.succeeded, count.made);
  return text;
}

}  // namespace swale::fs
