#include "meta/store/job_names.h"

#include <algorithm>
#include <set>

#include "base/coding.h"
#include "base/contain.h"
#include "base/entropy.h"
#include "base/sealed_document.h"
#include "net/job/agree.h"
#include "net/job/opening.h"

namespace swale::meta {
namespace {

constexpr DocumentFormat kTreeFormat{.name = "swale-tree-server", .version = 1};
constexpr size_t kTreeFileBytesMax = 64 * kKiB;
constexpr unsigned kRankBits = 20;     // of a node's number
constexpr unsigned kOpeningBits = 28;  // those above them: which opening it is

std::string path_in(const std::string& directory) { return directory + "/tree.json"; }

// Before a client of this job asks: who holds something is of an earlier job. Looks at the whole table.
void let_go_of_the_past(NamesServer* server) {
  std::set<uint64_t> holders;
  server->table().for_each_record([&](Bytes record) {
    static_cast<void>(visit_record(record, [&](NameStep&& step) {
      if (step.kind == StepKind::kHolder) holders.insert(step.other);
      return ok_status();
    }));
  });
  constexpr uint64_t kNobody = ~uint64_t{0};  // a token that no call has
  for (const uint64_t holder : holders) {
    NameRequest request;
    request.op = NameOp::kForget;
    request.life = server->shard().job();
    request.from = {holder << 16, 1};  // slot 0, which nodes do not use for changes
    server->on_request(Method::kNames, encode(request), kNobody);
  }
}

}  // namespace

struct JobNames::Place {
  uint64_t tree = 0;  // 0: there is no server here
  uint32_t servers = 0;
  uint32_t server = 0;
  bool ready = false;  // false: the first opening of the tree has not come to its end

  std::string encode() const {
    JsonWriter json;
    begin_document(kTreeFormat, {}, &json);
    json.line().member("tree", hex16(tree)).member("servers", servers);
    json.line().member("server", server).member("ready", ready);
    json.line();
    return take_sealed(&json);
  }
};

JobNamesOptions::JobNamesOptions() {
  shard.write_buffer_entries = 1024;  // nothing is put into the index
  shard.compression_buffer_bytes = kMiB;
  shard.cache_bytes = kMiB;
}

Result<std::unique_ptr<JobNames>> JobNames::open(net::Job& job, io::Device& device,
                                                 const std::string& directory,
                                                 const JobNamesOptions& options) {
  std::unique_ptr<JobNames> names(new JobNames(job, options));
  const Status begun = contain([&] { return names->begin(device, directory); });
  if (!begun.ok()) return begun.with_context(fmt::format("opening the tree in {}", directory));
  return names;
}

Result<JobNames::Place> JobNames::read_place(io::Device& device, const std::string& directory) {
  const std::string path = path_in(directory);
  const Result<std::string> text = io::read_file(device, path, kTreeFileBytesMax);
  if (text.status().code() == Code::kNotFound) return Place();
  SWALE_RETURN_IF_ERROR(text.status());
  SWALE_ASSIGN_OR_RETURN(const SealedDocument document, SealedDocument::parse(*text, path));
  SWALE_RETURN_IF_ERROR(document.check_header(kTreeFormat));
  const DocumentObject root = document.root();
  Place place;
  SWALE_ASSIGN_OR_RETURN(place.tree, root.hex("tree"));
  if (place.tree == 0) return root.problem("tree", "another number than 0");
  SWALE_ASSIGN_OR_RETURN(const uint64_t servers, root.number("servers", 1, kServersMax));
  SWALE_ASSIGN_OR_RETURN(const uint64_t server, root.number("server", 0, servers - 1));
  SWALE_ASSIGN_OR_RETURN(place.ready, root.flag("ready"));
  place.servers = static_cast<uint32_t>(servers);
  place.server = static_cast<uint32_t>(server);
  return place;
}

Result<JobNames::Left> JobNames::open_left(io::Device& device, const std::string& directory) noexcept {
  Left left;
  const Status opened = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(const Place place, read_place(device, directory));
    if (!place.ready)
      return error(Code::kNotFound, Scope::kOperation, "{}: no server of a tree has been here", directory);
    JobNamesOptions options;
    options.shard.directory = directory;
    left.tree = place.tree;
    left.servers = place.servers;
    SWALE_ASSIGN_OR_RETURN(left.server,
                           NamesServer::open(device, options.shard, place.server, place.servers, nullptr));
    return {};
  });
  if (!opened.ok()) return opened;
  return left;
}

// Each server of the tree is at one rank.
Status JobNames::place_all(const std::vector<Place>& places, const std::string& directory) {
  const auto known = std::find_if(places.begin(), places.end(), [](const Place& each) { return each.ready; });
  tree_ = known->tree;
  hosts_.assign(known->servers, -1);
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const Place& each = places[rank];
    if (each.tree == 0) continue;
    if (each.tree != tree_ || each.servers != known->servers) {
      return corruption("rank {} has a server of tree {}, rank {} one of tree {}: give the paths of one tree",
                        rank, hex16(each.tree), known - places.begin(), hex16(tree_));
    }
    net::Rank& host = hosts_[each.server];
    if (host != -1) {
      return corruption("ranks {} and {} both have server {} of the tree: which of them is a copy?", host,
                        rank, each.server);
    }
    host = static_cast<net::Rank>(rank);
    if (host == job_.rank()) own_ = each.server;
  }
  const auto absent = std::find(hosts_.begin(), hosts_.end(), -1);
  if (absent == hosts_.end()) return {};
  return corruption(
      "server {} of {} of tree {} is at no rank of this job: run the job on the nodes that have {}; if its "
      "node is lost for good, swale fs recover --without {} on the others says what is lost with it",
      absent - hosts_.begin(), hosts_.size(), hex16(tree_), path_in(directory), absent - hosts_.begin());
}

