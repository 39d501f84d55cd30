// SharedStandIns: bytes of copies, between the tree, the base and programs.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/buffer.h"
#include "base/log.h"
#include "fs/job/insist.h"
#include "fs/job/job_marks.h"
#include "fs/job/shared_stand_in_names.h"
#include "fs/job/shared_stand_ins.h"
#include "fs/job/stand_in_changes.h"
#include "fs/job/stand_in_file.h"

namespace swale::fs {
namespace {

constexpr size_t kWindow = 4 << 20;  // that is committed at a time
constexpr size_t kBridge = 4096;     // equal bytes that cost less than a piece of their own
constexpr size_t kPiecesMax = 1000;  // of a window: more cost more than reading it from the tree

bool has_bytes(Bytes bytes) {
  return stand_in_changes::first_difference({bytes.data(), nullptr}, 0, bytes.size()) < bytes.size();
}

// Where data begins, of what is in [offset, end).
uint64_t data_from(int fd, uint64_t offset, uint64_t end) {
  const off_t place = ::lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
  if (place < 0) return errno == ENXIO ? end : offset;
  return std::min(end, static_cast<uint64_t>(place));
}

int size_of_file(const io::Descriptor& file, uint64_t* size) {
  struct stat found;
  if (::fstat(file.get(), &found) != 0) return errno;
  *size = static_cast<uint64_t>(found.st_size);
  return 0;
}

int set_size(const io::Descriptor& file, uint64_t size) {
  return ::ftruncate(file.get(), static_cast<off_t>(size)) == 0 ? 0 : errno;
}

}  // namespace

Status SharedStandIns::Windows::allocate(uint64_t file_bytes) {
  const size_t bytes = std::clamp<uint64_t>(file_bytes, 1, kWindow);
  for (Buffer* const each : {&now, &before, &tree}) {
    SWALE_ASSIGN_OR_RETURN(*each, Buffer::allocate(bytes));
  }
  return {};
}

int SharedStandIns::copy_from_tree(StandIn& stand, const io::Descriptor& to) {
  auto buffer = Buffer::allocate(kWindow);
  if (!buffer.ok()) return ENOMEM;
  uint64_t offset = 0;
  for (size_t got = 1; got > 0; offset += got) {
    if (const int failed = fs_.read(*stand.reader, offset, buffer->span(), &got); failed != 0) return failed;
    const Bytes part = view(buffer->span().first(got));
    if (const int failed = has_bytes(part) ? write_all(to.get(), part, offset) : 0; failed != 0)
      return failed;
  }
  if (const int failed = set_size(to, offset); failed != 0) return failed;
  struct stat found;
  if (const int failed = fs_.attributes(*stand.node, &found); failed != 0) return failed;
  const timespec times[2] = {found.st_atim, found.st_mtim};
  return ::futimens(to.get(), times) == 0 ? 0 : errno;
}

// Of the copy, which nobody could write yet. By sharing its blocks, where the file system can.
int SharedStandIns::make_base(StandIn& stand) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
  const std::string name = name_of(stand) + std::string(kBaseSuffix), is_made = name + std::string(kIsMade);
  io::Descriptor made(::openat(directory_.get(), is_made.c_str(), kFlags, 0600));
  if (!made.valid()) return errno;
  uint64_t size = 0;
  int failed = size_of_file(stand.own, &size);
  if (failed == 0 && size > 0 && ::ioctl(made.get(), FICLONE, stand.own.get()) != 0) {
    auto buffer = Buffer::allocate(std::min<uint64_t>(kWindow, size));
    if (!buffer.ok()) failed = ENOMEM;
    for (uint64_t at = 0; failed == 0 && (at = data_from(stand.own.get(), at, size)) < size;) {
      const MutableBytes part = buffer->span().first(std::min<uint64_t>(buffer->size(), size - at));
      size_t got = 0;
      failed = read_all(stand.own.get(), part, at, &got);
      if (failed == 0 && has_bytes(view(part))) failed = write_all(made.get(), view(part), at);
      at += part.size();
    }
    if (failed == 0) failed = set_size(made, size);
  }
  if (failed == 0 && ::renameat(directory_.get(), is_made.c_str(), directory_.get(), name.c_str()) != 0)
    failed = errno;
  if (failed == 0) {
    stand.base = std::move(made);
    return 0;
  }
  ::unlinkat(directory_.get(), is_made.c_str(), 0);
  log_error("{}/{}: a copy of what the tree has: {}", folder_, name,
            errno_status(failed, "making it").message());
  return failed;
}

// ---- back into the tree

int SharedStandIns::begin_taking(StandIn& stand, bool* alone) {
  const uint8_t uses = kCopyIsRead | kCopyIsWritten;
  const auto answer = ask({.file = stand.id, .op = StandInOp::kBegin, .uses = uses, .number = stand.number});
  if (!answer.ok()) return fs_.answer_of(answer.status());
  *alone = answer->granted;
  return 0;
}

