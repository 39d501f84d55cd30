#include "meta/store/store.h"

#include <algorithm>
#include <filesystem>

#include "base/coding.h"
#include "base/contain.h"
#include "base/entropy.h"
#include "base/process_identity.h"
#include "base/sealed_document.h"
#include "meta/store/closing.h"
#include "net/job/agree.h"
#include "net/job/opening.h"
#include "net/meeting/node_map.h"

namespace swale::meta {
namespace {

// As option meta.ring names them.
std::string_view name_of(const std::optional<RingMode>& mode) {
  if (!mode) return "auto";
  switch (*mode) {
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
  return {{"flags", fmt::format("{}", static_cast<int>(options.open))},
          {"meta.servers_per_node", fmt::format("{}", options.servers_per_node)},
          {"meta.range", fmt::format("{}", options.range_bytes)},
          {"meta.ring", std::string(name_of(options.ring))}};
}

// The newest manifest comes first: of the highest generation, then one that knows that all directories have
// reached it, then a closed one before the one that its job had written.
std::string newest_first(const Manifest& manifest) {
  std::string key;
  for (const uint64_t number : {manifest.generation, manifest.opened}) {
    for (int shift = 56; shift >= 0; shift -= 8)
      append_u8(&key, static_cast<uint8_t>(~number >> shift & 0xff));
  }
  append_u8(&key, manifest.closed ? 0 : 1);
  return key + encode_manifest(manifest);
}
constexpr size_t kNewestKeyBytes = 17;

std::string absolute(const std::string& directory) {
  std::error_code unknown;
  const std::filesystem::path path = std::filesystem::absolute(directory, unknown);
  return unknown ? directory : path.string();
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

// The first rank of this node has the lock of its directory: where this rank finds none of this job, its path
// leads elsewhere.
Status Store::check_same_directory(io::Device& device, const std::string& directory, const std::string& job) {
  const net::Seat seat = job_.nodes()->seat(job_.rank());
  if (seat.local == 0) return {};
  const std::string path = directory + "/" + kLockName;
  const Result<io::FoundLock> found = io::read_lock(device, path);
  if (!found.ok() && found.status().code() != Code::kNotFound) return found.status();
  if (found.ok() && found->content.ok() && found->content->job == job) return {};
  return invalid_argument(
      "{}: is not the directory that rank {} of the same node opened (its {} {}); all ranks of a node must "
      "give the same path",
      directory, job_.nodes()->rank_at(seat.node, 0), path, found.ok() ? "is another job's" : "is missing");
}

Status Store::begin(io::Device& device, const std::string& directory) {
  const net::Ranks ranks = net::ranks_of(job_);
  device_ = &device;
  directory_ = directory;
  SWALE_RETURN_IF_ERROR(net::begin_collective(job_, net::CallKind::kOpenStore, directory, {}));
  SWALE_RETURN_IF_ERROR(net::agree_on_options(ranks, agreed_options(options_)));
  SWALE_ASSIGN_OR_RETURN(const net::Word name,
                         net::first_word(ranks, job_.rank() == 0 ? hex16(random_number()) : ""));
  const std::string& job = name.text;  // in its locks
  const bool first_of_node = job_.nodes()->seat(job_.rank()).local == 0;
  SWALE_RETURN_IF_ERROR(check_presence());
  if (!read_only()) {
    // Rank 0 before the others: they see whether its directory is theirs, too.
    SWALE_RETURN_IF_ERROR(net::agree(job_, job_.rank() == 0 ? lock(device, directory, job) : ok_status()));
    SWALE_RETURN_IF_ERROR(
        net::agree(job_, first_of_node && job_.rank() != 0 ? lock(device, directory, job) : ok_status()));
    SWALE_RETURN_IF_ERROR(net::agree(job_, check_same_directory(device, directory, job)));
  }
  SWALE_ASSIGN_OR_RETURN(const uint64_t alone, net::least_number(ranks, lock_ && job_.rank() != 0 ? 0 : 1));
  spread_ = alone == 0;
  bool is_new = false;
  uint64_t own_generation = 0;  // of this rank's directory; 0: it has no manifest
  SWALE_RETURN_IF_ERROR(find_manifest(&is_new, &own_generation));
  SWALE_RETURN_IF_ERROR(Partition::check(manifest_.servers, manifest_.range_bytes));
  partition_ = std::make_unique<Partition>(manifest_.servers, manifest_.range_bytes);
  if (!is_new) SWALE_RETURN_IF_ERROR(find_servers(own_generation));
  find_home();
  net::RpcOptions talk;
  talk.methods = method_names();
  const auto here = static_cast<uint64_t>(std::count(hosts_.begin(), hosts_.end(), job_.rank()));
  SWALE_ASSIGN_OR_RETURN(memory_, StoreMemory::take(job_, directory, here, &options_.shard, &talk));
  SWALE_RETURN_IF_ERROR(net::agree(job_, contain([&] { return check_files(is_new); })));
  // Ranks share directories: before the first of them names its servers. No file of them is worth anything.
  if (is_new)
    SWALE_RETURN_IF_ERROR(net::agree(
        job_, contain([&] { return lock_ ? remove_server_files(device, directory) : ok_status(); })));
  if (!read_only()) SWALE_RETURN_IF_ERROR(note_places(is_new));
  // Before the first of its files changes.
  if (!is_new && !read_only()) SWALE_RETURN_IF_ERROR(mark_open());

  Result<std::vector<std::unique_ptr<ServerCore>>> cores = open_servers(device, directory);
  SWALE_RETURN_IF_ERROR(net::agree(job_, cores.status()));
  if (is_new) SWALE_RETURN_IF_ERROR(mark_open());  // all servers stand

  const bool serves = !cores->empty();
  for (const auto& core : *cores) core->note_reserved(server_memory(options_.shard).bytes());
  if (serves)
    service_ = std::make_unique<Service>(*std::move(cores), hosts_, options_.deadline / 4, memory_.get());
  requests_ = std::make_unique<RankService>(service_.get());
  SWALE_ASSIGN_OR_RETURN(rpc_, net::Rpc::open(job_, talk, requests_.get()));
  requests_->start(rpc_.get());
  SWALE_RETURN_IF_ERROR(net::agree(job_, serves ? service_->start(rpc_.get()) : ok_status()));
  // A trim that comes late would cut what a rank that is already open has put.
  return net::agree(job_, serves ? service_->resume(options_.deadline) : ok_status());
}

// Whether there is a store, before anything is made: a mistyped path makes none.
Status Store::check_presence() {
  bool present = false;
  const Status looked = contain([&]() -> Status {
    if (job_.nodes()->seat(job_.rank()).local != 0) return {};
    SWALE_ASSIGN_OR_RETURN(present, device_->exists(directory_ + "/" + kManifestName));
    if (present || options_.open == OpenStore::kCreate || options_.open == OpenStore::kExclusive) return {};
    const Status lost = check_no_store(*device_, directory_);
    return lost.code() == Code::kNotFound ? ok_status() : lost;
  });
  SWALE_RETURN_IF_ERROR(net::agree(job_, looked));
  SWALE_ASSIGN_OR_RETURN(const uint64_t absent, net::least_number(net::ranks_of(job_), present ? 0 : 1));
  if (absent == 0 && options_.open == OpenStore::kExclusive)
    return error(Code::kAlreadyExists, Scope::kFile, "{}: is a metadata store already", directory_);
  if (absent == 0 || options_.open == OpenStore::kCreate || options_.open == OpenStore::kExclusive) return {};
  return error(Code::kNotFound, Scope::kFile,
               "{}: no metadata store is there; is the path right? SWALE_CREATE makes a new one", directory_);
}

// The newest of the copies that the ranks' directories have; none: the store is new, and gets its ids.
Status Store::find_manifest(bool* is_new, uint64_t* own_generation) {
  Result<Manifest> mine = error(Code::kNotFound, Scope::kFile, "this rank looks into no directory");
  const Status looked = contain([&] {
    if (looks()) mine = read_manifest(*device_, directory_);
    return ok_status();
  });
  if (!looked.ok()) mine = looked;
  const bool has_one = mine.ok();
  *own_generation = has_one ? mine->generation : 0;
  SWALE_RETURN_IF_ERROR(
      net::agree(job_, has_one || mine.status().code() == Code::kNotFound ? ok_status() : mine.status()));
  SWALE_ASSIGN_OR_RETURN(const std::string newest, job_.least(has_one ? newest_first(*mine) : ""));
  *is_new = newest.empty();
  if (*is_new && options_.open != OpenStore::kCreate && options_.open != OpenStore::kExclusive)
    return error(Code::kNotFound, Scope::kFile, "{}: the metadata store was removed meanwhile", directory_);
  manifest_ = Manifest();
  manifest_.range_bytes = options_.range_bytes;
  hosts_ = hosting_ranks();
  manifest_.servers = static_cast<uint32_t>(hosts_.size());
  if (*is_new) {
    SWALE_ASSIGN_OR_RETURN(
        manifest_.store,
        net::least_number(net::ranks_of(job_), job_.rank() == 0 ? random_number() >> 1 : ~uint64_t{0}));
    manifest_.places.resize(manifest_.servers);
    return {};
  }
  const std::string path = directory_ + "/" + kManifestName;
  SWALE_ASSIGN_OR_RETURN(manifest_, decode_manifest(newest.substr(kNewestKeyBytes), path));
  hosts_.resize(manifest_.servers);
  const std::vector<net::Rank> hosting = hosting_ranks();
  for (size_t server = 0; server < hosts_.size(); ++server) hosts_[server] = hosting[server % hosting.size()];
  Status fits;
  if (has_one && mine->store != manifest_.store) {
    fits = corruption(
        "{}: is of store {:016x}, and other ranks have store {:016x}: directories of two stores; was one "
        "made anew beside the other?",
        path, mine->store, manifest_.store);
  }
  return net::agree(job_, fits);
}

// Files have changed since all directories had reached the generation `opened`: what has not is a copy of
// before that. `here`: the servers in this directory.
Status Store::check_age(uint64_t own_generation, const std::vector<uint32_t>& here) const {
  if (here.empty() || own_generation >= manifest_.opened) return {};
  if (own_generation == 0) {
    return corruption(
        "{}/{}: is missing, and {} is here: nothing says whether this directory is an older copy; restore "
        "it as it was last",
        directory_, kManifestName, name_of_server(manifest_, here.front()));
  }
  return corruption(
      "{}/{}: is of generation {}, and other ranks' is of {}, which all directories had reached: this "
      "directory is an older copy; restore it as it was last",
      directory_, kManifestName, own_generation, manifest_.opened);
}

// Where each rank's directory has the servers that it hosts, nobody says more than that. Else all
// directories' servers are gathered, and each server is hosted where it is.
Status Store::find_servers(uint64_t own_generation) {
  std::vector<uint32_t> here;  // in this rank's directory, if this rank looks for its node
  bool missing = false, stray = false;
  const Status looked = contain([&]() -> Status {
    std::vector<std::string> names;
    if (looks() || std::count(hosts_.begin(), hosts_.end(), job_.rank()) > 0) {
      SWALE_ASSIGN_OR_RETURN(names, device_->list(directory_));
    }
    for (Server server = 0; server < hosts_.size(); ++server) {
      if (!hosts(server)) continue;
      SWALE_ASSIGN_OR_RETURN(const bool has, has_server(*device_, directory_, names, manifest_, server));
      missing |= !has;
    }
    if (!looks()) return {};
    SWALE_ASSIGN_OR_RETURN(here, servers_in(*device_, directory_, names, manifest_));
    SWALE_RETURN_IF_ERROR(check_age(own_generation, here));
    const int32_t node = job_.nodes()->seat(job_.rank()).node;
    for (const uint32_t server : here) stray |= spread_ && job_.nodes()->seat(hosts_[server]).node != node;
    return {};
  });
  SWALE_RETURN_IF_ERROR(net::agree(job_, looked));
  SWALE_ASSIGN_OR_RETURN(const net::Word word,
                         net::first_word(net::ranks_of(job_), missing || stray ? "look" : ""));
  if (word.rank < 0) return {};
  std::string text;
  if (looks() || missing) {
    append_u8(&text, missing ? 1 : 0);
    append_sized(&text, host_name());
    append_sized(&text, absolute(directory_));
    for (const uint32_t server : here) append_u32(&text, server);
  }
  SWALE_ASSIGN_OR_RETURN(const auto found, job_.given(text));
  return host_where_found(found);
}

// The same on all ranks. `found`: of each directory what servers are in it, as its rank with the lock has
// seen it.
Status Store::host_where_found(const std::map<net::Rank, std::string>& found) {
  struct Spot {
    net::Rank rank = -1;
    std::string words;
  };
  std::vector<Spot> places(manifest_.servers);
  std::vector<uint32_t> all;
  std::string looked_in;
  bool missing = false;
  for (const auto& [rank, text] : found) {
    Decoder in(text);
    missing |= in.u8() != 0;
    std::string words = fmt::format("rank {} on host {}", rank, in.sized());
    words += fmt::format(", in {}", in.sized());
    if (looked_in.empty()) looked_in = directory_;
    while (in.ok() && in.remaining() > 0) {
      const uint32_t server = in.u32() % manifest_.servers;
      // Without locks nobody knows which nodes share a directory.
      if (places[server].rank >= 0 && read_only()) continue;
      if (places[server].rank >= 0) {
        return corruption(
            "{}/{}: {} of store {:016x} is in two places: at {}, and at {}: one of them is a copy; remove it",
            directory_, server_file_name(server), name_of_server(manifest_, server), manifest_.store,
            places[server].words, words);
      }
      places[server] = {rank, words};
      all.push_back(server);
    }
    SWALE_RETURN_IF_ERROR(in.finish("what a rank says of the servers in its directory"));
  }
  std::sort(all.begin(), all.end());
  for (Server server = 0; server < manifest_.servers; ++server) {
    if (places[server].rank < 0) return absent_server(manifest_, server, directory_, all);
  }
  if (!missing) return {};
  const net::NodeMap& nodes = *job_.nodes();
  std::map<int32_t, int32_t> given;  // by node: how many servers its ranks have got
  for (Server server = 0; server < manifest_.servers; ++server) {
    const int32_t node = nodes.seat(places[server].rank).node;
    const auto ranks = std::min(static_cast<int32_t>(options_.servers_per_node), nodes.ranks_on(node));
    hosts_[server] = nodes.rank_at(node, given[node]++ % ranks);
  }
  return {};
}

// Where the servers of a new store are, and of an older one those that have moved: so that a later job can
// say where one was that it does not find. All servers of one directory are found together, so that nothing
// is said of them.
Status Store::note_places(bool is_new) {
  std::string moved;
  for (Server server = 0; server < hosts_.size(); ++server) {
    if (!hosts(server) || (!is_new && !spread_)) continue;
    ServerPlace place{is_new ? random_number() : manifest_.places[server].id, host_name(),
                      absolute(directory_), static_cast<uint32_t>(job_.rank())};
    if (place == manifest_.places[server]) continue;
    append_u32(&moved, server);
    append_u64(&moved, place.id);
    append_sized(&moved, place.host);
    append_sized(&moved, place.path);
  }
  SWALE_ASSIGN_OR_RETURN(const auto all, job_.given(moved));
  for (const auto& [rank, text] : all) {
    Decoder in(text);
    while (in.ok() && in.remaining() > 0) {
      ServerPlace& place = manifest_.places[in.u32() % manifest_.servers];
      place.id = in.u64();
      place.host = in.sized();
      place.path = in.sized();
      place.rank = static_cast<uint32_t>(rank);
    }
    SWALE_RETURN_IF_ERROR(in.finish("what a rank says of where its servers are"));
  }
  return {};
}

// Those of this rank's servers, as they are. Changes nothing but that a new store's directory is made.
Status Store::check_files(bool is_new) const {
  bool looked = false;
  for (Server server = 0; server < hosts_.size(); ++server) {
    if (!hosts(server)) continue;
    if (is_new) {
      if (std::exchange(looked, true)) continue;
      SWALE_RETURN_IF_ERROR(io::make_directories(*device_, directory_));
      SWALE_RETURN_IF_ERROR(check_no_store(*device_, directory_));
      continue;
    }
    if (!manifest_.closed) {
      SWALE_RETURN_IF_ERROR(check_open(*device_, directory_, manifest_, server));
      continue;
    }
    const std::vector<Status> problems = check_closing(*device_, directory_, manifest_, server);
    if (problems.empty()) continue;
    // Beside a job that has opened it since the manifest was read: its files are read as those of any open
    // store.
    const Result<Manifest> now = read_manifest(*device_, directory_);
    if (read_only() && now.ok() && now->generation > manifest_.generation) continue;
    return problems.front();
  }
  return {};
}

// Collective. First all directories reach the next generation, in which the store is as it was; then all know
// that they have. Only then may a file change (docs/design/metadata-store.md, "An opening that is
// interrupted").
Status Store::mark_open() {
  ++manifest_.generation;
  SWALE_RETURN_IF_ERROR(net::agree(job_, contain([&] { return write_manifest(manifest_); })));
  manifest_.opened = manifest_.generation;
  manifest_.closed = false;
  manifest_.closings.clear();
  return net::agree(job_, contain([&] { return write_manifest(manifest_); }));
}

// In each directory that has servers of the store.
bool Store::keeps_manifest() const {
  const int32_t node = job_.nodes()->seat(job_.rank()).node;
  return lock_ && std::any_of(hosts_.begin(), hosts_.end(),
                              [&](net::Rank rank) { return job_.nodes()->seat(rank).node == node; });
}

Status Store::write_manifest(const Manifest& manifest) {
  if (!keeps_manifest()) return {};
  return io::replace_file(*device_, directory_ + "/" + kManifestName, encode_manifest(manifest));
}

// What this rank's servers wrote, as mark_closed reads it.
Status Store::close_servers(std::string* about) {
  Status failure;
  with_servers([&](ServerCore& core) {
    const Status closed = contain([&]() -> Status {
      SWALE_RETURN_IF_ERROR(core.shard().fence());
      const Status tidied = core.shard().tidy();
      // Without space or memory for it the store is closed as it is.
      if (tidied.code() != Code::kNoSpace && tidied.code() != Code::kResourceExhausted)
        SWALE_RETURN_IF_ERROR(tidied);
      Closing closing;
      closing.server = core.server();
      closing.job = core.shard().job();
      closing.generation = manifest_.generation;
      closing.files = core.attributes().files();
      const ShardState state = core.shard().state();
      closing.extents = state.buffered_entries + state.compressed_entries + state.filed_entries;
      SWALE_ASSIGN_OR_RETURN(const ClosedServer written,
                             write_closing(*device_, directory_, std::move(closing)));
      append_u32(about, core.server());
      append_u32(about, written.crc);
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
    if (!keeps_manifest()) return {};
    // A job that has taken the store over has said so.
    SWALE_RETURN_IF_ERROR(lock_->check());
    const Result<Manifest> now = read_manifest(*device_, directory_);
    SWALE_RETURN_IF_ERROR(now.status());
    if (now->generation != manifest_.generation || now->closed) {
      return error(Code::kAborted, Scope::kNode, "{}/{}: another job has opened this store (generation {})",
                   directory_, kManifestName, now->generation);
    }
    Manifest manifest = manifest_;
    manifest.closed = true;
    manifest.closings.resize(manifest.servers);
    for (const auto& [rank, each] : all) {
      Decoder in(each);
      while (in.ok() && in.remaining() > 0) {
        ClosedServer& closed = manifest.closings[in.u32() % manifest.servers];
        closed.crc = in.u32();
      }
      SWALE_RETURN_IF_ERROR(in.finish("what a rank says of its closed servers"));
    }
    return write_manifest(manifest);
  };
  return net::agree(job_, contain(write));
}

// One after the other, each the host of a server of a new store.
std::vector<net::Rank> Store::hosting_ranks() const {
  std::vector<net::Rank> hosting;
  for (net::Rank rank = 0; rank < job_.size(); ++rank) {
    if (static_cast<uint32_t>(job_.nodes()->seat(rank).local) < options_.servers_per_node)
      hosting.push_back(rank);
  }
  return hosting;
}

// Whose delegate serves this rank: ranks of a node share its servers evenly.
void Store::find_home() {
  const net::NodeMap& nodes = *job_.nodes();
  const auto servers = static_cast<uint32_t>(hosts_.size());
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
    if (read_only()) {
      SWALE_ASSIGN_OR_RETURN(ReadParts parts,
                             read_server(device, directory, server, options_.shard, options_.files_max));
      cores.push_back(std::make_unique<ServerCore>(*partition_, server, ring_mode(),
                                                   std::move(parts.attributes), std::move(parts.shard)));
      views_.push_back(std::move(parts.device));
      continue;
    }
    SWALE_RETURN_IF_ERROR(io::make_directories(device, directory));
    auto attributes = std::make_unique<AttributeTable>(server, options_.files_max);
    ShardOptions options = options_.shard;
    options.directory = directory;
    options.shard = server;
    options.table = attributes.get();
    SWALE_ASSIGN_OR_RETURN(std::unique_ptr<Shard> shard, Shard::open(device, options));
    if (manifest_.generation == 0) {  // a new store
      SWALE_RETURN_IF_ERROR(
          io::replace_file(device, directory + "/" + server_file_name(server),
                           encode_server_file({manifest_.store, manifest_.places[server].id, server})));
    }
    cores.push_back(std::make_unique<ServerCore>(*partition_, server, ring_mode(), std::move(attributes),
                                                 std::move(shard)));
  }
  return cores;
}

std::unique_ptr<Client> Store::client() {
  ClientOptions options;
  options.client = random_number() | 1;
  options.home = home_;
  options.mode = ring_mode();
  options.detect_runs = options_.detect_runs;
  options.news = &requests_->table_news();
  options.read_only = read_only();
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
  if (status.ok() && stopped.ok() && !read_only()) {
    stopped = mark_closed().with_context(
        "all that was acknowledged is durable, and the store was not marked closed");
  }
  const Status left = rpc_->close();
  service_.reset();
  rpc_.reset();
  memory_.reset();
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
