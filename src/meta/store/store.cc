#include "meta/store/store.h"

#include "base/contain.h"
#include "base/entropy.h"
#include "net/job/agree.h"
#include "net/meeting/node_map.h"

namespace swale::meta {
namespace {

// What each rank says before the store opens; rank 0's manifest counts.
struct Greeting {
  Status status;
  std::string options;  // that ranks must have in common
  std::string manifest;
  std::string job;  // rank 0's name for this job, in its lock
};

std::string shared_options(const StoreOptions& options) {
  std::string text;
  append_u32(&text, options.servers_per_node);
  append_u64(&text, options.range_bytes);
  append_u8(&text, static_cast<uint8_t>(options.ring));
  return text;
}

// Rank 0 reads the manifest. A new store has none yet: it is written when all servers stand.
Status read_or_begin(io::Device& device, const std::string& directory, Greeting* greeting) {
  const Result<Manifest> found = read_manifest(device, directory);
  if (found.ok()) {
    greeting->manifest = encode_manifest(*found);
  } else if (found.status().code() != Code::kNotFound) {
    return found.status();
  }
  return {};
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

Status Store::begin(io::Device& device, const std::string& directory) {
  Greeting mine{{}, shared_options(options_), {}, {}};
  if (job_.rank() == 0) {
    mine.job = fmt::format("{:016x}", random_number());
    mine.status = lock(device, directory, mine.job);
    if (mine.status.ok()) mine.status = read_or_begin(device, directory, &mine);
  }
  std::string text;
  append_sized(&text, mine.options);
  append_sized(&text, mine.manifest);
  append_sized(&text, mine.job);
  SWALE_RETURN_IF_ERROR(net::agree(job_, mine.status));
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> all, job_.allgather(text));
  std::string manifest_text, job;
  Status differs;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    Decoder in(all[rank]);
    if (in.sized() != mine.options && differs.ok()) {
      differs =
          invalid_argument("rank {} has other options meta.servers_per_node, meta.range or meta.ring", rank);
    }
    const Bytes manifest = in.sized();
    if (rank == 0) {
      manifest_text = std::string(manifest);
      job = std::string(in.sized());
    }
  }
  SWALE_RETURN_IF_ERROR(net::agree(job_, differs));
  const bool first_of_node = job_.nodes()->seat(job_.rank()).local == 0;
  SWALE_RETURN_IF_ERROR(
      net::agree(job_, first_of_node && job_.rank() != 0 ? lock(device, directory, job) : ok_status()));
  Manifest manifest{0, options_.range_bytes};
  if (!manifest_text.empty()) {
    SWALE_ASSIGN_OR_RETURN(manifest, decode_manifest(manifest_text, directory + "/" + kManifestName));
  }
  meet(manifest.servers);
  manifest.servers = static_cast<uint32_t>(hosts_.size());
  SWALE_RETURN_IF_ERROR(Partition::check(manifest.servers, manifest.range_bytes));
  partition_ = std::make_unique<Partition>(manifest.servers, manifest.range_bytes);

  Result<std::vector<std::unique_ptr<ServerCore>>> cores = open_servers(device, directory);
  SWALE_RETURN_IF_ERROR(net::agree(job_, cores.status()));
  Status written;
  if (job_.rank() == 0 && manifest_text.empty())
    written = io::replace_file(device, directory + "/" + kManifestName, encode_manifest(manifest));
  SWALE_RETURN_IF_ERROR(net::agree(job_, written));

  const bool serves = !cores->empty();
  if (serves) service_ = std::make_unique<Service>(*std::move(cores), hosts_, options_.deadline / 4);
  net::RpcOptions talk;
  talk.methods = method_names();
  SWALE_ASSIGN_OR_RETURN(rpc_, net::Rpc::open(job_, talk, service_.get()));
  if (serves) service_->start(rpc_.get());
  SWALE_RETURN_IF_ERROR(net::agree(job_, {}));
  // A trim that comes late would cut what a rank that is already open has put.
  return net::agree(job_, serves ? service_->resume(options_.deadline) : ok_status());
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
  return std::make_unique<Client>(rpc_.get(), &hosts_, *partition_, options, options_.deadline);
}

Status Store::close() {
  if (closed_) return {};
  closed_ = true;
  // Nobody stops serving while another rank still asks.
  Status status = net::agree(job_, {});
  Status mine;
  if (service_) mine = service_->stop();
  const Status stopped = net::agree(job_, mine);
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
