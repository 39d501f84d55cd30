// NamesServer: one server of a job's tree with its storage: a NameTable, the shard that logs it, and a
// NamesCore.
//
// Threads, errors: ServedCore's; open: those of Shard::open. Limits: a shard's, whose index is empty.
#pragma once

#include <utility>

#include "io/device.h"
#include "meta/names/names_core.h"
#include "meta/server/served_core.h"

namespace swale::meta {

class NamesServer final : public ServedCore, private NameLog {
 public:
  // `options`: of the shard, without its table and number. `cache`: of this node; null: none. The device and
  // the cache outlive the server.
  static Result<std::unique_ptr<NamesServer>> open(io::Device& device, const ShardOptions& options,
                                                   uint32_t server, uint32_t servers, EntryCache* cache);

  void resume() override { core_->resume(); }
  bool follows_up() const override { return core_->under_way() != 0; }
  void on_request(Method method, Bytes payload, uint64_t token) override;
  void on_completion(uint64_t tag, Result<std::string> response) override {
    core_->on_completion(tag, std::move(response));
  }
  Nanos pause_after_failure() const override { return milliseconds(50); }
  void take_replies(std::vector<Reply>* out) override;
  void take_calls(std::vector<Call>* out) override;
  bool has_output() const override { return core_->has_output(); }
  bool take_waits() override { return std::exchange(waits_, false); }
  std::unique_ptr<Work> next_work() override;
  void finish(std::unique_ptr<Work> work) override;
  Shard& shard() override { return *shard_; }

  uint32_t server() const { return server_; }
  const NameTable& table() const { return table_; }
  NamesCore& core() { return *core_; }
  bool make_file(const NewFile& file, MadeFile* made, const std::function<void(const Status&)>& done) {
    ++requests_;
    return core_->make_file(file, made, done);
  }

  uint64_t requests() const { return requests_; }  // that came

 private:
  NamesServer(uint32_t server, uint32_t servers) : server_(server), servers_(servers), table_(server) {}

  uint64_t add(Bytes record) override;
  void sync_next() override { sync_ = true; }
  bool accepts() const override;
  Status health() const override { return shard_->health(); }

  const uint32_t server_;
  const uint32_t servers_;
  NameTable table_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<NamesCore> core_;
  mutable bool waits_ = false;
  bool sync_ = false;  // the next commit is not to sync later
  uint64_t requests_ = 0;
  std::vector<NameReply> replies_;  // empty between two calls: for their memory
  std::vector<NameCall> calls_;
};

}  // namespace swale::meta
