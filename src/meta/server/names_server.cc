#include "meta/server/names_server.h"

namespace swale::meta {

Result<std::unique_ptr<NamesServer>> NamesServer::open(io::Device& device, const ShardOptions& options,
                                                       uint32_t server, uint32_t servers, EntryCache* cache) {
  std::unique_ptr<NamesServer> opened(new NamesServer(server, servers));
  ShardOptions own = options;
  own.shard = server;
  own.table = &opened->table_;
  SWALE_ASSIGN_OR_RETURN(opened->shard_, Shard::open(device, own));
  opened->core_ = std::make_unique<NamesCore>(server, servers, opened->shard_->job(), &opened->table_,
                                              static_cast<NameLog*>(opened.get()), cache);
  opened->core_->on_durable(opened->shard_->durable_group(), opened->shard_->synced_group());
  return opened;
}

void NamesServer::on_request(Method, Bytes payload, uint64_t token) {
  ++requests_;
  core_->on_request(payload, token);
}

void NamesServer::take_replies(std::vector<Reply>* out) {
  core_->take_replies(&replies_);
  for (NameReply& each : replies_) out->push_back({each.token, std::move(each.response)});
  replies_.clear();
}

void NamesServer::take_calls(std::vector<Call>* out) {
  core_->take_calls(&calls_);
  for (NameCall& each : calls_) out->push_back({each.to, Method::kNames, std::move(each.payload), each.tag});
  calls_.clear();
}

uint64_t NamesServer::add(Bytes record) {
  const uint64_t group = shard_->add_record(record);
  waits_ = true;
  return group;
}

bool NamesServer::accepts() const {
  const bool accepted = shard_->accepts_records();
  waits_ |= !accepted;  // what it waits for is work
  return accepted;
}

std::unique_ptr<Work> NamesServer::next_work() {
  std::unique_ptr<Work> work;
  if (shard_->background_first()) work = shard_->next_background();
  if (work == nullptr) {
    work = shard_->next_commit(sync_ ? store::AppendSync::kNow : store::AppendSync::kLater);
    if (work != nullptr) sync_ = false;
  }
  if (work == nullptr) work = shard_->next_background();
  // There was no memory for a commit, and none will come: nobody else would tell those that wait for it.
  if (work == nullptr && !shard_->health().ok()) core_->on_void(shard_->health());
  return work;
}

void NamesServer::finish(std::unique_ptr<Work> work) {
  const bool commit = work->kind() == WorkKind::kCommit;
  const Status done = shard_->finish(std::move(work));
  if (!commit) return;
  done.ok() ? core_->on_durable(shard_->durable_group(), shard_->synced_group()) : core_->on_void(done);
}

}  // namespace swale::meta
