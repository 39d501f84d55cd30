// CrashWorld: how a process begins, with what opening a store does before the engine runs (store_open.cc).
#include <utility>

#include "base/bytes.h"
#include "tier/engine/testing/crash_world.h"
#include "tier/log/log_format.h"

namespace swale::tier {

void CrashWorld::make_log() {
  log_ = {};
  log_.resize(options_.segment_count * options_.segment_bytes);
  for (uint32_t i = 0; i < options_.segment_count; ++i) write_segment_headers(segment_header(i), 1);
  log_.sync();
}

SegmentHeader CrashWorld::segment_header(uint32_t index) const {
  return {.index = index,
          .generation = 1,
          .log_id = options_.log_id,
          .segment_size = options_.segment_bytes,
          .segment_count = options_.segment_count,
          .alignment = options_.log_alignment};
}

void CrashWorld::write_segment_headers(const SegmentHeader& header, double part) {
  std::string bytes(kSegmentHeaderBytes, '\0');
  encode_segment_header(header, bytes);
  const uint64_t begin = header.index * options_.segment_bytes;
  if (part > 0) log_.write(begin, bytes);
  if (part == 1)
    log_.write(begin + options_.segment_bytes - segment_tail_bytes(options_.log_alignment), bytes);
}

void CrashWorld::open_name(int name) {
  NamedFile& file = names_[name];
  file.index = engine_->open_file(file.id, file.id * 100'000, backing_[file.id].size());
  file.busy = false;
}

// A process begins: everything that it knows it has from the devices.
void CrashWorld::start() {
  if (std::exchange(abandoned_, false)) {
    options_.log_id += 2;
    make_log();
  }
  engine_ = std::make_unique<Engine>(options_);
  actions_.clear();
  requests_.clear();
  buffers_.assign(engine_->flush_buffers(), {});
  for (int name = 0; name < kNames; ++name) open_name(name);
  for (auto& [ticket, queued] : queue_) old_queue_.push_back(queued);
  queue_.clear();
  old_queue_at_.clear();
  uint64_t address = options_.segment_count * options_.segment_bytes;
  Engine::Found found;
  for (size_t i = 0; i < old_queue_.size(); ++i) {
    old_queue_[i].record.address = address;
    old_queue_at_[address] = i;
    found.queued.push_back(old_queue_[i].record);
    address += round_up(old_queue_[i].record.head_bytes() + old_queue_[i].payload.size(), kRecordUnit);
  }
  found.segments = scan(log_.bytes());
  if (!options_.canaries.poison_torn) mend_log(&found.segments, ~uint64_t{0});
  found.losses = saved_losses_;
  engine_->recover(found, clock());
  collect();
}

std::vector<SegmentScan> CrashWorld::scan(Bytes log) const {
  std::vector<SegmentScan> scans;
  for (uint32_t i = 0; i < options_.segment_count; ++i) {
    auto scanned =
        scan_segment(log.substr(i * options_.segment_bytes, options_.segment_bytes), segment_header(i));
    if (scanned.ok()) scans.push_back(std::move(*scanned));
  }
  return scans;
}

// As opening a store does it. The process is killed after `writes_max` writes.
void CrashWorld::mend_log(std::vector<SegmentScan>* scans, uint64_t writes_max) {
  const auto torn = take_torn(scans);
  visited_["torn record voided"] += torn.size();
  for (const auto& round : mends_of(*scans, torn, options_.log_id, options_.log_alignment)) {
    for (const LogWrite& write : round) {
      if (writes_max-- == 0) return;
      log_.write(write.address, write.bytes);
    }
    log_.sync();
  }
}

// A process that recovers, and dies before it has done so.
void CrashWorld::recover_in_part() {
  auto scans = scan(log_.bytes());
  mend_log(&scans, rng_.below(6));
  if (cuts_power()) log_.lose_power(&rng_);
  log_.sync();
  ++visited_["recovery cut short"];
}

}  // namespace swale::tier
