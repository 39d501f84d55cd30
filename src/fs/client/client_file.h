// ClientFile: a file of a job's tree, open in a program of the node. What is written goes to the log of this
// process, without a call of the system; what logs of the node have is read there (LogReads); all else, and
// what cannot go there, through the mount. So where this falls back it is slower, and never wrong.
//
//   write() ─► log of this process ─┐                       ┌─► in the logs
//   or else ─► mount ─► server ─────┴─► the node's order ───┴─► through the mount: read() of any process
//
// Opens ask for no pages of the kernel (O_DIRECT): it would answer in the place of the server.
//
// Threads: any, but open and close. A child of fork may go on with the file.
// Invariants: when a write has returned, each process of the node sees it, by whatever way it reads.
// Errors: errno as of the system's calls, EIO where the server of the node is gone or silent, with the node
// and the path. A failed write may have written a part.
// Limits: files opened to append, or with O_SYNC or O_DSYNC, write through the mount, where each write gets
// its place, or is synced.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "fs/client/attachment.h"
#include "fs/client/log_reads.h"
#include "io/descriptor.h"

namespace swale::fs {

// Equal records at equal distances in the file, one after the other in memory.
struct StridedRecords {
  uint64_t offset = 0;  // of the first one
  uint64_t stride = 0;
  size_t record_bytes = 0;
  size_t count = 0;
};

class ClientFile {
 public:
  enum class By {
    kLog,    // if the server gives the right to; else through the mount
    kMount,  // always
    kLogOnly,
  };
  struct Options {
    int flags = 0;  // of open(2)
    mode_t mode = 0644;
    By by = By::kLog;
  };

  static Result<std::unique_ptr<ClientFile>> open(const std::string& path, const Options& options);
  ~ClientFile() = default;  // closes it, and nobody hears what fails
  Status close();

  Status write(uint64_t offset, Bytes bytes);
  Status write(uint64_t offset, std::span<const Bytes> parts);  // one after the other
  Status write(const StridedRecords& where, const char* data);
  // At the end of what these calls have written; of a file opened to append, at its end.
  Status write_next(Bytes bytes);
  // Fewer bytes only at the end of the file.
  Result<size_t> read(uint64_t offset, MutableBytes out) const;

  Status commit();  // what this node has written is seen by each read that begins later, on any node
  Status sync();    // and is durable
  Status truncate(uint64_t size);
  Result<struct stat> stat() const;
  Result<bool> sealed() const;  // asks all nodes, of a file whose mode lets nobody write it
  bool writes_by_log() const { return right_.log() != nullptr; }
  uint64_t bytes_read_in_logs() const { return reads_.bytes_read(); }

 private:
  ClientFile(std::string path, TreePlace tree, const Options& options)
      : path_(std::move(path)), tree_(std::move(tree)), options_(options) {}
  Status begin();
  bool may_have_log() const;
  bool may_read_logs() const { return options_.by != By::kMount && (options_.flags & O_ACCMODE) != O_WRONLY; }
  Attachment* log();
  Status write_by(Attachment& log, uint64_t offset, Bytes bytes);
  Status write_through(uint64_t offset, Bytes bytes);
  Status failed(int error_number, const char* what) const;

  const std::string path_;
  const TreePlace tree_;
  const Options options_;
  io::Descriptor file_;
  WriteRight right_;
  mutable LogReads reads_;
  std::atomic<uint64_t> next_ = 0;
};

}  // namespace swale::fs
