#include "imd/reader_io.h"

#include <algorithm>
#include <span>

namespace swale::imd {

void ReadQueue::add(io::File& file, uint64_t offset, MutableBytes out, uint64_t tag) {
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
  if (!queue_) {
    SWALE_ASSIGN_OR_RETURN(queue_, device_->make_read_queue(std::min(in_flight_max_, kQueueDepthMax),
                                                            *operations_[submitted_].file));
  }
  queue_->submit(std::span(operations_).subspan(submitted_, count));
  submitted_ += count;
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
      "to see "
      "what is left",
      operation.file->path(), operation.offset, operation.into.size(), completion.bytes);
}

Status ReadQueue::finish() {
  Status status;
  while (status.ok() && !empty()) status = next().status();
  cancel();
  return status;
}

void ReadQueue::cancel() {
  while (in_flight() > 0) {
    completions_.clear();
    queue_->wait(in_flight(), &completions_);
  }
  operations_.clear();
  tags_.clear();
  completions_.clear();
  submitted_ = taken_ = open_ = 0;
}

}  // namespace swale::imd
