// Drain: brings files of a node to the backing, as plain files (docs/design/node-files.md).
//
//   begin(file) ─► write_some() ... ─► settle() ─► announce() ─► publish() ─► finish()
//   fix, look      the bytes, checked   sync        FilesLog      mark, rename  FilesLog, unmark
//
// A new or replaced file is written beside, announced (FileRow::ours) and renamed: it is there whole or not
// at all. One whose backing bytes still count is changed in place, under a mark (drain_mark.h). One that
// others have changed since this node began to write it is kept: ours becomes NAME.swale-JOB.
//
// Threads: one at a time, that of NodeFiles; its other calls may come between the steps, and beside
// settle() and publish().
// Invariants: (1) Bytes leave the logs only when the file gave them back as it got them, byte for byte by
// checksum, and it was synced after that, has its size, and its name is synced. (2) A drain that was killed
// at any step is finished by the next open(), or has changed nothing. (3) Paths lie beneath the root and
// contain no link.
// Errors: of the backing, with its errno; the file stays as it was for programs, and can be drained again.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "fs/node/backing.h"
#include "fs/node/drain_mark.h"
#include "fs/node/node_files.h"

namespace swale::fs {

// Steps that tests leave out, to show that they would notice.
struct DrainRules {
  bool sync = true;
  bool check = true;
  bool mark = true;
};

struct DrainOptions {
  std::string job = {};  // of NAME.swale-JOB; one name
  DrainRules rules = {};
};

class Drain {
 public:
  enum class Outcome {
    kNothing,  // it was drained, or has no name any more
    kDone,
    kKeptAside,  // as NAME.swale-JOB: aside() says where
  };

  // Finishes what a drain before this one has begun. All must outlive it.
  static Result<std::unique_ptr<Drain>> open(NodeFiles& files, Backing& backing,
                                             const DrainOptions& options) noexcept;

  // A file from begin to end.
  Result<Outcome> file(const meta::FileId& file) noexcept;
  // All of them; the first failure, after the others were tried.
  Status all() noexcept;
  // Drains the oldest files until no process waits for memory. If the backing has no space, those that wait
  // fail with its errno; they get what is freed later.
  Status make_space() noexcept;

  // In steps. False: there is nothing to drain. A failure of any step ends the work: the file is as it was.
  Result<bool> begin(const meta::FileId& file) noexcept;
  Result<bool> write_some() noexcept;  // false: all is written
  // Makes it durable: what takes long, and needs nothing of NodeFiles. finish() does it if
  // nobody has. After a failure: abandon().
  Status settle() noexcept;
  // Says which new file is ours, durably, in case this process ends after the next step.
  Status announce() noexcept;
  // Gives it its name, which may not change meanwhile. As settle(), after announce().
  Status publish() noexcept;
  Result<Outcome> finish() noexcept;
  void abandon() noexcept;

  const std::vector<std::string>& aside() const { return aside_; }

 private:
  // Bytes that are to be written: of the logs, or of the backing file that is kept.
  struct Part {
    uint64_t offset = 0;
    uint64_t length = 0;
    std::optional<FileExtents::Piece> piece = {};  // none: of `target`
  };
  struct Work {
    meta::FileId file;
    NodeFiles::Fixed fixed;
    DrainMark::How how = DrainMark::How::kWhole;
    std::string path;                  // of its name
    std::unique_ptr<io::File> target;  // what has that name now, or null
    Stamp found;                       // of it
    std::unique_ptr<io::File> out;     // what is written
    std::vector<Part> parts;
    size_t next = 0;
    uint64_t done = 0;                    // of the next part
    uint64_t unsent = 0, unsent_end = 0;  // written, and not yet handed to the disk
    bool settled = false;
    bool announced = false;
    bool published = false;
    bool nameless = false;  // no name leads to it any more
    Stamp now;              // what is published
  };

  Drain(NodeFiles& files, Backing& backing, const DrainOptions& options)
      : files_(files), backing_(backing), options_(options) {}
  Status prepare();
  Status resume();
  Status look(Work& work);
  Status plan(Work& work);
  Status open_out(Work& work);
  Status settle(Work& work);
  Status put(Work& work, uint64_t offset, MutableBytes bytes);
  Status check_size(Work& work);
  Status announce(Work& work);
  Status publish(Work& work);
  Status publish_whole(Work& work);
  Status publish_aside(Work& work);
  Status expect_unchanged(const Work& work);
  Status put_mark(const Work& work, const std::string& path, const Stamp& stamp);
  Status remove_mark(const meta::FileId& file);
  Status unmark(const meta::FileId& file, DrainMark::How how);
  Result<std::optional<DrainMark>> mark_of(const meta::FileId& file);
  Result<std::unique_ptr<io::File>> open_if_there(const std::string& path, io::OpenMode mode);
  std::string own_path(const char* prefix, const meta::FileId& file) const;
  template <class Call>
  auto step(const Call& call) noexcept;

  NodeFiles& files_;
  Backing& backing_;
  const DrainOptions options_;
  std::string folder_;                   // .swale/JOB
  std::unique_ptr<io::Device> private_;  // of it
  Buffer buffer_;
  std::unique_ptr<Work> work_;  // or null
  std::vector<std::string> aside_;
  std::set<meta::FileId> unmarked_;  // drained; their marks could not be removed
};

}  // namespace swale::fs
