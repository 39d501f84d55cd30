#include "net/job/job_meeting.h"

#include <strings.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/coding.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "net/fabric/fabric_module.h"
#include "net/fabric/loopback_transport.h"
#include "net/job/agree.h"
#include "net/meeting/memory_probe.h"
#include "net/meeting/topology.h"

namespace swale::net {
namespace {

constexpr uint32_t kHandshakeVersion = 11;

const char* text_of(RouteChoice route) {
  switch (route) {
    case RouteChoice::kAuto:
      return "auto";
    case RouteChoice::kDirect:
      return "direct";
    case RouteChoice::kThreeHop:
      return "three-hop";
  }
  return "one that this version does not know";
}

// What a rank gives when the ranks meet: words of 8 bytes, so that pieces of a gift hold whole words.
//   u32 version | u32 of the hash of what all ranks must give alike  u64 hash of its machine  u64 NetworkView
// and rank 0 more:   u64 secret    u64 where    u64 what (MemoryProbe::Offer)    32 bytes key (JobKey)
// What all ranks get of it:
//   u8 1 | u64 secret | u64 where | u64 what | 32 bytes key | u32 first rank without RDMA | u32 first rank
//   that does not
//     trust the network (~0: none) | (varint node | varint ranks)...    runs of ranks on one node; nodes in
//                                                                       the order of
//     their first ranks
//   u8 2 | u32 rank | u64 | u64                            the first rank with another first word than rank
//                                                          0's; both
constexpr size_t kAddressWordBytes = 8;
constexpr size_t kFirstGiftOfRankZero = 3;
constexpr size_t kKeyWords = sizeof(JobKey::bytes) / kAddressWordBytes;
constexpr uint8_t kMet = 1;
constexpr uint8_t kDiffers = 2;

// What rank 0 gives for all.
struct Gift {
  uint64_t secret = 0;
  MemoryProbe::Offer offer;
  JobKey key;
};

class Introductions final : public Survey {
 public:
  void take(Rank rank, size_t offset, Bytes piece) override {
    for (size_t at = 0; at + kAddressWordBytes <= piece.size(); at += kAddressWordBytes)
      take_word(rank, (offset + at) / kAddressWordBytes, get_u64(piece.data() + at));
  }
  std::string answer() override;

 private:
  void take_word(Rank rank, size_t index, uint64_t word);
  void take_gift(size_t index, uint64_t word);

