// Puts: segments become runs and extents, and go to the servers that own their bytes.
#include <algorithm>
#include <cassert>

#include "meta/client/operation.h"

namespace swale::meta {

Status check_segments(std::span<const Extent> segments) {
  for (const Extent& each : segments) {
    if (each.length == 0 || each.offset >= kOffsetEnd || each.length > kOffsetEnd - each.offset) {
      return invalid_argument(
          "put: a segment of {} bytes at offset {}: expected 1 byte or more, and an end of at most 2^63",
          each.length, each.offset);
    }
    if (each.place.log == kHoleLog)
      return invalid_argument("put: a segment in log {}: expected a smaller number", each.place.log);
  }
  return {};
}

class ClientCore::PutOperation final : public Operation {
 public:
  PutOperation(const FileId& file, std::vector<ServerPut> puts)
      : file_(file), puts_(std::move(puts)), at_(puts_.size()), run_at_(puts_.size()) {}

  void begin(ClientCore* core) override {
    for (size_t part = 0; part < puts_.size(); ++part) send_next(core, part);
  }

  Status on_answer(ClientCore* core, size_t part, Bytes response) override {
    Decoder in(response);
    finished.generation = std::max(finished.generation, in.u64());
    SWALE_RETURN_IF_ERROR(in.finish("an answer to a put"));
    send_next(core, part);
    return {};
  }

 private:
  // The next items of a server's share, in their order: later ones win.
  void send_next(ClientCore* core, size_t part) {
    const DetectedBatch& all = puts_[part].items;
    size_t& extent = at_[part];
    size_t& run = run_at_[part];
    if (extent == all.extents.size() && run == all.runs.size()) return;
    const RequestName name{core->client(), core->next_number()};
    const Server to = puts_[part].server;
    if (extent == 0 && run == 0 && all.size() <= kItemsMax) {
      extent = all.extents.size();
      run = all.runs.size();
      return core->send(this, part, to, Method::kPut, encode_put(to, file_, name, all), 4096);
    }
    DetectedBatch some;
    while (some.size() < kItemsMax && (extent < all.extents.size() || run < all.runs.size())) {
      if (run < all.runs.size() && all.run_at[run] <= extent) {
        some.run_at.push_back(some.extents.size());
        some.runs.push_back(all.runs[run++]);
      } else {
        some.extents.push_back(all.extents[extent++]);
      }
    }
    core->send(this, part, to, Method::kPut, encode_put(to, file_, name, some), 4096);
  }

  const FileId file_;
  const std::vector<ServerPut> puts_;
  std::vector<size_t> at_;      // extents sent, by part
  std::vector<size_t> run_at_;  // runs sent
};

OperationId ClientCore::put(const FileId& file, std::span<const Extent> segments) {
  assert(!options_.read_only && check_segments(segments).ok());
  DetectedBatch batch;
  if (options_.detect_runs) {
    RunDetector detector;
    detector.add(segments, &batch);
    detector.finish(&batch);
  } else {
    batch.extents.assign(segments.begin(), segments.end());
  }
  return start(std::make_unique<PutOperation>(file, partition_.split(file, batch)));
}

}  // namespace swale::meta
