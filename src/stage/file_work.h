// FileWork: brings the files of a plan to their places, a batch of small files and pieces of large ones at a
// time (in_batches.h): it is written, synced as a whole, and read back while the next one is written.
//
// A file that an earlier run has finished is left as it is; of one that it has begun, the pieces that are
// whole.
//
// Threads: one calls run; it starts its own.
// Errors: each file's go to the outcomes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stage/file_copy.h"
#include "stage/journal.h"
#include "stage/outcomes.h"

namespace swale::stage {

class FileWork {
 public:
  // All outlives it.
  FileWork(const CopyPlace& place, const Plan& plan, Journal& journal, Outcomes& outcomes);
  ~FileWork();

  void run();

 private:
  // A file of several pieces.
  struct Large {
    explicit Large(const Entry& of) : entry(of) {}
    const Entry& entry;
    std::vector<std::optional<uint32_t>> crcs;  // of the pieces; each its thread's until `left` counts it
    Mutex mutex;
    bool begun GUARDED_BY(mutex) = false;
    std::unique_ptr<FileCopy> copy GUARDED_BY(mutex);
    size_t left GUARDED_BY(mutex) = 0;  // pieces
    Status status GUARDED_BY(mutex);    // the first failure
  };
  // A piece of a large file, or a small file.
  struct Task {
    const Entry* entry = nullptr;
    Large* large = nullptr;
    size_t piece = 0;
    // Of this run:
    std::unique_ptr<FileCopy> copy = {};  // of a small file
    std::optional<uint32_t> crc = {};     // of what was written
    Status status = {};                   // of a small file
  };

  bool is_there(const Entry& entry);
  void add_large(const Entry& entry);
  size_t tasks_of_batch(size_t begin) const;
  size_t begin_batch(size_t begin);
  void write(Task& task, Buffer& buffer);
  void sync(std::span<Task> batch);
  void sync_files(std::span<Task> batch);
  void fail(std::span<Task> batch, const Status& status);
  void check(Task& task, Buffer& buffer);

  void write_piece(Task& task, Buffer& buffer);
  void check_piece(Task& task, Buffer& buffer);
  FileCopy* opened(Large& large) EXCLUDES(large.mutex);
  Status begin(Large& large) REQUIRES(large.mutex);
  void note(Large& large, const Status& status) EXCLUDES(large.mutex);
  Status check_written(FileCopy& copy, const Task& task, Buffer& buffer);
  Status finish(Large& large) REQUIRES(large.mutex);
  Status publish(FileCopy& copy, uint32_t crc);

  uint64_t piece_bytes(const Entry& entry, size_t index) const {
    return std::min(place_.options.piece_bytes, entry.bytes() - index * place_.options.piece_bytes);
  }
  uint64_t bytes_of(const Task& task) const {
    return task.large == nullptr ? task.entry->bytes() : piece_bytes(*task.entry, task.piece);
  }
  uint64_t offset_of(const Task& task) const { return task.piece * place_.options.piece_bytes; }
  bool stopped() const { return place_.stop.load(std::memory_order_relaxed); }

  const CopyPlace& place_;
  const Plan& plan_;
  Journal& journal_;
  Outcomes& outcomes_;
  std::vector<std::unique_ptr<Large>> large_;
  std::vector<Task> tasks_;
};

}  // namespace swale::stage
