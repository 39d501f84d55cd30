// Drain: brings files of a node to the backing, as plain files, a batch at a time
// (docs/design/node-files.md).
//
//   begin(files) ─► look()           ─► fill(), put() ... ─► settle()        ─► dress_again() ─► announce()
//   fix             stamps, marks, opens  bytes, checked     syncs, all at once  if need be       a record
//                                                                                                of FilesLog
//   ─► publish()      ─► record()           ─► finish()
//      renames, then     a record of FilesLog   unmark
//      directories
//
// A new or replaced file is written beside, announced (FileRow::ours) and renamed: it is there whole or not
// at all. One whose backing bytes still count is changed in place, under a mark (drain_mark.h). One that
// others have changed since this node began to write it is kept: ours becomes NAME.swale-JOB.
//
// Threads: one at a time. begin(), fill(), announce(), record() and give_up() use NodeFiles, whose thread
// must make them, and never the backing: one that hangs stops nobody there. look(), put(), settle(),
// dress_again(), publish() and finish() use the backing alone: calls of NodeFiles may come beside them. A
// step that was left out is made by the next one, but for dress_again().
// Invariants: (1) Bytes leave the logs only when the file gave them back as it got them, byte for byte by
// checksum, and it was synced after that, has its size, and its name is synced. (2) A drain that was killed
// at any step is finished by the next open(), or has changed nothing. (3) Paths lie beneath the root and
// contain no link. (4) The failure of a file ends that file's drain, and no other's of its batch.
// Errors: of the backing, with its errno; the file stays as it was for programs, and can be drained again.
// Limits: kFilesMax files a batch.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/contain.h"
#include "base/status.h"
#include "fs/node/backing.h"
#include "fs/node/drain_mark.h"
#include "fs/node/node_files.h"
#include "io/many_syncs.h"

namespace swale::fs {

// Steps that tests leave out, to show that they would notice.
struct DrainRules {
  bool sync = true;
  bool sync_names = true;
  bool check = true;
  bool mark = true;
  bool end = true;  // the root of a file hears that its drain has failed
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
    kBare,       // done, but for attributes, which the backing cannot keep: JobFs says so
  };

  // Finishes what a drain before this one has begun. All must outlive it. `source`: in place of `files`, of
  // files that several nodes write: nothing is finished then before it is drained.
  static Result<std::unique_ptr<Drain>> open(NodeFiles& files, Backing& backing, const DrainOptions& options,
                                             DrainSource* source = nullptr) noexcept;

  struct Drained {
    meta::FileId file;
    Result<Outcome> outcome;
  };
  static constexpr size_t kFilesMax = 64;
  static constexpr uint64_t kBatchBytes = 256 * kMiB;  // of the logs, after which no file joins a batch
  static constexpr uint64_t kSpaceBytes = 64 * kMiB;   // the same while writers wait for memory

  // A file from begin to end.
  Result<Outcome> file(const meta::FileId& file) noexcept;
  // All of them; the first failure, after the others were tried.
  Status all() noexcept;
  // Drains the oldest files until no process waits for memory. If the backing has no space, those that wait
  // fail with its errno; they get what is freed later.
  Status make_space() noexcept;

