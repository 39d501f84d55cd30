// SpillWriter: brings complete chunks to files of node-local storage, several at a time, while their process
// writes on.
//
//   start() ─► payload, from the log's memory ─► index ─► sync ─► names, of many at once ─► Chunk::spilled
//
// A chunk on its way keeps its slot and its number (Chunk::is_on_its_way), and one that has arrived keeps
// its slot until somebody frees that: it is read from memory.
//
// Threads: one at a time; a thread that has called start() or advance() calls finish() before it ends.
// Invariants: (1) Chunk::spilled is set when file and name are synced. (2) The index comes after the payload:
// a file without a whole trailer is one of which memory has the chunk.
// Errors: a chunk that fails stays in memory, its file is removed, and the first failure is told by the next
// advance() or finish(). Limits: kAtOnce chunks.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fs/log/served_log.h"
#include "io/device.h"
#include "io/io_queue.h"

namespace swale::fs {

class SpillWriter {
 public:
  static constexpr size_t kAtOnce = 8;
  static constexpr size_t kNamesAtOnce = 8;

  // `device`: of the folder; it must outlive this, as the logs must. `problems`: where damage that is found
  // is told.
  SpillWriter(io::Device& device, std::string folder, const LogRules& rules, std::vector<Status>* problems)
      : device_(device), folder_(std::move(folder)), rules_(rules), problems_(problems) {}
  ~SpillWriter();
  SpillWriter(const SpillWriter&) = delete;
  SpillWriter& operator=(const SpillWriter&) = delete;

  std::string path_of(uint32_t log, uint64_t number) const;

  bool has_place() const { return under_way_ < kAtOnce; }
  bool has_under_way() const { return under_way_ > 0; }  // else only names are not synced
  bool is_busy() const { return under_way_ + synced_.size() > 0; }
  // Of a chunk that is complete, settled and neither spilled nor on its way. Needs a place.
  Status start(ServedLog& log, Chunk& chunk);
  // Goes on with what the disk has done; waits for at least so many of its operations.
  Status advance(size_t at_least);
  // Waits for all.
  Status finish();
  // True once after each sync of the folder: removals before it are durable, too.
  bool take_named() { return std::exchange(named_, false); }

 private:
  struct Work {
    ServedLog* log = nullptr;  // null: a free place
    Chunk* chunk = nullptr;
    std::unique_ptr<io::File> file = nullptr;
    uint64_t pages_end = 0;  // the payload before it was written past the page cache
    bool has_index = false;
    bool has_name = false;  // durably
  };
  Status begin(Work& work);
  Status put_index(Work& work);
  Status submit(const Work& work, io::Operation operation);
  void go_on(Work& work) noexcept;
  void arrive(Work& work) noexcept;
  void fail(Work& work, const Status& status) noexcept;
  void sync_names() noexcept;

  io::Device& device_;
  const std::string folder_;
  const LogRules rules_;
  std::vector<Status>* const problems_;
  std::unique_ptr<io::IoQueue> queue_;  // made when it is needed
  std::array<Work, kAtOnce> works_;
  size_t under_way_ = 0;
  std::vector<Work> synced_;  // whose names are not; has space for all that are under way
  std::vector<io::Completion> done_;
  Status failure_;
  bool named_ = false;
};

}  // namespace swale::fs
