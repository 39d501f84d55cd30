#include "imd/write/source_home.h"

#include <cassert>
#include <utility>

#include "base/contain.h"
#include "imd/format/table_params.h"
#include "imd/write/key_stage.h"
#include "io/fresh_file.h"
#include "source/batch.h"
#include "source/key_message.h"
#include "source/table_builder.h"

namespace swale::imd {

Result<std::unique_ptr<SourceHome>> SourceHome::create(const Params& params) {
  std::unique_ptr<SourceHome> home(new SourceHome(params));
  for (uint32_t parity = 0; parity < 2; ++parity) {
    home->stores_[parity].spill_path =
        fmt::format("{}{}", spill_path_stem(params.directory, params.log), parity);
  }
  home->open_ = &home->stores_[params.first_epoch % 2];
  SWALE_RETURN_IF_ERROR(home->open_store(home->open_, params.first_epoch));
  return home;
}

SourceHome::~SourceHome() {
  for (Store& store : stores_) drop(&store);
}

Status SourceHome::open_store(Store* store, EpochNumber epoch) {
  SWALE_ASSIGN_OR_RETURN(source::PairStore pairs,
                         source::PairStore::create({.epoch = epoch,
                                                    .sources = params_.ranks,
                                                    .memory_limit = (params_.memory_bytes - kGatherBytes) / 2,
                                                    .spill_file = nullptr}));
  store->pairs = std::move(pairs);
  store->epoch = epoch;
  return {};
}

// The file is scratch: a failure to remove it costs space, nothing else, since spill() takes what is there.
void SourceHome::drop(Store* store) {
  store->pairs.reset();
  if (!store->spill) return;
  store->spill.reset();
  static_cast<void>(params_.device->remove(store->spill_path));
}

Status SourceHome::spill(Store* store) {
  // The epoch before the last one may have left its file.
  SWALE_ASSIGN_OR_RETURN(store->spill, io::create_fresh(*params_.device, store->spill_path));
  store->pairs->spill_to(store->spill.get());
  return {};
}

Result<uint32_t> SourceHome::add(uint32_t rank, Bytes batch) {
  SWALE_ASSIGN_OR_RETURN(const source::BatchHeader header, source::decode_batch_header(batch));
  if (header.source != rank || header.bytes != batch.size()) {
    return error(Code::kCorruption, Scope::kPeer,
                 "a batch of keys of rank {} with {} bytes came from rank {} with {}", header.source,
                 header.bytes, rank, batch.size());
  }
  Status added = open_->pairs->add(batch);
  if (added.code() == Code::kResourceExhausted && !open_->spill) {
    SWALE_RETURN_IF_ERROR(spill(open_));
    added = open_->pairs->add(batch);
  }
  SWALE_RETURN_IF_ERROR(added);
  return uint32_t{header.count};
}

Status SourceHome::add_message(uint32_t rank, Bytes message) {
  if (gathered_.size() + source::kKeyMessageKeysMax > kGatheredPairsMax)
    SWALE_RETURN_IF_ERROR(add_gathered());
  gathered_.reserve(kGatheredPairsMax);
  message_.assign(message);
  message_.append(source::kSlackBytes, '\0');
  const size_t before = gathered_.size();
  SWALE_RETURN_IF_ERROR(source::decode_key_message(message_.data(), message.size(), rank, &gathered_));
  for (size_t i = before; i < gathered_.size(); ++i)
    digest_ += key_digest(params_.log.partition, rank, source::pair_hash(gathered_[i]));
  return {};
}

Status SourceHome::add_gathered() {
  if (gathered_.empty()) return {};
  scratch_.resize(kGatheredPairsMax);
  Status added = open_->pairs->add_pairs(gathered_, scratch_);
  if (added.code() == Code::kResourceExhausted && !open_->spill) {
    SWALE_RETURN_IF_ERROR(spill(open_));
    added = open_->pairs->add_pairs(gathered_, scratch_);
  }
  gathered_.clear();
  return added;
}

Status SourceHome::close_epoch(uint64_t epoch_id, EpochNumber next_epoch) {
  SWALE_RETURN_IF_ERROR(add_gathered());
  closing_ = std::exchange(open_, &stores_[next_epoch % 2]);
  assert(closing_ != open_ && !open_->pairs && "the table before was made");
  closing_id_ = epoch_id;
  return open_store(open_, next_epoch);
}

Status SourceHome::make_file() {
  const std::string path = table_log_path(params_.directory, params_.log);
  SWALE_ASSIGN_OR_RETURN(file_, params_.device->open(path, io::OpenMode::kCreate));
  return params_.device->sync_directory(log_folder(params_.directory, params_.log));
}

Status SourceHome::write_table() {
  if (!file_) SWALE_RETURN_IF_ERROR(make_file());
  const uint64_t begin = end_;
  const source::TableParams params =
      table_params(params_.ranks, params_.log.partition, closing_->epoch, closing_id_);
  SWALE_ASSIGN_OR_RETURN(const source::TableSummary summary,
                         source::build_table(&*closing_->pairs, params, [this](Bytes bytes) {
                           SWALE_RETURN_IF_ERROR(file_->pwrite(end_, bytes));
                           end_ += bytes.size();
                           return ok_status();
                         }));
  SWALE_RETURN_IF_ERROR(file_->sync());
  table_ = {.offset = begin, .bytes = end_ - begin, .values = summary.pairs};
  return {};
}

void SourceHome::build() {
  built_ = contain([this] { return write_table(); });
  drop(closing_);
}

}  // namespace swale::imd