  // In steps. Begins the first of these files, as many as the limits allow, and returns how many those are.
  // What fails for one of them is what finish() returns for it.
  Result<size_t> begin(std::span<const meta::FileId> files, uint64_t bytes_limit = kBatchBytes) noexcept;
  void look() noexcept;
  bool fill() noexcept;  // false: all is written
  void put() noexcept;
  // Makes the files durable.
  void settle() noexcept;
  // What they have beside their bytes may have changed since. From here to record() it may not.
  void dress_again() noexcept;
  // Says which new files are ours, durably, in case this process ends after the next step.
  void announce() noexcept;
  // Gives them their names, which may not change meanwhile.
  void publish() noexcept;
  // The logs forget what is there.
  void record() noexcept;
  // In place of the steps that are left: no file goes on. Then finish().
  void give_up(const Status& why) noexcept;
  std::vector<Drained> finish() noexcept;

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
    Status status;            // a failure: it goes no further
    bool over = false;        // there was nothing to drain, or no name leads to it any more
    bool stale_mark = false;  // one of it may be left that must go
    bool recorded = false;
    bool is_fixed = false;
    NodeFiles::Fixed fixed;
    DrainMark::How how = DrainMark::How::kWhole;
    std::string path;                  // of its name
    std::unique_ptr<io::File> target;  // what has that name now, or null
    Stamp found;                       // of it
    std::shared_ptr<io::File> out;     // what is written
    std::shared_ptr<io::File> there;   // what has the name in the end, to be read
    std::vector<Part> parts;
    size_t next = 0;
    uint64_t done = 0;                    // of the next part
    uint64_t unsent = 0, unsent_end = 0;  // written, and not yet handed to the disk
    uint64_t unsent_bytes = 0;
    Stamp now;  // what is published

    bool goes_on() const { return status.ok() && !over; }
  };
  enum class Step { kNone, kBegun, kLooked, kSettled, kAnnounced, kNamed, kRecorded };

  Drain(NodeFiles& files, Backing& backing, const DrainOptions& options, DrainSource* source)
      : files_(files),
        source_(source != nullptr ? *source : files),
        backing_(backing),
        options_(options),
        syncs_(backing.device()) {}
  Status prepare();
  Status resume();
  // A step of each file that goes on; its failure ends that file's drain.
  template <class Call>
  void each(const Call& call) noexcept {
    for (const auto& work : batch_)
      if (work->goes_on()) work->status = contain([&] { return call(*work); });
  }
  static bool has_no_name(const Status& status) {
    return status.code() == Code::kNotFound || status.code() == Code::kBusy;
  }
  Status take_up(Work& work);
  Status remove_stale_mark(Work& work);
  Status look(Work& work);
  Status plan(Work& work);
  void open_outs() noexcept;
  Status open_new(Work& work);
  Status open_in_place(Work& work);
  Status fill(Work& work);
  Status put(Work& work, uint64_t offset, MutableBytes bytes);
  Status check_size(Work& work);
  void sync_outs(const std::function<bool(const Work&)>& which) noexcept;
  Status publish(Work& work);
  Status publish_whole(Work& work);
  Status see_there(Work& work);
  Status publish_aside(Work& work);
  void sync_new_names() noexcept;
  Status expect_unchanged(const Work& work);
  void mark_in_place() noexcept;
  Status put_mark(const Work& work, const std::string& path, const Stamp& stamp);
  std::string mark_text(const Work& work, const std::string& path, const Stamp& stamp) const;
  Status remove_mark(const meta::FileId& file);
  void unmark() noexcept;
  Result<std::optional<DrainMark>> mark_of(const meta::FileId& file);
  Result<std::unique_ptr<io::File>> open_if_there(const std::string& path, io::OpenMode mode);
  std::string own_path(const char* prefix, const meta::FileId& file) const;
  Status record_drained();
  Status drain_all(std::span<const meta::FileId> files, uint64_t bytes_limit);

  NodeFiles& files_;
  DrainSource& source_;
  Backing& backing_;
  const DrainOptions options_;
  std::string folder_;                   // .swale/JOB
  std::unique_ptr<io::Device> private_;  // of it
  io::ManySyncs syncs_;
  Buffer buffer_;
  Work* filled_ = nullptr;  // whose bytes the buffer has
  uint64_t filled_offset_ = 0;
  size_t filled_bytes_ = 0;
  bool filled_is_kept_ = false;  // they are of the backing file that is kept: put() reads them
  std::vector<std::unique_ptr<Work>> batch_;
  size_t at_ = 0;  // of the batch, what is written next
  Step step_ = Step::kNone;
  std::vector<Drained> drained_;  // has space for the batch
  std::vector<std::string> aside_;
  std::set<meta::FileId> unmarked_;  // drained; their marks could not be removed
};

}  // namespace swale::fs
