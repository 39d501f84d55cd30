// Metadata servers among hostile members of their job: who has the key sends any message, in any order, and
// is one of the servers itself, which answers what it likes. Two servers of three are real. An honest client
// beside it puts extents, gets them and has attributes changed: each of its requests is answered once, and
// with what it put; also after the servers were opened again. Messages that name the honest client's file,
// log or number are left out: members of a job may change each other's files.
//
// Input: records of 1 byte that says what happens, and what that takes (hostile_input.h).
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "fuzz/hostile_input.h"
#include "fuzz/hostile_meta.h"
#include "fuzz/target.h"
#include "io/memory_device.h"
#include "meta/server/server_core.h"

namespace swale::meta_server_fuzz {
namespace {

using namespace swale::meta;
using fuzz::HostileInput;
using fuzz::require;

constexpr uint32_t kServers = 3;
constexpr uint32_t kReal = 2;  // the last one is hostile
constexpr uint64_t kHonestClient = 0x9c7d41a2e35bf017;
constexpr LogId kHonestLog = 0x5e1f93d7;
constexpr uint64_t kOwnTokens = uint64_t{1} << 40;  // of calls between servers
constexpr uint64_t kHonestTokens = uint64_t{1} << 41;
constexpr size_t kStepsMax = 400;

// A file whose attributes a real server has.
AttributeRequest honest_request(const Partition& partition, uint64_t number) {
  AttributeRequest request;
  request.op = number == 1       ? AttributeOp::kCreate
               : number % 2 == 0 ? AttributeOp::kStat
                                 : AttributeOp::kClose;
  for (int i = 0;; ++i) {
    request.name = fmt::format("the honest client's file {}", i);
    if (partition.root_of(request.name) == 0) break;
  }
  request.from = {kHonestClient, number};
  request.size = number;
  return request;
}

class Machine {
 public:
  Machine() {
    open();
    honest_attributes();
  }

  void step(HostileInput* in) {
    switch (const uint8_t what = in->byte(); what % 8) {
      case 0:
        hostile(static_cast<Method>(in->byte() % 14), std::string(in->text()), in->byte() % kReal);
        break;
      case 1:
      case 2:
      case 3:
        made(in);
        break;
      case 4:
        answer_as_server(in);
        break;
      case 5:
        honest_put();
        break;
      case 6:
        what < 128 ? honest_get() : honest_attributes();
        break;
      default:
        run(what >= 128);
    }
  }

  void finish() {
    answer_all_as_server_ = true;
    run(true);
    for (const uint64_t token : open_requests_) require(answers_.contains(token));
    at_rest_ = true;
    honest_get();
    run(true);
    for (const uint64_t token : open_requests_) require(answers_.contains(token));
    cores_.clear();
    calls_.clear();
    open();
    honest_get();
    run(true);
    require(answered_gets_ >= 2);
  }

 private:
  struct Sent {
    uint32_t from = 0;  // of the real servers
    Call call;
  };

  void open() {
    for (uint32_t server = 0; server < kReal; ++server) {
      const std::string directory = fmt::format("/server{}", server);
      static_cast<void>(disk_.make_directory(directory));
      ShardOptions options;
      options.directory = directory;
      options.shard = server;
      options.write_buffer_entries = 64;
      options.compression_buffer_bytes = 64 * kKiB;
      options.cache_bytes = 64 * kKiB;
      options.log_bytes_max = 64 * kKiB;
      options.expand_blocks_max = 1024;
      options.relocations_retire = 8;
      auto attributes = std::make_unique<AttributeTable>(server);
      options.table = attributes.get();
      options.table_bytes_min = 4096;
      auto shard = Shard::open(disk_, options);
      require(shard.ok());
      cores_.push_back(std::make_unique<ServerCore>(partition_, server, RingMode::kRing,
                                                    std::move(attributes), *std::move(shard)));
      cores_.back()->resume();
    }
  }

  // -- What the hostile member sends.
  void hostile(Method method, std::string message, uint32_t to) {
    if (fuzz::names_secret(message, honest_file_.high) || fuzz::names_secret(message, honest_file_.low) ||
        fuzz::names_secret(message, kHonestClient) || message.find("the honest client's") != Bytes::npos)
      return;
    char log[4];
    put_u32(log, kHonestLog);
    if (message.find(Bytes(log, 4)) != Bytes::npos) return;
    cores_[to]->on_request(method, message, ++token_);
    open_requests_.push_back(token_);
  }

  void made(HostileInput* in) {
    const fuzz::MetaMessage message = fuzz::made_message(in, kReal);
    hostile(message.method, message.bytes, message.to);
  }

  // The hostile server answers the oldest call to it: with an error, with bytes, or with what could be an
  // answer.
  void answer_as_server(HostileInput* in) {
    const uint8_t how = in->byte();
    const std::string bytes(in->text());
    if (to_hostile_.empty()) return;
    const Sent sent = std::move(to_hostile_.front());
    to_hostile_.pop_front();
    Result<std::string> answer = fuzz::made_answer(in, how, bytes);
    cores_[sent.from]->on_completion(sent.call.tag, std::move(answer));
  }