Status JobNames::find_servers(io::Device& device, const std::string& directory) {
  Result<Place> mine = Place();
  const Status looked = contain([&] {
    SWALE_RETURN_IF_ERROR(io::make_directories(device, directory));
    mine = read_place(device, directory);
    return mine.status();
  });
  SWALE_RETURN_IF_ERROR(net::agree(job_, looked));
  std::string text;
  append_u64(&text, mine->tree);
  append_u32(&text, mine->servers);
  append_u32(&text, mine->server);
  append_u8(&text, mine->ready ? 1 : 0);
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> all, job_.allgather(text));
  std::vector<Place> places;
  bool is_new = true;
  for (const std::string& each : all) {
    Decoder in(each);
    Place& place = places.emplace_back();
    place.tree = in.u64(), place.servers = in.u32(), place.server = in.u32(), place.ready = in.u8() != 0;
    SWALE_RETURN_IF_ERROR(in.finish("what a rank says of its server of the tree"));
    is_new = is_new && !place.ready;
  }
  if (!is_new) return place_all(places, directory);

  SWALE_ASSIGN_OR_RETURN(
      const net::Word drawn,
      net::first_word(net::ranks_of(job_), job_.rank() == 0 ? hex16(random_number() | 1) : ""));
  tree_ = std::stoull(drawn.text, nullptr, 16);
  own_ = job_.rank();
  for (net::Rank rank = 0; rank < job_.size(); ++rank) hosts_.push_back(rank);
  // When one says that the tree is ready, all have a server of it.
  for (const bool ready : {false, true}) {
    const Place place{tree_, static_cast<uint32_t>(job_.size()), static_cast<uint32_t>(own_), ready};
    SWALE_RETURN_IF_ERROR(net::agree(
        job_, contain([&] { return io::replace_file(device, path_in(directory), place.encode()); })));
  }
  return {};
}

Status JobNames::begin(io::Device& device, const std::string& directory) {
  directory_ = directory;
  SWALE_RETURN_IF_ERROR(net::begin_collective(job_, net::CallKind::kOpenStore, directory, {}));
  SWALE_RETURN_IF_ERROR(find_servers(device, directory));
  SWALE_ASSIGN_OR_RETURN(
      const net::Word opening,
      net::first_word(net::ranks_of(job_), job_.rank() == 0 ? hex16(random_number() | 1) : ""));
  net::RpcOptions talk;
  talk.methods = method_names();
  SWALE_ASSIGN_OR_RETURN(memory_,
                         StoreMemory::take(job_, directory, own_ >= 0 ? 1 : 0, &options_.shard, &talk));
  std::unique_ptr<NamesServer> server;
  const Status stands = contain([&]() -> Status {
    if (own_ < 0) return {};
    options_.shard.directory = directory;
    SWALE_ASSIGN_OR_RETURN(
        server, NamesServer::open(device, options_.shard, static_cast<uint32_t>(own_), servers(), &cache_));
    return {};
  });
  SWALE_RETURN_IF_ERROR(net::agree(job_, stands));
  service_ = std::make_unique<Service>(std::vector<std::unique_ptr<ServerCore>>(), hosts_,
                                       options_.deadline / 4, nullptr, std::move(server));
  requests_ = std::make_unique<RankService>(service_.get());
  SWALE_ASSIGN_OR_RETURN(rpc_, net::Rpc::open(job_, talk, requests_.get()));
  requests_->start(rpc_.get());
  const Status started = service_->start(rpc_.get());
  if (started.ok()) service_->with_names([](NamesServer& each) { let_go_of_the_past(&each); });
  SWALE_RETURN_IF_ERROR(net::agree(job_, started));
  SWALE_RETURN_IF_ERROR(net::agree(job_, service_->resume(options_.deadline)));
  NodeNamesOptions node;
  node.servers = servers();
  // Each server has its node forget. A rank without one remembers nothing.
  node.cache = own_ >= 0 ? &cache_ : nullptr;
  node.node = (std::stoull(opening.text, nullptr, 16) & ((1u << kOpeningBits) - 1)) << kRankBits |
              static_cast<uint64_t>(job_.rank() + 1);
  client_ = std::make_unique<NamesClient>(rpc_.get(), &hosts_, node, options_.deadline, service_.get());
  return {};
}

Status JobNames::close() {
  if (closed_) return {};
  closed_ = true;
  Status status = net::begin_collective(job_, net::CallKind::kCloseStore, directory_, {});
  if (status.ok()) status = net::agree(job_, client_->finish());
  if (status.ok()) status = net::agree(job_, service_->come_to_rest(options_.deadline));
  const Status stopped = service_->stop();
  if (status.ok()) status = net::agree(job_, stopped);
  client_.reset();
  const Status left = rpc_->close();
  service_.reset();
  rpc_.reset();
  memory_.reset();
  return status.ok() ? left : status;
}

JobNames::~JobNames() {
  if (closed_) return;
  client_.reset();
  if (service_) static_cast<void>(service_->stop());
  rpc_.reset();  // tells the other ranks
  service_.reset();
}

}  // namespace swale::meta
