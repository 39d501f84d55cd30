// TraceWriter: records the requests of a mount into a file (trace_format.h) without getting in their way.
//
// A record goes into a block in memory; a thread of the writer's own writes blocks that are full, and each
// second what there is. If the file takes them too slowly, records are dropped and counted. If it fails (a
// full disk), the trace ends there, with one warning in the log of the program; requests do not notice.
//
// Threads: add is thread-safe and waits for no I/O. Memory: kBlocksMax blocks of 64 KiB. Errors: open's;
// later ones end the trace.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "io/device.h"
#include "tier/trace/trace_format.h"

namespace swale::tier {

class TraceWriter {
 public:
  static constexpr size_t kBlocksMax = 16;

  // Makes the file: kAlreadyExists if it is there. The device and the clock outlive the writer.
  static Result<std::unique_ptr<TraceWriter>> open(io::Device& device, const std::string& path,
                                                   const Clock& clock = system_clock());
  ~TraceWriter();  // writes what is left, and the end

  // The record's time is now.
  void add(TraceRecord::Kind kind, uint64_t file, uint64_t offset = 0, uint64_t length = 0);

 private:
  TraceWriter(std::unique_ptr<io::File> file, const Clock& clock);
  void run();
  void seal_block() REQUIRES(mutex_);
  Status write(const std::string& block);

  const std::unique_ptr<io::File> file_;
  const Clock& clock_;
  const Nanos begin_;
  uint64_t at_ = kTraceHeaderBytes;  // the thread's

  Mutex mutex_;
  CondVar changed_;
  TraceBlockBuilder block_ GUARDED_BY(mutex_);
  std::deque<std::string> full_ GUARDED_BY(mutex_);
  uint64_t dropped_ GUARDED_BY(mutex_) = 0;  // since the last block of full_
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool failed_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace swale::tier