int SharedStandIns::end_taking(StandIn& stand, bool alone, bool changed) {
  if (!alone && !changed) return 0;
  const auto answer = ask({.file = stand.id, .op = StandInOp::kTook, .changed = changed, .alone = alone});
  if (!answer.ok()) return fs_.answer_of(answer.status());
  if (answer->before == stand.number) stand.number = answer->number;  // else others have changed it, too
  return 0;
}

int SharedStandIns::take_in_copy(StandIn& stand, bool nobodys) {
  struct stat now, before;
  if (::fstat(stand.own.get(), &now) != 0) return errno;
  if (!stand.may_be_written && now.st_size == stand.taken.st_size && same(now.st_mtim, stand.taken.st_mtim) &&
      same(now.st_ctim, stand.taken.st_ctim))
    return 0;
  int failed = begin_writer(stand, stand.by);
  // Sealed: nobody could have it so with bytes that the tree lacks. A server was killed before it went.
  const bool is_sealed = failed == EPERM;
  if (failed != 0 && !is_sealed) return failed;
  if (failed = fs_.attributes(*stand.node, &before); failed != 0) return failed;
  Part part{.size = static_cast<uint64_t>(now.st_size), .keeps_base = !nobodys};
  if (!is_sealed) {
    if (failed = begin_taking(stand, &part.alone); failed != 0) return failed;
    failed = errno_of([&]() NO_THREAD_SAFETY_ANALYSIS { return copy_to_tree(stand, &part); });
    const int untold = end_taking(stand, part.alone, part.changed);
    if (failed != 0 || untold != 0) return failed != 0 ? failed : untold;
  }
  if (part.changed) {
    const bool is_later = nanos_of(before.st_mtim) > nanos_of(now.st_mtim);  // another node's
    const Change times{.accessed = now.st_atim, .modified = is_later ? before.st_mtim : now.st_mtim};
    struct stat said;
    if (failed = fs_.change(*stand.node, times, stand.by, &said); failed != 0) return failed;
  }
  stand.taken = now;
  if (nobodys) stand.may_be_written = false;
  return 0;
}

int SharedStandIns::copy_to_tree(StandIn& stand, Part* part) {
  Windows windows;
  if (!windows.allocate(part->size).ok()) return ENOMEM;
  uint64_t base_size = 0;
  if (const int failed = size_of_file(stand.base, &base_size); failed != 0) return failed;
  for (uint64_t at = 0; at < part->size;) {
    at = std::min(data_from(stand.own.get(), at, part->size), data_from(stand.base.get(), at, part->size));
    if (at >= part->size) break;
    const size_t length = std::min<uint64_t>(kWindow, part->size - at);
    const MutableBytes now = windows.now.span().first(length), before = windows.before.span().first(length);
    size_t got = 0, of_base = 0;
    if (const int failed = read_all(stand.own.get(), now, at, &got); failed != 0) return failed;
    if (const int failed = read_all(stand.base.get(), before, at, &of_base); failed != 0) return failed;
    if (got == 0) break;  // it was cut meanwhile, and is taken in again
    if (const int failed = write_changes(stand, at, view(now.first(got)), view(before.first(got)),
                                         windows.tree.span().first(got), part);
        failed != 0)
      return failed;
    at += got;
  }
  if (part->size == base_size) return 0;
  const auto ends = [&]() NO_THREAD_SAFETY_ANALYSIS { return end_alike(stand, base_size, part); };
  return part->alone ? ends() : in_turn(stand.id, true, ends);
}

// What is committed is the base's: so a kill in between leaves it to be taken in again.
int SharedStandIns::write_changes(StandIn& stand, uint64_t offset, Bytes now, Bytes before, MutableBytes tree,
                                  Part* part) {
  size_t pieces = 0;
  find_changes(now.data(), before.data(), now.size(), 0, [&](size_t, size_t) { ++pieces; });
  if (pieces == 0 && rules_.takes_changes) return 0;
  part->changed = true;
  int failed = 0;
  if (part->alone || !rules_.takes_changes) {
    const Bytes nothing = rules_.takes_changes ? before : Bytes();
    failed = put_changes(stand, offset, now, now, nothing, kBridge);
  } else {
    const bool fills = pieces > kPiecesMax;
    failed = in_turn(stand.id, fills, [&]() NO_THREAD_SAFETY_ANALYSIS {
      if (!fills) return put_changes(stand, offset, now, now, before, 0);
      const int unread = read_between(stand, offset, now, before, tree);
      return unread != 0 ? unread : put_changes(stand, offset, view(tree), now, before, kBridge);
    });
  }
  if (failed != 0 || !part->keeps_base) return failed;
  find_changes(now.data(), before.data(), now.size(), 0,
               [&](size_t begin, size_t end) NO_THREAD_SAFETY_ANALYSIS {
                 if (failed == 0)
                   failed = write_all(stand.base.get(), now.substr(begin, end - begin), offset + begin);
               });
  return failed;
}

