#include "imd/read/reader_io.h"

#include <algorithm>
#include <atomic>
#include <span>

#include "base/log.h"

namespace swale::imd {

void ReadQueue::add(io::File& file, uint64_t offset, MutableBytes out, uint64_t tag) {
  io::reserve_more(&tags_, 1);  // both vectors, or none
  operations_.push_back({.kind = io::Operation::Kind::kRead,
                         .file = &file,
                         .offset = offset,
                         .into = out,
                         .from = {},
                         .tag = tags_.size()});
  tags_.push_back(tag);
  ++open_;
}

Status ReadQueue::submit() {
  const size_t busy = in_flight();
  const size_t count =
      std::min(operations_.size() - submitted_, in_flight_max_ - std::min(busy, in_flight_max_));
  if (count == 0) return {};
  if (!queue_) SWALE_RETURN_IF_ERROR(make_queue());
  queue_->submit(std::span(operations_).subspan(submitted_, count));
  submitted_ += count;
  return {};
}

Status ReadQueue::make_queue() {
  if (device_ == nullptr) {
    queue_ = std::make_unique<io::InlineQueue>();
    return {};
  }
  SWALE_ASSIGN_OR_RETURN(queue_, device_->make_read_queue(std::min(in_flight_max_, kQueueDepthMax),
                                                          *operations_[submitted_].file));
  return {};
}

Result<std::optional<uint64_t>> ReadQueue::next() {
  if (open_ == 0) return std::optional<uint64_t>();
  if (taken_ == completions_.size()) {
    completions_.clear();
    taken_ = 0;
    while (completions_.empty()) {
      SWALE_RETURN_IF_ERROR(submit());
      queue_->wait(1, &completions_);
    }
  }
  const io::Completion completion = std::move(completions_[taken_++]);
  const uint64_t tag = tags_[completion.tag];
  --open_;
  SWALE_RETURN_IF_ERROR(check(completion));
  if (open_ == 0) cancel();
  return std::optional(tag);
}

Status ReadQueue::check(const io::Completion& completion) const {
  SWALE_RETURN_IF_ERROR(completion.status);
  const io::Operation& operation = operations_[completion.tag];
  if (completion.bytes == operation.into.size()) return {};
  return corruption(
      "{}: offset {}: expected {} bytes, found {}: the file was cut off; restore it, or run `swale verify` "
      "to see what is left",
      operation.file->path(), operation.offset, operation.into.size(), completion.bytes);
}

Status ReadQueue::finish() {
  struct Cancel {  // also if next throws: the memory of the reads may go away then
    ReadQueue& reads;
    ~Cancel() { reads.cancel(); }
  } const at_the_end{*this};
  Status status;
  while (status.ok() && !empty()) status = next().status();
  return status;
}

void ReadQueue::cancel() noexcept {
  if (in_flight() > 0) queue_.reset();
  operations_.clear();
  tags_.clear();
  completions_.clear();
  submitted_ = taken_ = open_ = 0;
}

Status read_again(io::File& file, uint64_t offset, Bytes first, MutableBytes second, const Status& found,
                  const std::function<Status(Bytes)>& check) {
  if (found.code() != Code::kCorruption) return found;
  const auto and_then = [&](std::string_view what) {
    return error(found.code(), found.scope(), "{} ({})", found.message(), what);
  };
  const Result<size_t> got = file.pread(offset, second);
  if (!got.ok()) return and_then(fmt::format("a second read fails: {}", got.status().message()));
  if (*got < second.size()) return and_then("the file is shorter in a second read");
  if (const Status now = check(view(second)); !now.ok()) {
    return and_then(first == view(second)
                        ? "a second read gives the same bytes: the file is damaged"
                        : "a second read gives other bytes, wrong as well: memory or the device errs");
  }
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true)) {
    log_warn(
        "{} (a second read gives the right bytes: not the file is damaged, but memory or the way from the "
        "device errs; the answer is that of the second read; later cases are not logged)",
        found.message());
  }
  return {};
}

}  // namespace swale::imd
