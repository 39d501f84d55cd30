// FileWork: brings the files of a plan to their places. A large file is divided into pieces, which several
// threads copy at once; small files go in batches, whose syncs are in flight together.
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
  struct Small {
    const Entry& entry;
    std::unique_ptr<FileCopy> copy = {};
    uint32_t crc = 0;
    Status status = {};
  };
  // A piece of a large file, or a batch.
  struct Task {
    Large* large = nullptr;
    size_t piece = 0;
    std::span<const Entry* const> batch = {};
  };

  bool is_there(const Entry& entry);
  void add_large(const Entry& entry);
  void add_batches();
  void do_task(const Task& task, Buffer& buffer);

  void do_piece(Large& large, size_t index, Buffer& buffer);
  FileCopy* opened(Large& large) EXCLUDES(large.mutex);
  Status begin(Large& large) REQUIRES(large.mutex);
  Status copy_piece(FileCopy& copy, uint64_t offset, uint64_t bytes, Buffer& buffer,
                    std::optional<uint32_t>* crc);
  Status finish(Large& large) REQUIRES(large.mutex);
  void do_batch(std::span<const Entry* const> batch, Buffer& buffer);
  void sync(std::vector<Small>& files);
  Status publish(FileCopy& copy, uint32_t crc);

  uint64_t piece_bytes(const Entry& entry, size_t index) const {
    return std::min(place_.options.piece_bytes, entry.bytes() - index * place_.options.piece_bytes);
  }
  bool stopped() const { return place_.stop.load(std::memory_order_relaxed); }

  const CopyPlace& place_;
  const Plan& plan_;
  Journal& journal_;
  Outcomes& outcomes_;
  std::vector<std::unique_ptr<Large>> large_;
  std::vector<const Entry*> small_;
  std::vector<Task> tasks_;
};

}  // namespace swale::stage
