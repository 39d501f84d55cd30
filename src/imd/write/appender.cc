#include "imd/write/appender.h"

namespace swale::imd {

const char* Appender::Need::text() const {
  switch (what) {
    case What::kFrame:
      return "a free frame";
    case What::kRoom:
      return "room in a memtable";
    case What::kIntake:
      return "a memtable for the next epoch";
    case What::kNothing:
    case What::kHome:
      break;
  }
  return "nothing";
}

Appender::Appender(const AppenderParams& params)
    : params_(params),
      inline_lengths_(params.schema.exact_bytes(),
                      params.pages != nullptr ? run::kPagePointerBytes - 1 : run::kValueBytesMax),
      row_bytes_max_(params.record_bytes_max - run::kRecordHeaderBytesMax),
      batcher_(params.ranks, params.partitioner, params.frames),
      keys_(params.own, params.lossy && params.key_stage_bytes == 0 ? params.ranks : 0),
      intake_(params.schema.exact_bytes()) {
  if (params.key_stage_bytes != 0) {
    stage_.emplace(KeyStage::Params{.ranks = params.ranks,
                                    .own = params.own,
                                    .bytes = params.key_stage_bytes,
                                    .message_bytes_max = params.key_message_bytes_max});
  }
  const bool quickly =
      params.partitioner.by_hash() && params.pages == nullptr && !(params.lossy && params.ranks > 1);
  if (!quickly) intake_.forbid_quickly();
  begin_values();
}

void Appender::begin_values() {
  const EpochNumber epoch = params_.first_epoch + epochs_ended_;
  const uint64_t id = epoch_id(params_.job_id, epoch);
  params_.values->begin_epoch(epoch, id);
  if (params_.pages != nullptr) params_.pages->begin_epoch(epoch, id);
}

Status Appender::nowhere(Bytes key) const {
  return params_.partitioner.out_of_range(params_.partitioner.ask(key, params_.ranks), params_.ranks);
}

Result<run::RecordView> Appender::write_value(Bytes key, Bytes value) {
  if (key.size() - 1 >= run::kKeyBytesMax || value.size() > run::kLargeValueBytesMax) {
    return invalid_argument("a key of {} and a value of {} bytes: keys have 1 to {} bytes, values 0 to {}",
                            key.size(), value.size(), run::kKeyBytesMax, run::kLargeValueBytesMax);
  }
  SWALE_RETURN_IF_ERROR(params_.schema.check_length(value.size()));
  // Before the value is written: a key without a home changes nothing.
  if (!params_.partitioner.has_home(key, params_.ranks)) return nowhere(key);
  const Bytes prefix = value.substr(0, params_.prefix_bytes);
  if (params_.pages != nullptr) {
    SWALE_ASSIGN_OR_RETURN(const run::ValuePointer pointer, params_.pages->append(value));
    const size_t stored_bytes = prefix.size() + run::kPagePointerBytes;
    record_.resize(run::encoded_record_bytes(key.size(), stored_bytes));
    run::encode_paged_record(key, prefix, pointer, record_.data());
  } else {
    SWALE_ASSIGN_OR_RETURN(const run::ValuePointer pointer, params_.values->append(hash_bytes(key), value));
    record_ = run::encode_large_record(key, run::encode_large_value({.prefix = prefix, .pointer = pointer}));
  }
  run::RecordView record;
  if (run::parse_record(record_, &record) == run::RecordParse::kOk) return record;
  return error(Code::kInternal, Scope::kOperation, "a record of {} bytes was encoded wrongly",
               record_.size());
}

net::Frame Appender::exchange(net::Rank rank, net::Frame next) {
  if (stage_) return stage_->exchange(next);
  if (!params_.lossy || params_.ranks == 1) return batcher_.exchange(rank, next);
  return keys_.exchange(rank, next, params_.first_epoch + epochs_ended_);
}

bool Appender::can_provide(const WriterCore& core, Need need) const {
  switch (need.what) {
    case Need::What::kFrame:
      return core.frame_available(need.which);
    case Need::What::kRoom:
      return core.has_room(static_cast<uint32_t>(need.which));
    case Need::What::kIntake:
      return core.intake_open();
    case Need::What::kNothing:
    case Need::What::kHome:
      break;
  }
  return true;
}

bool Appender::provide(WriterCore* core, Need need) {
  switch (need.what) {
    case Need::What::kFrame:
      core->submit(need.which, exchange(need.which, {}));  // the second time there is none
      if (!core->frame_available(need.which)) return false;
      exchange(need.which, core->take_frame(need.which));
      return true;
    case Need::What::kRoom:
      return core->make_room(static_cast<uint32_t>(need.which));
    case Need::What::kIntake:
      if (!core->intake_open()) return false;
      intake_.open(&core->partition());
      return true;
    case Need::What::kNothing:
    case Need::What::kHome:
      break;
  }
  return true;
}

void Appender::end_epoch(WriterCore* core, int64_t step, double time, const net::CallStamp& call) {
  const WrittenValues values =
      params_.pages != nullptr ? params_.pages->written() : params_.values->written();
  for (net::Rank to = 0; to < batcher_.destinations(); ++to) core->submit(to, exchange(to, {}));
  ++epochs_ended_;
  batcher_.count(intake_.tally());
  intake_.begin_epoch();
  const bool sends_keys = params_.lossy && params_.ranks > 1;
  core->begin_epoch_end(step, time, sends_keys ? keys_.pairs_per_rank() : batcher_.records_per_rank(),
                        batcher_.tally(), values, call, stage_ ? stage_->take_digest() : 0);
  begin_values();
  if (!core->intake_open()) intake_.close();
  batcher_.begin_epoch();
  keys_.begin_epoch();
}

}  // namespace swale::imd