// Where `now` is not `before` (empty: all of it), and of at most `bridge` bytes between two such places, what
// `bytes` has.
int SharedStandIns::put_changes(StandIn& stand, uint64_t offset, Bytes bytes, Bytes now, Bytes before,
                                size_t bridge) {
  int failed = 0;
  const auto put = [&](size_t begin, size_t end) NO_THREAD_SAFETY_ANALYSIS {
    if (failed != 0) return;
    fs_.write_bytes(*stand.writer, offset + begin, bytes.substr(begin, end - begin), stand.by,
                    [&](int error) { failed = error; });
  };
  if (before.empty())
    put(0, now.size());
  else
    find_changes(now.data(), before.data(), now.size(), bridge, put);
  return failed != 0 ? failed : fs_.flush(*stand.writer);
}

// What the tree has, beneath what was changed here.
int SharedStandIns::read_between(StandIn& stand, uint64_t offset, Bytes now, Bytes before, MutableBytes out) {
  size_t got = 0;
  for (size_t part = 1; part > 0 && got < out.size(); got += part)
    if (const int failed = fs_.read(*stand.reader, offset + got, out.subspan(got), &part); failed != 0)
      return failed;
  std::fill(out.begin() + static_cast<ptrdiff_t>(got), out.end(), '\0');
  find_changes(now.data(), before.data(), now.size(), 0, [&](size_t begin, size_t end) {
    std::copy(now.begin() + static_cast<ptrdiff_t>(begin), now.begin() + static_cast<ptrdiff_t>(end),
              out.begin() + static_cast<ptrdiff_t>(begin));
  });
  return 0;
}

// Its end was told with its last bytes, unless these are zeros where nothing was.
int SharedStandIns::end_alike(StandIn& stand, uint64_t base_size, Part* part) {
  struct stat found;
  if (part->size < base_size) {
    const Change shorter{.size = part->size, .size_by_handle = true};
    if (const int failed = fs_.change(*stand.node, shorter, stand.by, &found); failed != 0) return failed;
    part->changed = true;
    return set_size(stand.base, part->size);
  }
  if (const int failed = fs_.attributes(*stand.node, &found); failed != 0) return failed;
  if (static_cast<uint64_t>(found.st_size) < part->size) {
    int failed = 0;
    fs_.write_bytes(*stand.writer, part->size - 1, Bytes("\0", 1), stand.by,
                    [&](int error) { failed = error; });
    if (failed == 0) failed = fs_.flush(*stand.writer);
    if (failed != 0) return failed;
    part->changed = true;
  }
  return set_size(stand.base, part->size);
}

// ---- what other nodes have committed

// While programs write it. A copy without a base was never written: it is what the tree was.
int SharedStandIns::refresh(StandIn& stand, uint64_t number) {
  if (number == stand.number) return 0;
  Windows windows;
  struct stat tree, own;
  if (!windows.allocate(kWindow).ok()) return ENOMEM;
  if (const int failed = fs_.attributes(*stand.node, &tree); failed != 0) return failed;
  if (::fstat(stand.own.get(), &own) != 0) return errno;
  const bool has_base = stand.base.valid();
  // Never shorter: a program may make it longer meanwhile.
  if (tree.st_size > own.st_size && ::fallocate(stand.own.get(), 0, tree.st_size - 1, 1) != 0) return errno;
  uint64_t offset = 0;
  for (size_t got = kWindow; got == kWindow; offset += got) {
    if (const int failed = fs_.read(*stand.reader, offset, windows.tree.span(), &got); failed != 0)
      return failed;
    got = offset + got > static_cast<uint64_t>(tree.st_size) ? static_cast<uint64_t>(tree.st_size) - offset
                                                             : got;
    if (got == 0) break;
    const Bytes now = view(windows.tree.span().first(got));
    const MutableBytes before = windows.before.span().first(got);
    size_t there = 0;
    const int from = has_base ? stand.base.get() : stand.own.get();
    if (const int failed = read_all(from, before, offset, &there); failed != 0) return failed;
    if (now == view(before)) continue;
    if (const int failed = merge_window(stand, offset, now, view(before)); failed != 0) return failed;
    if (const int failed = has_base ? write_all(stand.base.get(), now, offset) : 0; failed != 0)
      return failed;
  }
  if (const int failed = shorten(stand, static_cast<uint64_t>(tree.st_size), windows); failed != 0)
    return failed;
  stand.number = number;
  if (stand.may_be_written) return 0;
  const timespec times[2] = {tree.st_atim, tree.st_mtim};
  if (::futimens(stand.own.get(), times) != 0 || ::fstat(stand.own.get(), &stand.taken) != 0) return errno;
  return 0;
}

