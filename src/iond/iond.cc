#include "iond/iond.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/coding.h"
#include "base/contain.h"
#include "iond/iond_part.h"
#include "iond/iond_service.h"
#include "net/job/agree.h"
#include "net/job/memory_share.h"
#include "net/job/opening.h"
#include "net/rpc/rpc_memory.h"

namespace swale::iond {
namespace {

constexpr size_t kInFlightPerServer = 4;
constexpr char kServes[] = "s";  // what a rank that serves tells the others

// What ranks must have in common, as the table of options names it.
std::vector<net::AgreedOption> agreed_options(const IondOptions& options) {
  return {{"iond.stripe", fmt::format("{}", options.stripe_bytes)}};
}

// The share of this rank, and its requests within it. Collective: the requests of all ranks get equal shares.
Result<MemoryBudget::Reservation> take_iond_memory(net::Job& job, bool serves, net::RpcOptions* talk) {
  const uint64_t wish = net::rpc_memory_bytes(*talk, job.size());
  SWALE_ASSIGN_OR_RETURN(MemoryBudget::Reservation share,
                         net::take_equal_share(job, {"I/O requests", serves ? "server" : "client"},
                                               net::rpc_memory_bytes_least(*talk, job.size()), wish,
                                               net::memory_limit(job, net::kNoDefaultLimit)));
  *talk = net::rpc_options_within(*talk, job.size(), share.bytes());
  return share;
}

uint32_t answer_data_max(IondMethod method, const IondRequest& request) {
  switch (method) {
    case IondMethod::kRead:
    case IondMethod::kList:
      return static_cast<uint32_t>(request.length);
    case IondMethod::kStats:
      return kIondStatsBytesMax;
    case IondMethod::kReadSymlink:
      return kIondNameBytesMax;
    case IondMethod::kGetAttribute:
    case IondMethod::kListAttributes:
      return kIondAttributeBytesMax;
    default:
      return 0;
  }
}

// What a server says of those that it has waited for.
Status left_behind(const Result<std::vector<net::Rank>>& dead) {
  if (!dead.ok()) return dead.status().with_context("closing the I/O servers");
  if (dead->empty()) return {};
  return error(Code::kUnavailable, Scope::kPeer, "rank {} died before it closed the I/O servers{}",
               dead->front(), dead->size() > 1 ? fmt::format(", and {} others", dead->size() - 1) : "");
}

}  // namespace

Result<std::unique_ptr<Iond>> Iond::open(net::Job& job, const IondOptions& options,
                                         const std::optional<IondServing>& serving, const Status& mine) {
  std::unique_ptr<Iond> iond(new Iond(job, options));
  const Status begun = contain([&] { return iond->begin(serving, mine); });
  if (!begun.ok()) return begun.with_context("opening the I/O servers");
  return iond;
}

Status Iond::begin(const std::optional<IondServing>& serving, const Status& mine) {
  Status fit = mine;
  if (fit.ok()) fit = Striping{options_.stripe_bytes, 1, 0}.check();
  SWALE_RETURN_IF_ERROR(net::begin_collective(job_, net::CallKind::kOpenServers, "", fit));
  SWALE_RETURN_IF_ERROR(net::agree_on_options(net::ranks_of(job_), agreed_options(options_)));
  SWALE_ASSIGN_OR_RETURN(const auto serving_ranks, job_.given(serving ? kServes : ""));
  Status differs;
  uint32_t server = 0;
  for (const auto& [rank, word] : serving_ranks) {
    if (rank == job_.rank()) server = static_cast<uint32_t>(hosts_.size());
    hosts_.push_back(rank);
  }
  if (hosts_.empty() && differs.ok())
    differs = invalid_argument("no rank of the job serves: start swale iond as ranks of it");
  if (hosts_.size() > kServersMax && differs.ok())
    differs = invalid_argument("{} ranks serve; at most {} are supported", hosts_.size(), kServersMax);
  if (differs.ok() && serving) differs = claim_backing(serving->backing_directory, server, servers());
  std::unique_ptr<IondFiles> files;
  if (differs.ok() && serving) {
    auto made = IondFiles::make(
        {serving->store, serving->backing_directory, server, servers(), options_.open_files_max});
    differs = made.status();
    if (made.ok()) files = std::move(*made);
  }
  SWALE_RETURN_IF_ERROR(net::agree(job_, differs));

  net::RpcOptions talk;
  talk.methods = iond_method_names();
  talk.message_bytes_max = kIondMessageBytesMax;
  SWALE_ASSIGN_OR_RETURN(memory_, take_iond_memory(job_, serving.has_value(), &talk));
  if (serving)
    service_ = std::make_unique<IondService>(job_, std::move(files), options_.threads, options_.watch);
  SWALE_ASSIGN_OR_RETURN(rpc_, net::Rpc::open(job_, talk, service_.get()));
  SWALE_RETURN_IF_ERROR(
      net::agree(job_, service_ ? service_->start(rpc_.get(), memory_.bytes()) : ok_status()));
  const MutexLock lock(loaded_mutex_);
  loaded_ = service_.get();
  return {};
}

IondLoad Iond::load() const {
  const MutexLock lock(loaded_mutex_);
  return loaded_ == nullptr ? IondLoad() : loaded_->load();
}

// Asks, a few requests at a time at each server, and returns when all are answered: the first failure.
Status Iond::run(IondMethod method, const std::string& what, std::vector<Part>* parts) {
  net::RpcClient client(rpc_.get());
  const size_t in_flight_max = kInFlightPerServer * hosts_.size();
  const Nanos refuse_until = system_clock().now() + options_.deadline;
  std::vector<net::RpcCompletion> done;
  Status status;
  size_t next = 0, open = 0;
  while (open > 0 || (status.ok() && next < parts->size())) {
    while (status.ok() && next < parts->size() && open < in_flight_max) {
      const Part& part = (*parts)[next];
      std::string payload = encode_iond_request(part.request, part.append_data ? part.request.length : 0);
      if (part.append_data) part.append_data(&payload);
      const auto id =
          client.call({.to = hosts_[part.server],
                       .method = static_cast<net::RpcMethod>(method),
                       .payload = std::move(payload),
                       .response_bytes_max = kIondAnswerBytesMax + answer_data_max(method, part.request),
                       .deadline = system_clock().now() + options_.deadline,
                       .tag = next},
                      net::RpcClient::Leave::kWithNext);
      if (!id.ok() && id.status().code() == Code::kResourceExhausted && system_clock().now() < refuse_until)
        break;  // other threads of this rank have all calls that there may be
      if (!id.ok()) {
        status = id.status();
        break;
      }
      ++next;
      ++open;
    }
    done.clear();
    // Each call has a deadline; without one, capacity is waited for.
    open -= client.wait(&done, open == 0 ? refuse_until : kForever);
    for (net::RpcCompletion& each : done) {
      if (!each.response.ok()) {
        if (status.ok()) status = each.response.status();
        continue;
      }
      const auto answer = decode_iond_answer(*each.response);
      const Status failed = answer.ok() ? failure_of(*answer) : answer.status();
      if (!failed.ok() && status.ok()) status = failed;
      const Part& part = (*parts)[each.tag];
      if (failed.ok() && part.take) part.take(*answer);
    }
  }
  return status.ok() ? status : status.with_context(what);
}

// The requests for a range, without methods: each is one range of a server's part.
std::vector<Iond::Part> Iond::parts_of(const IondFile& file, uint64_t offset, uint64_t length) const {
  const Striping& striping = file.striping;
  std::vector<Part> parts;
  std::vector<std::pair<uint64_t, uint64_t>> left;  // by server
  for (uint32_t server = 0; server < striping.servers; ++server)
    left.emplace_back(striping.part_bytes(server, offset), striping.part_bytes(server, offset + length));
  for (bool any = true; any;) {
    any = false;
    for (uint32_t turn = 0; turn < striping.servers; ++turn) {
      const uint32_t server = (striping.first + turn) % striping.servers;
      auto& [at, end] = left[server];
      if (at == end) continue;
      const uint64_t bytes = std::min(end - at, kIondDataBytesMax);
      Part part;
      part.server = server;
      part.request.file = file.handles[server];
      part.request.offset = at;
      part.request.length = bytes;
      parts.push_back(std::move(part));
      at += bytes;
      any = true;
    }
  }
  return parts;
}

Status Iond::write(const IondFile& file, uint64_t offset, Bytes data) {
  std::vector<Part> parts = parts_of(file, offset, data.size());
  for (Part& part : parts)
    part.append_data = [&file, &part, data, offset](std::string* out) {
      file.striping.for_each_piece(
          part.server, part.request.offset, part.request.length,
          [&](uint64_t, uint64_t place, uint64_t bytes) { out->append(data.substr(place - offset, bytes)); });
    };
  return run(IondMethod::kWrite, fmt::format("{}: writing {} bytes at {}", file.name, data.size(), offset),
             &parts);
}

Result<size_t> Iond::read(const IondFile& file, uint64_t offset, MutableBytes out) {
  std::vector<Part> parts = parts_of(file, offset, out.size());
  bool is_short = false;
  for (Part& part : parts)
    part.take = [&](const IondAnswer& answer) {
      Bytes rest = answer.data.substr(0, part.request.length);
      is_short |= rest.size() < part.request.length;
      file.striping.for_each_piece(part.server, part.request.offset, part.request.length,
                                   [&](uint64_t, uint64_t place, uint64_t bytes) {
                                     const size_t there = std::min<size_t>(rest.size(), bytes);
                                     char* const to = out.data() + (place - offset);
                                     if (there > 0) std::memcpy(to, rest.data(), there);
                                     std::memset(to + there, 0, bytes - there);
                                     rest.remove_prefix(there);
                                   });
    };
  const std::string what = fmt::format("{}: reading {} bytes at {}", file.name, out.size(), offset);
  SWALE_RETURN_IF_ERROR(run(IondMethod::kRead, what, &parts));
  if (!is_short) return out.size();
  // A part that ends before the file does has a hole there.
  SWALE_ASSIGN_OR_RETURN(const uint64_t end, size(file));
  return end <= offset ? 0 : static_cast<size_t>(std::min<uint64_t>(out.size(), end - offset));
}

std::vector<Iond::Part> Iond::one_for_each_server(const IondFile& file) {
  std::vector<Part> parts(file.handles.size());
  for (uint32_t server = 0; server < parts.size(); ++server) {
    parts[server].server = server;
    parts[server].request.file = file.handles[server];
  }
  return parts;
}

Status Iond::truncate(const IondFile& file, uint64_t size) {
  auto parts = one_for_each_server(file);
  for (Part& part : parts) part.request.offset = file.striping.part_bytes(part.server, size);
  return run(IondMethod::kTruncate, fmt::format("{}: truncating to {} bytes", file.name, size), &parts);
}

Result<uint64_t> Iond::size(const IondFile& file) {
  SWALE_ASSIGN_OR_RETURN(const FileAttributes all, attributes(file));
  return all.size;
}

Result<Counters> Iond::stats() {
  Counters all = Counters::of_ranks(0);
  Status failed;
  std::vector<Part> parts(hosts_.size());
  for (uint32_t server = 0; server < parts.size(); ++server) {
    parts[server].server = server;
    parts[server].take = [&](const IondAnswer& answer) {
      const auto each = Counters::read(answer.data, iond_counter_rows());
      each.ok() ? all.merge(*each) : void(failed = each.status());
    };
  }
  SWALE_RETURN_IF_ERROR(run(IondMethod::kStats, "counters of the I/O servers", &parts));
  SWALE_RETURN_IF_ERROR(failed);
  return all;
}

Status Iond::sync(const IondFile& file) {
  auto parts = one_for_each_server(file);
  return run(IondMethod::kSync, file.name + ": sync", &parts);
}

Status Iond::close_file(IondFile* file) {
  auto parts = one_for_each_server(*file);
  file->handles.clear();
  return run(IondMethod::kClose, file->name + ": close", &parts);
}

Result<IondFile> Iond::open_file(const std::string& name, uint32_t flags, uint32_t mode, uint64_t inode) {
  SWALE_RETURN_IF_ERROR(check_iond_name(name));
  IondFile file{name, 0, {options_.stripe_bytes, servers(), 0}, std::vector<uint64_t>(hosts_.size())};
  std::vector<Part> parts(1);
  parts[0].server = kNamesServer;
  parts[0].request = {.inode = inode, .flags = flags, .mode = mode, .striping = file.striping, .name = name};
  parts[0].take = [&](const IondAnswer& answer) {
    file.id = answer.id;
    file.striping.first = answer.first;
    file.handles[kNamesServer] = answer.file;
  };
  SWALE_RETURN_IF_ERROR(run(IondMethod::kOpen, name + ": open", &parts));
  SWALE_RETURN_IF_ERROR(file.striping.check());
  parts.clear();
  for (uint32_t server = 1; server < servers(); ++server) {
    Part part;
    part.server = server;
    part.request = {.file = file.id, .striping = file.striping, .name = name};
    part.take = [&file, server](const IondAnswer& answer) { file.handles[server] = answer.file; };
    parts.push_back(std::move(part));
  }
  const Status opened = run(IondMethod::kOpen, name + ": open", &parts);
  if (opened.ok()) return file;
  static_cast<void>(close_file(&file));
  return opened;
}

Status Iond::drain() {
  std::vector<Part> parts(hosts_.size());
  for (uint32_t server = 0; server < parts.size(); ++server) parts[server].server = server;
  return run(IondMethod::kDrain, "drain", &parts);
}

// Again and again, because the server waits for it: while a slow server has still to answer what this rank
// has given up before, a goodbye may not even leave, and is dropped when it is late.
Status Iond::say_goodbye(uint32_t server, Nanos until) {
  for (;;) {
    std::vector<Part> goodbye(1);
    goodbye[0].server = server;
    const Status said = run(IondMethod::kLeave, "closing the I/O servers", &goodbye);
    if (said.code() != Code::kDeadlineExceeded || system_clock().now() >= until) return said;
  }
}

Status Iond::close() {
  if (closed_) return {};
  closed_ = true;
  Status status = job_.begin_call(net::CallKind::kCloseServers, "");
  // Another failure of the job is found again below, with the rank that it concerns.
  if (!net::is_mismatch(status)) status = {};
  bool heard = true;
  // So long the ranks would wait for that server at the end of this close, too.
  const Nanos until = system_clock().now() + job_.collective_deadline();
  for (uint32_t server = 0; server < hosts_.size(); ++server) {
    const Status said = say_goodbye(server, until);
    heard &= said.code() != Code::kDeadlineExceeded;
    if (status.ok()) status = said;
  }
  if (service_) {
    const Result<std::vector<net::Rank>> dead = service_->wait_until_left();
    service_->stop();
    if (status.ok()) status = left_behind(dead);
    const MutexLock lock(loaded_mutex_);
    loaded_ = nullptr;
  }
  // Also without those that died: the others wait for this rank. But a server that goes on later would wait
  // for a goodbye that nobody says any more: it hears that this rank gives up.
  const Status left = heard ? rpc_->close() : ok_status();
  rpc_.reset();
  service_.reset();
  memory_.release();
  return status.ok() ? left : status;
}

Iond::Iond(net::Job& job, const IondOptions& options) : job_(job), options_(options) {}

Iond::~Iond() {
  if (closed_) return;
  if (service_) service_->stop();
  rpc_.reset();  // tells the other ranks
}

}  // namespace swale::iond
