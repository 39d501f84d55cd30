#include "tier/trace/trace_writer.h"

#include <chrono>

#include "base/contain.h"
#include "base/log.h"
#include "base/start_thread.h"

namespace swale::tier {
namespace {

constexpr Nanos kWriteEvery = 1'000'000'000;

}  // namespace

Result<std::unique_ptr<TraceWriter>> TraceWriter::open(io::Device& device, const std::string& path,
                                                       const Clock& clock) {
  SWALE_ASSIGN_OR_RETURN(auto file, device.open(path, io::OpenMode::kCreate));
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  SWALE_RETURN_IF_ERROR(file->pwrite(
      0, encode_trace_header(std::chrono::duration_cast<std::chrono::nanoseconds>(since_1970).count())));
  std::unique_ptr<TraceWriter> writer(new TraceWriter(std::move(file), clock));
  SWALE_RETURN_IF_ERROR(start_thread(&writer->thread_, "the thread that writes the trace",
                                     [raw = writer.get()] { raw->run(); }));
  return writer;
}

TraceWriter::TraceWriter(std::unique_ptr<io::File> file, const Clock& clock)
    : file_(std::move(file)), clock_(clock), begin_(clock.now()) {}

TraceWriter::~TraceWriter() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void TraceWriter::add(TraceRecord::Kind kind, uint64_t file, uint64_t offset, uint64_t length) {
  const MutexLock lock(mutex_);
  if (failed_) return;
  const Status added = contain([&]() REQUIRES(mutex_) {
    const TraceRecord record{kind, clock_.now() - begin_, file, offset, length};
    if (block_.add(record)) return;
    if (full_.size() >= kBlocksMax) {
      ++dropped_;
      return;
    }
    seal_block();
    changed_.notify_one();
    static_cast<void>(block_.add(record));
  });
  if (!added.ok()) ++dropped_;  // no memory
}

// What was dropped before this block was dropped after the one before it was full.
void TraceWriter::seal_block() { full_.push_back(block_.take(std::exchange(dropped_, 0))); }

void TraceWriter::run() {
  const Status ended = contain([this]() -> Status {
    MutexLock lock(mutex_);
    for (bool last = false; !last;) {
      if (full_.empty() && !stopping_) changed_.wait_for(lock, kWriteEvery);
      last = stopping_;
      if (!block_.empty() && (last || full_.empty())) seal_block();
      while (!full_.empty()) {
        const std::string block = std::move(full_.front());
        full_.pop_front();
        const MutexUnlock meanwhile(mutex_);
        SWALE_RETURN_IF_ERROR(write(block));
      }
    }
    const std::string end = TraceBlockBuilder().take(std::exchange(dropped_, 0));
    const MutexUnlock meanwhile(mutex_);
    return write(end);
  });
  if (ended.ok()) return;
  log_warn("the trace ends here: {}; the mount goes on without it", ended.message());
  const MutexLock lock(mutex_);
  failed_ = true;
  full_.clear();
}

Status TraceWriter::write(const std::string& block) {
  SWALE_RETURN_IF_ERROR(file_->pwrite(at_, block));
  at_ += block.size();
  return {};
}

}  // namespace swale::tier
