#include "meta/client/client_core.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "meta/client/operation.h"

namespace swale::meta {

ClientCore::ClientCore(const Partition& partition, const ClientOptions& options)
    : partition_(partition), options_(options) {
  assert(options_.client != 0 && options_.home < partition_.servers() && options_.attempts_max > 0);
}
ClientCore::~ClientCore() = default;

OperationId ClientCore::start(std::unique_ptr<Operation> operation) {
  const OperationId id = next_id_++;
  operation->finished.id = id;
  Operation* const begun = operation.get();
  operations_.emplace(id, std::move(operation));
  begun->begin(this);
  if (begun->open_parts == 0) {
    begun->end(&begun->finished);
    finished_.push_back(std::move(operations_.at(id)));
    operations_.erase(id);
  }
  return id;
}

void ClientCore::send(Operation* operation, size_t part, Server to, Method method, std::string payload,
                      size_t response_bytes_max) {
  assert(to < partition_.servers() && payload.size() >= 4);  // it begins with the server
  Call call{to, method, std::move(payload), next_tag_++, response_bytes_max};
  ++operation->open_parts;
  sent_.emplace(call.tag, Sent{operation->finished.id, call, part, 1});
  calls_.push_back(std::move(call));
}

void ClientCore::take_calls(std::vector<Call>* out) {
  std::move(calls_.begin(), calls_.end(), std::back_inserter(*out));
  calls_.clear();
}

bool ClientCore::take_finished(Finished* out) {
  if (finished_.empty()) return false;
  *out = std::move(finished_.front()->finished);
  finished_.erase(finished_.begin());
  return true;
}

void ClientCore::on_completion(uint64_t tag, Result<std::string> response) {
  const auto found = sent_.find(tag);
  if (found == sent_.end()) return;
  Sent sent = std::move(found->second);
  sent_.erase(found);
  Operation& operation = *operations_.at(sent.operation);
  assert(operation.open_parts > 0);
  Status status = response.status();
  if (!status.ok() && unreached(status) && operation.finished.status.ok()) {
    const std::optional<Server> other = operation.other_way(sent.call.to);
    if (other || sent.attempts < options_.attempts_max) {
      if (other) {
        sent.call.to = *other;
        put_u32(sent.call.payload.data(), *other);
      }
      sent.call.tag = next_tag_++;
      ++sent.attempts;
      calls_.push_back(sent.call);
      sent_.emplace(sent.call.tag, std::move(sent));
      return;
    }
  }
  if (status.ok() && operation.finished.status.ok()) {
    status = operation.on_answer(this, sent.part, *response);
  }
  if (!status.ok() && operation.finished.status.ok()) operation.finished.status = status;
  if (--operation.open_parts > 0) return;
  if (operation.finished.status.ok()) operation.end(&operation.finished);
  finished_.push_back(std::move(operations_.at(sent.operation)));
  operations_.erase(sent.operation);
}

// ---- all servers

// First every server's index, then the tables of runs at the roots: what is collected for a table after that
// is new.
class ClientCore::RelocateOperation final : public Operation {
 public:
  RelocateOperation(uint32_t servers, const RelocateMessage& message)
      : servers_(servers), message_(message) {}
  void begin(ClientCore* core) override { send_all(core, Method::kRelocate, 4096); }
  Status on_answer(ClientCore* core, size_t, Bytes) override {
    if (++answers_ == servers_) send_all(core, Method::kRelocateTables, 4096);
    return {};
  }

 private:
  void send_all(ClientCore* core, Method method, size_t response) {
    for (Server to = 0; to < servers_; ++to)
      core->send(this, to, to, method, encode_relocate(to, message_), response);
  }

  const uint32_t servers_;
  const RelocateMessage message_;
  uint64_t answers_ = 0;
};

class ClientCore::AllOperation final : public Operation {
 public:
  AllOperation(uint32_t servers, Method method, std::function<std::string(Server)> payload)
      : method_(method), payload_(std::move(payload)), scans_(servers) {}
  void begin(ClientCore* core) override {
    finished.texts.resize(scans_.size());
    for (Server to = 0; to < scans_.size(); ++to)
      core->send(this, to, to, method_, payload_(to),
                 method_ == Method::kScan ? kResponseBytesMax : 64 * kKiB);
  }
  Status on_answer(ClientCore*, size_t part, Bytes response) override {
    if (method_ == Method::kStats) finished.texts[part] = std::string(response);
    if (method_ != Method::kScan) return {};
    SWALE_ASSIGN_OR_RETURN(scans_[part], decode_scanned(response));
    return {};
  }
  // Sorted up to where the server that came least far has stopped.
  void end(Finished* out) override {
    if (method_ != Method::kScan) return;
    Scanned& all = out->scanned;
    for (const Scanned& each : scans_) all.next = std::min(all.next, each.next);
    for (const Scanned& each : scans_) {
      for (const Extent& extent : each.extents) {
        if (extent.offset < all.next) all.extents.push_back(extent);
      }
    }
    merge_extents(&all.extents);
  }

 private:
  const Method method_;
  const std::function<std::string(Server)> payload_;
  std::vector<Scanned> scans_;
};

OperationId ClientCore::scan(const FileId& file, uint64_t from, size_t pieces_max) {
  const auto payload = [=](Server to) { return encode_scan(to, {file, from, pieces_max}); };
  return start(std::make_unique<AllOperation>(partition_.servers(), Method::kScan, payload));
}

OperationId ClientCore::relocate(const Relocation& relocation) {
  const RequestName name{client(), next_number()};
  return start(std::make_unique<RelocateOperation>(partition_.servers(), RelocateMessage{name, relocation}));
}

OperationId ClientCore::stats() {
  const auto payload = [](Server to) {
    std::string out;
    append_u32(&out, to);
    return out;
  };
  return start(std::make_unique<AllOperation>(partition_.servers(), Method::kStats, payload));
}

// ---- attributes

class ClientCore::AttributeOperation final : public Operation {
 public:
  AttributeOperation(AttributeRequest request, Server first, Server root)
      : request_(std::move(request)), first_(first), root_(root) {}
  void begin(ClientCore* core) override {
    core->send(this, 0, first_, Method::kAttributes, encode_attributes(first_, request_),
               kTableBytesMax + 16 * kKiB);
  }
  Status on_answer(ClientCore*, size_t, Bytes response) override {
    SWALE_ASSIGN_OR_RETURN(finished.answer, decode_answer(response));
    const Attributes& attributes = finished.answer.attributes;
    if (request_.op == AttributeOp::kCreateExclusive && attributes.creator != request_.from) {
      return error(Code::kAlreadyExists, Scope::kFile, "create {}: the file exists", request_.name);
    }
    return {};
  }
  std::optional<Server> other_way(Server tried) override {
    return tried == root_ ? std::nullopt : std::optional(root_);
  }

 private:
  const AttributeRequest request_;
  const Server first_;
  const Server root_;
};

OperationId ClientCore::attributes(AttributeRequest request) {
  request.from = {client(), next_number()};
  const Server root = partition_.root_of(request.name);
  const Server first = options_.mode == RingMode::kPlain ? root : options_.home;
  return start(std::make_unique<AttributeOperation>(std::move(request), first, root));
}

}  // namespace swale::meta