  uint64_t common_ = 0;  // rank 0's
  Rank other_ = -1;
  uint64_t others_ = 0;
  Gift gift_;
  Rank without_rdma_ = -1;
  Rank without_trust_ = -1;
  std::unordered_map<uint64_t, int32_t> nodes_;  // by machine
  std::vector<NodeRun> runs_;
};

void Introductions::take_word(Rank rank, size_t index, uint64_t word) {
  if (index == 0 && rank == 0) common_ = word;
  if (index == 0 && word != common_ && other_ < 0) {
    other_ = rank;
    others_ = word;
  }
  if (index == 1) {
    const int32_t node = nodes_.try_emplace(word, static_cast<int32_t>(nodes_.size())).first->second;
    if (runs_.empty() || runs_.back().node != node) runs_.push_back({node, 0});
    ++runs_.back().ranks;
  }
  if (index == 2) {
    const NetworkView view = NetworkView::of_word(word);
    if (!view.rdma && without_rdma_ < 0) without_rdma_ = rank;
    if (!view.trusted && without_trust_ < 0) without_trust_ = rank;
  }
  if (index >= kFirstGiftOfRankZero && rank == 0) take_gift(index - kFirstGiftOfRankZero, word);
}

void Introductions::take_gift(size_t index, uint64_t word) {
  if (index == 0) gift_.secret = word;
  if (index == 1) gift_.offer.where = word;
  if (index == 2) gift_.offer.what = word;
  constexpr size_t kBefore = 3;
  if (index >= kBefore && index < kBefore + kKeyWords) {
    put_u64(reinterpret_cast<char*>(gift_.key.bytes.data()) + (index - kBefore) * kAddressWordBytes, word);
  }
}

void append_key(std::string* out, const JobKey& key) {
  out->append(reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size());
}

std::string Introductions::answer() {
  std::string out;
  if (other_ >= 0) {
    append_u8(&out, kDiffers);
    append_u32(&out, static_cast<uint32_t>(other_));
    append_u64(&out, others_);
    append_u64(&out, common_);
    return out;
  }
  append_u8(&out, kMet);
  append_u64(&out, gift_.secret);
  append_u64(&out, gift_.offer.where);
  append_u64(&out, gift_.offer.what);
  append_key(&out, gift_.key);
  append_u32(&out, static_cast<uint32_t>(without_rdma_));
  append_u32(&out, static_cast<uint32_t>(without_trust_));
  for (const NodeRun& each : runs_) {
    append_varint(&out, static_cast<uint64_t>(each.node));
    append_varint(&out, static_cast<uint64_t>(each.ranks));
  }
  return out;
}

std::string text_of(const JobOptions& options) {
  return fmt::format("transport \"{}\" and net.route={}", options.transport, text_of(options.route));
}

// `gift`: of rank 0; nullptr on others.
std::string introduction(const JobOptions& options, const NetworkView& view, const Gift* gift) {
  std::string out;
  append_u32(&out, kHandshakeVersion);
  append_u32(&out, static_cast<uint32_t>(hash_bytes(text_of(options))));
  append_u64(&out, hash_bytes(options.node.empty() ? this_machine() : options.node));
  append_u64(&out, view.word());
  if (gift == nullptr) return out;
  append_u64(&out, gift->secret);
  append_u64(&out, gift->offer.where);
  append_u64(&out, gift->offer.what);
  append_key(&out, gift->key);
  return out;
}

// Ranks differ: says in what. Collective.
Status difference(Bootstrap& bootstrap, const JobOptions& options, Rank other, uint64_t others,
                  uint64_t common) {
  if (static_cast<uint32_t>(others) != static_cast<uint32_t>(common)) {
    return error(Code::kUnsupported, Scope::kFatal,
                 "rank {} speaks handshake {}, rank 0 speaks {}: all ranks need the same version of Swale",
                 other, static_cast<uint32_t>(others), static_cast<uint32_t>(common));
  }
  const std::string mine = text_of(options);
  SWALE_ASSIGN_OR_RETURN(const Word theirs, first_word(bootstrap, bootstrap.rank() == other ? mine : ""));
  SWALE_ASSIGN_OR_RETURN(const Word first, first_word(bootstrap, bootstrap.rank() == 0 ? mine : ""));
  return invalid_argument("rank {} was opened with {}, rank 0 with {}: all ranks must give the same", other,
                          theirs.text, first.text);
}

// Decodes which ranks of a job of `size` ranks share which nodes.
Result<NodeMap> read_runs(Decoder* in, int32_t size) {
  std::vector<NodeRun> runs;
  uint64_t ranks = 0;
  while (in->ok() && in->remaining() > 0) {
    const uint32_t node = in->varint32(), more = in->varint32();
    ranks += more;
    runs.push_back({static_cast<int32_t>(node), static_cast<int32_t>(more)});
  }
  SWALE_RETURN_IF_ERROR(in->status("which ranks share which nodes"));
  if (ranks == static_cast<uint64_t>(size)) return NodeMap::of_runs(runs);
  return error(
      Code::kCorruption, Scope::kFatal,
      "the ranks of the job met as {} ranks, expected {}: do all ranks run the same version of Swale?", ranks,
      size);
}

Result<Posting> choose_posting(const JobOptions& options, int32_t ranks_here) {
  const std::string& wanted = options.posting;
  if (wanted != "auto" && wanted != "queue" && wanted != "direct") {
    return invalid_argument("net.posting is \"{}\", expected auto, queue or direct", wanted);
  }
  const bool direct = wanted == "direct" || (wanted == "auto" && ranks_here > 1);
  return direct ? Posting::kDirect : Posting::kQueue;
}

// A rank that polls where another one needs the processor would keep that one from answering.
Nanos choose_poll(const JobOptions& options, int32_t ranks_here) {
  return ranks_here <= ::sysconf(_SC_NPROCESSORS_ONLN) ? options.poll : 0;
}

// Collective, for ranks that are on one machine: do they share its memory?
Result<bool> share_memory(Bootstrap& bootstrap, const MemoryProbe::Offer& offer) {
  const Status mine = bootstrap.rank() == 0 && offer.where != 0 ? ok_status() : look_for_memory(offer);
  std::string told(mine.message());
  if (!mine.ok() && told.empty()) told = "it lacks memory";
  // first_word, not agree: an error of the bootstrap itself is none of this.
  SWALE_ASSIGN_OR_RETURN(const Word first, first_word(bootstrap, told));
  if (first.rank < 0) return true;
  if (bootstrap.rank() == 0) {
    log_warn(
        "the ranks of this job are on one machine and do not share its memory (rank {}: {}); they talk as "
        "ranks on several nodes do, by ports that others can reach: let containers share IPC and process "
        "numbers",
        first.rank, first.text);
  }
  return false;
}

bool may_use_ucx(const JobOptions& options) {
  return options.transport == "auto" || options.transport == "ucx";
}

Result<std::unique_ptr<Transport>> make_module_transport(Bootstrap& bootstrap, const JobOptions& options,
                                                         const JobMeeting& meeting) {
  const bool tls = meeting.fabric.fabric == Fabric::kTls;
  const Result<const FabricModule*> module = load_fabric(tls ? "tls" : "ucx");
  if (!module.ok() && tls) {
    return module.status().with_context(
        "without OpenSSL 3 (libssl3) ranks on several nodes have no encryption; where the network between "
        "them is private, job.trust=network lets them talk by UCX instead");
  }
  SWALE_RETURN_IF_ERROR(module.status());
  TransportOptions own;
  own.posting = meeting.posting;
  own.reach = meeting.fabric.reach;
  own.secret = meeting.secret;
  own.key = meeting.key;
  own.poll = meeting.poll;
  own.silence_deadline = options.silence_deadline;
  own.in_clear = options.in_clear;
  return (*module)->make(bootstrap.rank(), bootstrap.size(), own);
}

Result<std::unique_ptr<Transport>> make_own_end(Bootstrap& bootstrap, const JobOptions& options,
                                                const JobMeeting& meeting) {
  if (meeting.fabric.fabric != Fabric::kLoopback) return make_module_transport(bootstrap, options, meeting);
  std::shared_ptr<LoopbackFabric> fabric =
      bootstrap.rank() == 0 ? LoopbackFabric::create(bootstrap.size()) : nullptr;
  SWALE_ASSIGN_OR_RETURN(const Word made, first_word(bootstrap, fabric ? std::to_string(fabric->id()) : ""));
  if (!fabric) fabric = LoopbackFabric::find(std::strtoull(made.text.c_str(), nullptr, 10));
  if (!fabric)
    return invalid_argument("transport \"loopback\" joins threads of one process, rank 0 is in another");
  return fabric->transport(bootstrap.rank(), meeting.posting);
}

// Texts that have held the job's key.
void wipe(std::string* text) { ::explicit_bzero(text->data(), text->size()); }

// What is given on rank 0. `probe`: what the others look at, if they are to.
Result<Gift> make_gift(const MemoryProbe* probe) {
  Gift gift;
  if (::getrandom(&gift.secret, sizeof(gift.secret), 0) != sizeof(gift.secret))
    return errno_status(errno, "getrandom");
  SWALE_ASSIGN_OR_RETURN(gift.key, JobKey::draw());
  if (probe != nullptr) gift.offer = probe->offer();
  return gift;
}

}  // namespace

Result<JobMeeting> meet(Bootstrap& bootstrap, const JobOptions& options) {
  std::string answer;
  std::optional<MemoryProbe> probe;  // until the others have looked
  const bool has_fabric = bootstrap.size() > 1 && may_use_ucx(options);
  if (bootstrap.rank() == 0 && has_fabric) probe.emplace(MemoryProbe::make());
  {
    SWALE_ASSIGN_OR_RETURN(const Gift gift, make_gift(probe ? &*probe : nullptr));
    const NetworkView view = has_fabric ? look_at_network(options, ::getenv) : NetworkView();
    Introductions survey;
    std::string mine = introduction(options, view, bootstrap.rank() == 0 ? &gift : nullptr);
    Result<std::string> told = bootstrap.ask(mine, &survey);
    wipe(&mine);
    SWALE_RETURN_IF_ERROR(told.status());
    answer = *std::move(told);
  }
  Decoder in(answer);
  const uint8_t kind = in.u8();
  if (kind == kDiffers) {
    const auto other = static_cast<Rank>(in.u32());
    const uint64_t others = in.u64(), common = in.u64();
    SWALE_RETURN_IF_ERROR(in.finish("how the ranks of the job differ"));
    return difference(bootstrap, options, other, others, common);
  }
  if (kind != kMet) {
    return error(Code::kCorruption, Scope::kFatal, "the ranks of the job met with an answer of kind {}",
                 kind);
  }
  JobMeeting meeting;
  meeting.secret = in.u64();
  const uint64_t where = in.u64(), what = in.u64();
  const Bytes key = in.bytes(sizeof(meeting.key.bytes));
  if (in.ok()) std::copy(key.begin(), key.end(), meeting.key.bytes.begin());
  ::explicit_bzero(answer.data() + answer.size() - in.remaining() - key.size(), key.size());
  NetworkFacts facts;
  facts.without_rdma = static_cast<Rank>(in.u32());
  facts.without_trust = static_cast<Rank>(in.u32());
  SWALE_ASSIGN_OR_RETURN(NodeMap map, read_runs(&in, bootstrap.size()));
  const int32_t ranks_here = map.ranks_on(map.seat(bootstrap.rank()).node);
  meeting.node_map = std::make_shared<const NodeMap>(std::move(map));
  SWALE_ASSIGN_OR_RETURN(meeting.posting, choose_posting(options, ranks_here));
  meeting.poll = choose_poll(options, ranks_here);
  if (ranks_here == bootstrap.size() && has_fabric && !options.listens_on_one_node) {
    SWALE_ASSIGN_OR_RETURN(facts.one_memory, share_memory(bootstrap, {where, what}));
  }
  if (bootstrap.size() == 1) return meeting;
  SWALE_ASSIGN_OR_RETURN(meeting.fabric, choose_fabric(options.transport, facts));
  if (bootstrap.rank() == 0 && meeting.fabric.fabric != Fabric::kLoopback) {
    log_info("{} ranks talk by {}: {}", bootstrap.size(),
             meeting.fabric.fabric == Fabric::kTls ? "TLS" : "UCX", meeting.fabric.why);
  }
  return meeting;
}

Result<JoinedTransport> make_transport(Bootstrap& bootstrap, const JobOptions& options,
                                       const JobMeeting& meeting) {
  Result<std::unique_ptr<Transport>> made = make_own_end(bootstrap, options, meeting);
  // The failure of one rank is told to all.
  Result<std::string> address = made.ok() ? Result<std::string>((*made)->address()) : made.status();
  if (address.ok() && address->empty())
    address = error(Code::kUnavailable, Scope::kFatal, "the fabric gives no address");
  auto book = bootstrap.publish(encode_address(bootstrap.rank(), host_name(), address), *meeting.node_map);
  SWALE_RETURN_IF_ERROR(made.status());
  SWALE_RETURN_IF_ERROR(book.status());
  return JoinedTransport{*std::move(made), *std::move(book)};
}

}  // namespace swale::net