// Its pages are there before they are written: else a full disk would be a signal.
int SharedStandIns::merge_window(StandIn& stand, uint64_t offset, Bytes tree, Bytes before) {
  const auto at = static_cast<off_t>(offset), length = static_cast<off_t>(tree.size());
  if (!rules_.merges_by_word) return write_all(stand.own.get(), tree, offset);
  if (::fallocate(stand.own.get(), FALLOC_FL_KEEP_SIZE, at, length) != 0) return errno;
  void* const mapped = ::mmap(nullptr, tree.size(), PROT_READ | PROT_WRITE, MAP_SHARED, stand.own.get(), at);
  if (mapped == MAP_FAILED) return errno;
  merge_changes(static_cast<char*>(mapped), tree.data(), before.data(), tree.size());
  ::munmap(mapped, tree.size());
  return 0;
}

// Another node has cut the tree's: what nobody has changed here goes. What was written behind stays.
int SharedStandIns::shorten(StandIn& stand, uint64_t size, Windows& windows) {
  uint64_t base_size = 0, own_size = 0;
  if (const int failed = size_of_file(stand.own, &own_size); failed != 0) return failed;
  base_size = own_size;
  if (stand.base.valid())
    if (const int failed = size_of_file(stand.base, &base_size); failed != 0) return failed;
  if (base_size <= size) return stand.base.valid() ? set_size(stand.base, size) : 0;
  const MutableBytes zeros = windows.tree.span();
  std::fill(zeros.begin(), zeros.end(), '\0');
  const uint64_t first = size / kWindow * kWindow, end = std::min(base_size, own_size);
  for (uint64_t at = first; at < end; at += kWindow) {
    const MutableBytes before = windows.before.span().first(std::min<uint64_t>(kWindow, end - at));
    size_t got = 0;
    const int from = stand.base.valid() ? stand.base.get() : stand.own.get();
    if (const int failed = read_all(from, before, at, &got); failed != 0) return failed;
    if (at < size)
      std::fill(before.begin(),
                before.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(size - at, before.size())), '\0');
    if (const int failed = merge_window(stand, at, view(zeros.first(before.size())), view(before));
        failed != 0)
      return failed;
  }
  if (stand.base.valid())
    if (const int failed = set_size(stand.base, size); failed != 0) return failed;
  if (const int failed = size_of_file(stand.own, &own_size); failed != 0) return failed;
  if (own_size != base_size) return 0;
  // Nothing but zeros is behind, unless somebody has written there.
  auto& now = windows.now;
  for (uint64_t at = size; at < own_size; at += kWindow) {
    const MutableBytes part = now.span().first(std::min<uint64_t>(kWindow, own_size - at));
    size_t got = 0;
    if (const int failed = read_all(stand.own.get(), part, at, &got); failed != 0) return failed;
    if (has_bytes(view(part))) return 0;
  }
  return set_size(stand.own, size);
}

// ---- cut

int SharedStandIns::cut(StandIn& stand, uint64_t size, const Caller& caller) {
  struct stat tree;
  uint64_t own_size = 0, base_size = 0;
  if (const int failed = fs_.attributes(*stand.node, &tree); failed != 0) return failed;
  if (const int failed = size_of_file(stand.own, &own_size); failed != 0) return failed;
  if (const int failed = size_of_file(stand.base, &base_size); failed != 0) return failed;
  if (size == 0 && tree.st_size == 0 && own_size == 0 && base_size == 0) return 0;
  const Change change{.size = size, .size_by_handle = true};
  const auto shorten = [&]() NO_THREAD_SAFETY_ANALYSIS {
    return fs_.change(*stand.node, change, caller, &tree);
  };
  if (const int failed = in_turn(stand.id, true, shorten); failed != 0) return failed;
  if (const int failed = set_size(stand.own, size); failed != 0) return failed;
  if (const int failed = set_size(stand.base, size); failed != 0) return failed;
  return end_taking(stand, false, true);
}

// Nobody takes in alone meanwhile.
int SharedStandIns::cut_elsewhere(Node& node, uint64_t size, const Caller& caller) {
  const meta::FileId id = JobFs::file_id(node);
  uint64_t number = 0;
  if (const int failed = say(id, kIsCut, &number); failed != 0) return failed;
  struct stat found;
  const int failed = in_turn(id, true, [&] { return fs_.change(node, {.size = size}, caller, &found); });
  const auto told = ask({.file = id, .op = StandInOp::kTook, .uses = kIsCut, .changed = true});
  if (failed != 0) return failed;
  return told.ok() ? 0 : fs_.answer_of(told.status());
}

}  // namespace swale::fs