  // -- The honest client.
  void honest_put() {
    const uint64_t number = ++honest_number_;
    const uint64_t range = number % 64;
    if (partition_.server_of(honest_file_, range * partition_.range_bytes()) >= kReal) return;
    DetectedBatch batch;
    const Extent put{range * partition_.range_bytes() + 100, 64, {kHonestLog, number * 64}};
    batch.extents = {put};
    const Server server = partition_.server_of(honest_file_, put.offset);
    const std::string message = encode_put(server, honest_file_, {kHonestClient, number}, batch);
    puts_[ask_honest(server, Method::kPut, message)] = {range, put};
  }
  void honest_get() {
    for (const auto& [range, put] : content_) {
      const Server server = partition_.server_of(honest_file_, put.offset);
      const uint64_t begin = range * partition_.range_bytes();
      gets_[ask_honest(server, Method::kGet,
                       encode_get(server, {honest_file_, 100, {{honest_file_, begin, 1000}}}))] = range;
    }
    run(false);
    ++answered_gets_;
  }
  void honest_attributes() {
    const Server via = attribute_number_ % kReal;
    ask_honest(via, Method::kAttributes,
               encode_attributes(via, honest_request(partition_, ++attribute_number_)));
    run(false);
  }
  uint64_t ask_honest(Server server, Method method, const std::string& message) {
    const uint64_t token = kHonestTokens + ++token_;
    open_requests_.push_back(token);
    cores_[server]->on_request(method, message, token);
    return token;
  }
  void check_honest(uint64_t token, const Result<std::string>& answer) {
    require(answer.ok());
    if (const auto put = puts_.find(token); put != puts_.end())
      content_[put->second.first] = put->second.second;
    const auto get = gets_.find(token);
    if (get == gets_.end()) return;
    const auto found = decode_found(*answer, 1);
    require(found.ok() && found->answered == 1 && found->extents.size() == 1);
    const Extent& is = found->extents[0];
    const Extent& put = content_.at(get->second);
    require(is.place.log == kHonestLog && is.offset == put.offset && is.length == put.length);
    // A later put may be visible before its answer is.
    require(is.place.address >= put.place.address && (!at_rest_ || is == put));
  }

  // -- Moving on. Everything that can happen without the hostile server does.
  void run(bool background) {
    for (bool more = true; more;) {
      more = false;
      for (uint32_t from = 0; from < kReal; ++from) {
        std::vector<Reply> replies;
        cores_[from]->take_replies(&replies);
        for (Reply& each : replies) more |= take(std::move(each));
        std::vector<Call> calls;
        cores_[from]->take_calls(&calls);
        for (Call& each : calls) {
          more = true;
          each.to < kReal ? pass_on({from, std::move(each)})
                          : static_cast<void>(to_hostile_.push_back({from, std::move(each)}));
        }
        while (answer_all_as_server_ && !to_hostile_.empty()) {
          const Sent sent = std::move(to_hostile_.front());
          to_hostile_.pop_front();
          cores_[sent.from]->on_completion(sent.call.tag,
                                           error(Code::kUnavailable, Scope::kPeer, "the server is gone"));
          more = true;
        }
        for (int works = 0; works < (background ? 100 : 4); ++works) {
          std::unique_ptr<Work> work = cores_[from]->next_work();
          if (work == nullptr) break;
          work->run();
          cores_[from]->finish(std::move(work));
          more = true;
        }
      }
    }
  }
  void pass_on(Sent sent) {
    const uint64_t token = kOwnTokens + ++token_;
    const uint32_t to = sent.call.to;
    const Method method = sent.call.method;
    const std::string payload = sent.call.payload;
    calls_.emplace(token, std::move(sent));
    cores_[to]->on_request(method, payload, token);
  }
  bool take(Reply reply) {
    if (reply.response.ok()) require(reply.response->size() <= kResponseBytesMax + 64 * kKiB);
    const auto call = calls_.find(reply.token);
    if (call != calls_.end()) {
      const Sent sent = std::move(call->second);
      calls_.erase(call);
      cores_[sent.from]->on_completion(sent.call.tag, std::move(reply.response));
      return true;
    }
    require(answers_.emplace(reply.token, 0).second);  // one answer to each
    if (reply.token >= kHonestTokens) check_honest(reply.token, reply.response);
    return true;
  }

  io::MemoryDevice disk_;
  const Partition partition_{kServers, 4096};
  // Of the honest client's puts and gets: servers take any id that was not removed, and nobody else can say
  // this one.
  const FileId honest_file_{0x7d3f1ac58e2b9046, 0xb1946ac92492d234};
  std::vector<std::unique_ptr<ServerCore>> cores_;
  std::deque<Sent> to_hostile_;
  std::map<uint64_t, Sent> calls_;
  std::map<uint64_t, int> answers_;
  std::vector<uint64_t> open_requests_;
  std::map<uint64_t, uint64_t> gets_;                     // by token: the range
  std::map<uint64_t, std::pair<uint64_t, Extent>> puts_;  // by token: the range, and what it has then
  std::map<uint64_t, Extent> content_;                    // by range: what was acknowledged
  bool at_rest_ = false;
  uint64_t token_ = 0, honest_number_ = 0, attribute_number_ = 0;
  int answered_gets_ = 0;
  bool answer_all_as_server_ = false;
};

}  // namespace

SWALE_FUZZ_TARGET(meta_server_fuzz) {
  Machine machine;
  HostileInput input(fuzz::as_bytes(data, size));
  for (size_t steps = 0; !input.empty() && steps < kStepsMax; ++steps) machine.step(&input);
  machine.finish();
  return 0;
}

}  // namespace swale::meta_server_fuzz
