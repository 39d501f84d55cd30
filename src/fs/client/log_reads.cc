#include "fs/client/log_reads.h"

#include <algorithm>
#include <cerrno>

#include "fs/client/attachment.h"

namespace swale::fs {
namespace {

using How = MapReader::How;

constexpr uint32_t kPatienceMax = 63;
constexpr size_t kAlwaysAsks = 256 << 10;  // a read of so many bytes is worth a question

bool may_pass(int failed) {
  return failed == EAGAIN || failed == EBUSY || failed == EINTR || failed == ENOMEM || failed == ENOSPC;
}

}  // namespace

// Answers of which nobody had any use cost each small read a request more: it asks more and more rarely then.
bool LogReads::ask_again(const Ask& ask, uint64_t offset, size_t bytes) {
  if (waits_ > 0 && bytes < kAlwaysAsks) {
    --waits_;
    return false;
  }
  patience_ = was_of_use_.exchange(false) ? 0 : std::min(2 * patience_ + 1, kPatienceMax);
  waits_ = patience_;
  MapRequest request;
  request.offset = offset;
  if (const int failed = ask(&request); failed != 0) {
    if (!may_pass(failed)) refused_.store(true);
    return false;
  }
  std::shared_ptr<MapReader> reader =
      map_.reader != nullptr && map_.reader->server() == request.server ? map_.reader : map_reader(request);
  if (reader == nullptr) refused_.store(true);
  map_ = {std::move(reader), request.slot, request.ticket};
  return map_.reader != nullptr;
}

MapReader::Outcome LogReads::read(const Ask& ask, uint64_t offset, MutableBytes out) {
  for (bool asked = false; !refused_.load(); asked = true) {
    Map map;
    {
      if (!mutex_.try_lock()) break;
      const MutexLock lock(mutex_, std::adopt_lock);
      if (asked && !ask_again(ask, offset, out.size())) break;
      map = map_;
    }
    MapReader::Outcome got;
    if (map.reader != nullptr) got = map.reader->read(map.slot, map.ticket, offset, out.data(), out.size());
    if (got.how == How::kPart || got.how == How::kAll) {
      was_of_use_.store(true, std::memory_order_relaxed);
      bytes_read_.fetch_add(got.bytes, std::memory_order_relaxed);
    }
    if (got.how != How::kNoMap || asked) return got;
  }
  return {};
}

}  // namespace swale::fs
