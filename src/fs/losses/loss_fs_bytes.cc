// LossFs: bytes of files.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/contain.h"
#include "base/log.h"
#include "fs/losses/loss_base.h"
#include "fs/losses/loss_fs.h"
#include "fs/losses/loss_node.h"

namespace swale::fs {
namespace {

struct LossFile final : OpenFile {
  explicit LossFile(const LossNode& of) : node(of) {}
  static LossFile& of(OpenFile& opened) { return static_cast<LossFile&>(opened); }

  const LossNode& node;
  LossBase base;         // of a file of the plan
  io::Descriptor there;  // of another one
};

Status read_there(const io::Descriptor& there, uint64_t offset, MutableBytes out, size_t* got) {
  *got = 0;
  while (*got < out.size()) {
    const ssize_t bytes =
        ::pread(there.get(), out.data() + *got, out.size() - *got, static_cast<off_t>(offset + *got));
    if (bytes == 0) break;
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return errno_status(errno, fmt::format("reading it at byte {}", offset + *got));
    *got += static_cast<size_t>(bytes);
  }
  return {};
}

}  // namespace

int LossFs::open_file(Node& known, int flags, const Caller&, std::unique_ptr<OpenFile>* file) {
  const LossNode& node = LossNode::of(known);
  if (S_ISDIR(node.type)) return EISDIR;
  if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0) return EROFS;
  auto opened = std::make_unique<LossFile>(node);
  if (node.loss == nullptr) {
    if (const int failed = open_there(node.path, O_RDONLY | O_NONBLOCK, &opened->there); failed != 0)
      return failed;
    struct stat found;
    if (::fstat(opened->there.get(), &found) != 0) return errno;
    if (!S_ISREG(found.st_mode)) return ESTALE;  // others have put it there
    if (const int refused = guard(found, node.path); refused != 0) return refused;
  } else {
    if (node.loss->fate == FileLoss::Fate::kOpen)
      return refuse(node.path, "it is new, and a node that is lost had it open");
    auto base = find_base(device_, options_.backing + "/" + node.path, options_.job_folder, *node.loss);
    if (!base.ok()) return fail(node.path, base.status());
    opened->base = *std::move(base);
  }
  *file = std::move(opened);
  return 0;
}

Status LossFs::expect_known(const LossNode& node, bool has_base, const Span& span) const {
  if (!options_.rules.fails_lost) return {};
  Status first;
  node.loss->lost.visit(span, [&](const Span& lost, NodeId owner) {
    if (first.ok())
      first = error(Code::kIoError, Scope::kFile, "bytes {} to {}, and maybe others, were on node {} alone{}",
                    lost.begin, lost.end, owner,
                    plan_.absent.contains(owner) ? ", which is lost" : ", whose logs lack them");
  });
  if (has_base || !first.ok()) return first;
  below(node, span).visit(span, [&](const Span& part, char) {
    first = error(Code::kIoError, Scope::kFile,
                  "bytes {} to {} were the backing's, whose file others have changed or removed since",
                  part.begin, part.end);
  });
  return first;
}

// What the backing has of the span.
RangeMap<char> LossFs::below(const LossNode& node, const Span& span) {
  RangeMap<char> parts;
  parts.put({span.begin, std::min(span.end, node.loss->backing_end)}, 0);
  node.loss->kept.visit(span, [&](const Span& part, NodeId) { parts.cut(part); });
  return parts;
}

// `out` lies within the file.
Status LossFs::read_parts(const LossNode& node, io::File* base, uint64_t offset, MutableBytes out) {
  const Span span{offset, offset + out.size()};
  std::memset(out.data(), 0, out.size());
  const auto at = [&](const Span& part) { return out.subspan(part.begin - offset, part.end - part.begin); };
  Status failed;
  below(node, span).visit(span, [&](const Span& part, char) {
    if (failed.ok() && base != nullptr) failed = io::read_exactly(*base, part.begin, at(part));
  });
  SWALE_RETURN_IF_ERROR(failed);
  std::map<NodeId, std::vector<Wanted>> wanted;
  node.loss->kept.visit(span, [&](const Span& part, NodeId owner) {
    wanted[owner].push_back({part, at(part)});
  });
  for (const auto& [owner, parts] : wanted) SWALE_RETURN_IF_ERROR(fetch_(owner, node.loss->file, parts));
  return {};
}

int LossFs::read(OpenFile& opened, uint64_t offset, MutableBytes out, size_t* got) {
  LossFile& file = LossFile::of(opened);
  const LossNode& node = file.node;
  if (node.loss == nullptr) {
    const Status status = read_there(file.there, offset, out, got);
    return status.ok() ? 0 : fail(node.path, status);
  }
  const uint64_t size = node.loss->size;
  const size_t bytes = offset < size ? std::min<uint64_t>(out.size(), size - offset) : 0;
  *got = bytes;
  if (bytes == 0) return 0;
  io::File* const base = file.base.changed ? nullptr : file.base.file.get();
  const Status known = expect_known(node, base != nullptr, {offset, offset + bytes});
  if (!known.ok()) return refuse(node.path, std::string(known.message()));
  const Status status = contain([&] { return read_parts(node, base, offset, out.first(bytes)); });
  return status.ok() ? 0 : fail(node.path, status);
}

int LossFs::seek(OpenFile& opened, uint64_t offset, int whence, uint64_t* found) {
  struct stat now;
  if (const int failed = fill(LossFile::of(opened).node, &now); failed != 0) return failed;
  const auto size = static_cast<uint64_t>(now.st_size);
  if (offset >= size) return ENXIO;
  *found = whence == SEEK_HOLE ? size : offset;
  return 0;
}

}  // namespace swale::fs
