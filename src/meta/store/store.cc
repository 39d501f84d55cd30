#include "meta/store/store.h"

#include "base/coding.h"
#include "base/contain.h"
#include "base/entropy.h"
#include "base/process_identity.h"
#include "meta/store/closing.h"
#include "net/job/agree.h"
#include "net/job/opening.h"
#include "net/meeting/node_map.h"

namespace swale::meta {
namespace {

// As option meta.ring names them.
std::string_view name_of(RingMode mode) {
  switch (mode) {
    case RingMode::kRing:
      return "ring";
    case RingMode::kDirect:
      return "direct";
    case RingMode::kPlain:
      break;
  }
  return "plain";
}

// What ranks must have in common, as the table of options names it.
std::vector<net::AgreedOption> agreed_options(const StoreOptions& options) {
  return {{"meta.servers_per_node", fmt::format("{}", options.servers_per_node)},
          {"meta.range", fmt::format("{}", options.range_bytes)},
          {"meta.ring", std::string(name_of(options.ring))}};
}

// What rank 0 tells the others before the store opens.
struct Greeting {
  std::string manifest;  // empty: a new store has none yet; it is written when all servers stand
  std::string job;       // rank 0's name for this job, in its lock
};

std::string encode(const Greeting& greeting) {
  std::string text;
  append_sized(&text, greeting.manifest);
  append_sized(&text, greeting.job);
  return text;
}

Status take_greeting(const net::Ranks& ranks, Greeting* greeting) {
  SWALE_ASSIGN_OR_RETURN(const net::Word told,
                         net::first_word(ranks, ranks.rank == 0 ? encode(*greeting) : ""));
  Decoder in(told.text);
  greeting->manifest = std::string(in.sized());
  greeting->job = std::string(in.sized());
  return in.finish("what rank 0 says of the store");
}

Status read_manifest_if_any(io::Device& device, const std::string& directory, std::string* text) {
  const Result<Manifest> found = read_manifest(device, directory);
  if (found.ok()) *text = encode_manifest(*found);
  return found.ok() || found.status().code() == Code::kNotFound ? ok_status() : found.status();
}

}  // namespace

Result<std::unique_ptr<Store>> Store::open(net::Job& job, io::Device& device, const std::string& directory,
                                           const StoreOptions& options) {
  std::unique_ptr<Store> store(new Store(job, options));
  const Status begun = contain([&] { return store->begin(device, directory); });
  if (!begun.ok()) return begun.with_context(fmt::format("opening the metadata store {}", directory));
  return store;
}

// One look tells whether a rank of this job has the lock: rank 0 takes its own before the others look.
Status Store::lock(io::Device& device, const std::string& directory, const std::string& job) {
  SWALE_RETURN_IF_ERROR(io::make_directories(device, directory));
  const std::string path = directory + "/" + kLockName;
  const auto is_ours = [&] {
    const Result<io::FoundLock> found = io::read_lock(device, path);
    return found.ok() && found->content.ok() && found->content->job == job;
  };
  if (is_ours()) return {};
  io::LockRequest request;
  request.job = job;
  request.lease = options_.lease;
  Result<io::LockFile> taken = io::LockFile::acquire(device, path, request);
  if (taken.ok()) {
    lock_.emplace(*std::move(taken));
  } else if (!is_ours()) {  // another rank of this job may have been faster
    return taken.status();
  }
  return {};
}

// The first rank of this node has the lock of its directory: where this rank finds none of this job, its path leads
// elsewhere.
Status Store::check_same_directory(io::Device& device, const std::string& directory, const std::string& job) {
  const net::Seat seat = job_.nodes()->seat(job_.rank());
  if (seat.local == 0) return {};
  const std::string path = directory + "/" + kLockName;
  const Result<io::FoundLock> found = io::read_lock(device, path);
  if (!found.ok() && found.status().code() != Code::kNotFound) return found.status();
  if (found.ok() && found->content.ok() && found->content->job == job) return {};
  return invalid_argument(
      "{}: is not the directory that rank {} of the same node opened (its {} {}); all ranks of a node must give "
      "the same path",
      directory, job_.nodes()->rank_at(seat.node, 0), path, found.ok() ? "is another job's" : "is missing");
}

Status Store::begin(io::Device& device, const std::string& directory) {
  const net::Ranks ranks = net::ranks_of(job_);
  device_ = &device;
  directory_ = directory;
  SWALE_RETURN_IF_ERROR(net::begin_collective(job_, net::CallKind::kOpenStore, directory, {}));
  SWALE_RETURN_IF_ERROR(net::agree_on_options(ranks, agreed_options(options_)));
  Greeting greeting;
  Status prepared;
  if (job_.rank() == 0) {
    greeting.job = fmt::format("{:016x}", random_number());
    prepared = lock(device, directory, greeting.job);
    if (prepared.ok()) prepared = read_manifest_if_any(device, directory, &greeting.manifest);
  }
  SWALE_RETURN_IF_ERROR(net::agree(job_, prepared));
  SWALE_RETURN_IF_ERROR(take_greeting(ranks, &greeting));
  const bool first_of_node = job_.nodes()->seat(job_.rank()).local == 0;
  SWALE_RETURN_IF_ERROR(net::agree(
      job_, first_of_node && job_.rank() != 0 ? lock(device, directory, greeting.job) : ok_status()));
  SWALE_RETURN_IF_ERROR(net::agree(job_, check_same_directory(device, directory, greeting.job)));
  const bool is_new = greeting.manifest.empty();
  manifest_.servers = 0;
  manifest_.range_bytes = options_.range_bytes;
  if (!is_new) {
    SWALE_ASSIGN_OR_RETURN(manifest_, decode_manifest(greeting.manifest, directory + "/" + kManifestName));
  }
  meet(manifest_.servers);
  manifest_.servers = static_cast<uint32_t>(hosts_.size());
  SWALE_RETURN_IF_ERROR(Partition::check(manifest_.servers, manifest_.range_bytes));
  partition_ = std::make_unique<Partition>(manifest_.servers, manifest_.range_bytes);
  SWALE_RETURN_IF_ERROR(net::agree(job_, contain([&] { return check_files(device, is_new); })));
  // Before the first of its files changes.
  if (!is_new) SWALE_RETURN_IF_ERROR(net::agree(job_, contain([&] { return mark_open(device, is_new); })));

  Result<std::vector<std::unique_ptr<ServerCore>>> cores = open_servers(device, directory);
  SWALE_RETURN_IF_ERROR(net::agree(job_, cores.status()));
  if (is_new) SWALE_RETURN_IF_ERROR(net::agree(job_, contain([&] { return mark_open(device, is_new); })));

  const bool serves = !cores->empty();
  if (serves) service_ = std::make_unique<Service>(*std::move(cores), hosts_, options_.deadline / 4);
  net::RpcOptions talk;
  talk.methods = method_names();
  requests_ = std::make_unique<RankService>(service_.get());
  SWALE_ASSIGN_OR_RETURN(rpc_, net::Rpc::open(job_, talk, requests_.get()));
  requests_->start(rpc_.get());
  if (serves) service_->start(rpc_.get());
  SWALE_RETURN_IF_ERROR(net::agree(job_, {}));
  // A trim that comes late would cut what a rank that is already open has put.
  return net::agree(job_, serves ? service_->resume(options_.deadline) : ok_status());
}

// Those of this rank's servers, as they are. Changes nothing.
Status Store::check_files(io::Device& device, bool is_new) const {
  bool looked = false;
  for (Server server = 0; server < hosts_.size(); ++server) {
    if (hosts_[server] != job_.rank()) continue;
    if (!std::exchange(looked, true)) {
      SWALE_RETURN_IF_ERROR(io::make_directories(device, directory_));
      if (is_new) SWALE_RETURN_IF_ERROR(check_no_store(device, directory_));
    }
    if (is_new) continue;
    if (!manifest_.closed) {
      SWALE_RETURN_IF_ERROR(check_open(device, directory_, manifest_, server));
      continue;
    }
    const std::vector<Status> problems = check_closing(device, directory_, manifest_, server);
    if (!problems.empty()) return problems.front();
  }
  return {};
}

// A new store's manifest is written when all servers stand.
Status Store::mark_open(io::Device& device, bool is_new) {
  manifest_.generation = is_new ? 1 : manifest_.generation + 1;
  manifest_.closed = false;
  manifest_.closings.clear();
  if (job_.rank() != 0) return {};
  return io::replace_file(device, directory_ + "/" + kManifestName, encode_manifest(manifest_));
}

// What this rank's servers wrote, as mark_closed reads it.
Status Store::close_servers(std::string* about) {
  Status failure;
  with_servers([&](ServerCore& core) {
    const Status closed = contain([&]() -> Status {
      SWALE_RETURN_IF_ERROR(core.attributes().fence());
      const Status tidied = core.shard().tidy();
      // Without space or memory for it the store is closed as it is.
      if (tidied.code() != Code::kNoSpace && tidied.code() != Code::kResourceExhausted)
        SWALE_RETURN_IF_ERROR(tidied);
      Closing closing;
      closing.server = core.server();
      closing.job = core.attributes().job();
      closing.generation = manifest_.generation;
      closing.files = core.attributes().table().files();
      const ShardState state = core.shard().state();
      closing.extents = state.buffered_entries + state.compressed_entries + state.filed_entries;
      SWALE_ASSIGN_OR_RETURN(const ClosedServer written,
                             write_closing(*device_, directory_, std::move(closing)));
      append_u32(about, core.server());
      append_u32(about, written.crc);
      append_sized(about, host_name());
      return {};
    });
    if (failure.ok()) failure = closed;
  });
  return failure;
}

// Collective, when the servers have stopped.
Status Store::mark_closed() {
  std::string about;
  SWALE_RETURN_IF_ERROR(net::agree(job_, close_servers(&about)));
  SWALE_ASSIGN_OR_RETURN(const auto all, job_.given(about));
  const auto write = [&]() -> Status {
    if (job_.rank() != 0) return {};
    // A job that has taken the store over has said so.
    if (lock_) SWALE_RETURN_IF_ERROR(lock_->check());
    SWALE_ASSIGN_OR_RETURN(const Manifest now, read_manifest(*device_, directory_));
    if (now.generation != manifest_.generation || now.closed) {
      return error(Code::kAborted, Scope::kNode, "{}/{}: another job has opened this store (generation {})",
                   directory_, kManifestName, now.generation);
    }
    Manifest manifest = manifest_;
    manifest.closed = true;
    manifest.closings.resize(manifest.servers);
    for (const auto& [rank, each] : all) {
      Decoder in(each);
      while (in.ok() && in.remaining() > 0) {
        ClosedServer& closed = manifest.closings[in.u32() % manifest.servers];
        closed.crc = in.u32();
        closed.host = in.sized();
      }
      SWALE_RETURN_IF_ERROR(in.finish("what a rank says of its closed servers"));
    }
    return io::replace_file(*device_, directory_ + "/" + kManifestName, encode_manifest(manifest));
  };
  return net::agree(job_, contain(write));
}

// Which rank hosts which server, and whose delegate serves this rank.
void Store::meet(uint32_t servers) {
  const net::NodeMap& nodes = *job_.nodes();
  std::vector<net::Rank> hosting;
  for (net::Rank rank = 0; rank < job_.size(); ++rank) {
    if (static_cast<uint32_t>(nodes.seat(rank).local) < options_.servers_per_node) hosting.push_back(rank);
  }
  if (servers == 0) servers = static_cast<uint32_t>(hosting.size());
  hosts_.clear();
  for (uint32_t server = 0; server < servers; ++server) hosts_.push_back(hosting[server % hosting.size()]);
  // Ranks of a node share its servers evenly.
  const net::Seat mine = nodes.seat(job_.rank());
  std::vector<Server> near;
  for (uint32_t server = 0; server < servers; ++server) {
    if (nodes.seat(hosts_[server]).node == mine.node) near.push_back(server);
  }
  home_ = near.empty() ? static_cast<uint32_t>(job_.rank()) % servers
                       : near[static_cast<size_t>(mine.local) % near.size()];
}

Result<std::vector<std::unique_ptr<ServerCore>>> Store::open_servers(io::Device& device,
                                                                     const std::string& directory) {
  std::vector<std::unique_ptr<ServerCore>> cores;
  for (Server server = 0; server < hosts_.size(); ++server) {
    if (hosts_[server] != job_.rank()) continue;
    SWALE_RETURN_IF_ERROR(io::make_directories(device, directory));
    SWALE_ASSIGN_OR_RETURN(
        std::unique_ptr<AttributeStore> attributes,
        AttributeStore::open(device,
                             {.directory = directory, .server = server, .files_max = options_.files_max}));
    ShardOptions options = options_.shard;
    options.directory = directory;
    options.shard = server;
    options.job = attributes->job();
    options.fence = [fence = attributes.get()] { return fence->fence(); };
    SWALE_ASSIGN_OR_RETURN(std::unique_ptr<Shard> shard, Shard::open(device, options));
    cores.push_back(std::make_unique<ServerCore>(*partition_, server, options_.ring, std::move(shard),
                                                 std::move(attributes)));
  }
  return cores;
}

std::unique_ptr<Client> Store::client() {
  ClientOptions options;
  options.client = random_number() | 1;
  options.home = home_;
  options.mode = options_.ring;
  options.detect_runs = options_.detect_runs;
  options.news = &requests_->table_news();
  return std::make_unique<Client>(rpc_.get(), &hosts_, *partition_, options, options_.deadline);
}

Status Store::close() {
  if (closed_) return {};
  closed_ = true;
  // Nobody stops serving while another rank still asks.
  Status status = net::begin_collective(job_, net::CallKind::kCloseStore, directory_, {});
  Status mine;
  if (service_) mine = service_->stop();
  Status stopped = net::agree(job_, mine);
  if (status.ok() && stopped.ok()) {
    stopped = mark_closed().with_context(
        "all that was acknowledged is durable, and the store was not marked closed");
  }
  const Status left = rpc_->close();
  service_.reset();
  rpc_.reset();
  lock_.reset();
  if (status.ok()) status = stopped;
  return status.ok() ? left : status;
}

Store::~Store() {
  if (closed_) return;
  if (service_) static_cast<void>(service_->stop());
  rpc_.reset();  // tells the other ranks
  service_.reset();
}

}  // namespace swale::meta
