#include "io/many_syncs.h"

#include <algorithm>
#include <vector>

#include "base/contain.h"

namespace swale::io {

void ManySyncs::sync(std::span<const std::pair<File*, Status*>> files) {
  if (files.size() == 1) *files[0].second = files[0].first->sync();
  if (files.size() < 2) return;
  for (const auto& [file, status] : files)
    *status = error(Code::kIoError, Scope::kFile, "{}: it was not synced", file->path());
  std::vector<Operation> operations(files.size());
  for (size_t i = 0; i < files.size(); ++i)
    operations[i] = {Operation::Kind::kSync, files[i].first, 0, {}, {}, i};
  std::vector<Completion> done;
  done.reserve(files.size());
  const Status synced = contain([&]() -> Status {
    if (!queue_) {
      SWALE_ASSIGN_OR_RETURN(queue_, device_.make_queue(kAtOnce));
    }
    for (std::span<const Operation> left = operations; !left.empty() || queue_->in_flight() > 0;) {
      const size_t next = std::min(left.size(), kAtOnce - queue_->in_flight());
      queue_->submit(left.first(next));
      left = left.subspan(next);
      queue_->wait(1, &done);
    }
    return {};
  });
  if (!synced.ok()) queue_.reset();  // waits for what is under way
  for (Completion& each : done) *files[each.tag].second = std::move(each.status);
}

}  // namespace swale::io
