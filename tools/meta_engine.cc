#include "tools/meta_engine.h"

#include <algorithm>
#include <utility>

#include "io/posix_device.h"
#include "meta/index/shard_check.h"
#include "meta/server/manifest.h"
#include "meta/server/partition.h"
#include "meta/server/server_counters.h"
#include "meta/server/server_memory.h"
#include "meta/store/closing.h"
#include "meta/store/reading.h"
#include "meta/store/roster.h"
#include "tools/dump.h"

namespace swale::tools {
namespace {

constexpr size_t kPieces = 4096;
constexpr size_t kFilesAtOnce = 1024;

// One server's part, or why it cannot be read.
struct ServerPart : meta::ReadParts {
  Status status;
  bool there = false;  // on this machine
};

struct OpenStore {
  meta::Manifest manifest;
  std::unique_ptr<meta::Partition> partition;
  std::vector<ServerPart> servers;
  // what is damaged, or of a closed store not as it was then, at servers that are here
  std::vector<Status> problems;
  std::vector<Status> absent;  // servers that are elsewhere, or nowhere

  std::vector<Status> all_problems() const {
    std::vector<Status> all = problems;
    all.insert(all.end(), absent.begin(), absent.end());
    return all;
  }
};

// Each server of the store is here, and a closed one has what it had then.
void check_servers(io::Device& device, const std::string& path, OpenStore* store) {
  const meta::Manifest& manifest = store->manifest;
  std::vector<uint32_t> here;
  for (meta::Server server = 0; server < manifest.servers; ++server) {
    if (store->servers[server].there) here.push_back(server);
  }
  for (meta::Server server = 0; server < manifest.servers; ++server) {
    const ServerPart& part = store->servers[server];
    if (!part.there && part.status.ok()) {
      store->absent.push_back(meta::absent_server(manifest, server, path, here));
      continue;
    }
    if (manifest.closed) {
      const std::vector<Status> problems = meta::check_closing(device, path, manifest, server);
      store->problems.insert(store->problems.end(), problems.begin(), problems.end());
    } else if (const Status newer = meta::check_open(device, path, manifest, server); !newer.ok()) {
      store->problems.push_back(newer);
    }
  }
}

Status open_server(io::Device& device, const std::string& path, const std::vector<std::string>& names,
                   const meta::Manifest& manifest, meta::Server server, ServerPart* part) {
  SWALE_ASSIGN_OR_RETURN(part->there, meta::has_server(device, path, names, manifest, server));
  if (!part->there) return {};
  SWALE_ASSIGN_OR_RETURN(static_cast<meta::ReadParts&>(*part),
                         meta::read_server(device, path, server, meta::ShardOptions()));
  return {};
}

// A job that opens or closes the store meanwhile changes what its files must be: then it is read again.
Result<std::unique_ptr<OpenStore>> open_store(io::Device& below, const std::string& path) {
  constexpr int kAttemptsMax = 10;
  for (int attempts = 1;; ++attempts) {
    auto store = std::make_unique<OpenStore>();
    SWALE_ASSIGN_OR_RETURN(store->manifest, meta::read_manifest(below, path));
    const meta::Manifest& manifest = store->manifest;
    store->partition = std::make_unique<meta::Partition>(manifest.servers, manifest.range_bytes);
    SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, below.list(path));
    for (meta::Server server = 0; server < manifest.servers; ++server) {
      ServerPart& part = store->servers.emplace_back();
      part.status = open_server(below, path, names, manifest, server, &part);
    }
    check_servers(below, path, store.get());
    const auto failed = [](const ServerPart& part) { return !part.status.ok(); };
    const bool whole =
        store->problems.empty() && std::none_of(store->servers.begin(), store->servers.end(), failed);
    SWALE_ASSIGN_OR_RETURN(const meta::Manifest now, meta::read_manifest(below, path));
    const bool same = now.generation == manifest.generation && now.closed == manifest.closed;
    if (whole || same || attempts == kAttemptsMax) return store;
  }
}

// Calls visit(file) for each file that the shard knows.
template <class Visit>
void for_each_file(const meta::Shard& shard, const Visit& visit) {
  std::vector<meta::FileId> some;
  for (;;) {
    const bool first = some.empty();
    const meta::FileId last = first ? meta::FileId() : some.back();
    some.clear();
    shard.list_files(first ? nullptr : &last, kFilesAtOnce, &some);
    for (const meta::FileId& file : some) visit(file);
    if (some.size() < kFilesAtOnce) return;
  }
}

// Calls visit(extent) for each extent of a file that the server owns.
template <class Visit>
Status for_each_extent(const meta::Partition& partition, meta::Server server, meta::Shard* shard,
                       const meta::FileId& file, const Visit& visit) {
  const meta::ServerRanges ranges(&partition, server);
  std::vector<meta::Extent> some;
  for (uint64_t at = 0; at < meta::kOffsetEnd;) {
    some.clear();
    SWALE_RETURN_IF_ERROR(shard->scan(file, at, kPieces, &ranges, &some, &at));
    for (const meta::Extent& each : some) visit(each);
  }
  return {};
}

std::string id_text(const meta::FileId& file) { return fmt::format("{:016x}{:016x}", file.high, file.low); }

Result<InfoReport> meta_info(const std::string& path) {
  io::PosixDevice device({}, path);
  SWALE_ASSIGN_OR_RETURN(const auto store, open_store(device, path));
  if (!store->problems.empty()) return store->problems.front();
  uint64_t files = 0, entries = 0, runs = 0, here = 0;
  for (const ServerPart& part : store->servers) {
    SWALE_RETURN_IF_ERROR(part.status);
    if (!part.there) continue;
    ++here;
    files += part.attributes->list().size();
    const meta::ShardState state = part.shard->state();
    entries += state.buffered_entries + state.compressed_entries + state.filed_entries;
    runs += state.runs;
  }
  Json json = {{"path", path},
               {"format", meta::kFormatName},
               {"servers", store->manifest.servers},
               {"servers_here", here},
               {"generation", store->manifest.generation},
               {"closed", store->manifest.closed},
               {"range_bytes", store->manifest.range_bytes},
               {"files", files},
               {"extents", entries},
               {"runs", runs}};
  std::string text = fmt::format("{}: metadata store, {} servers ({} of them here), ranges of {} bytes\n",
                                 path, store->manifest.servers, here, store->manifest.range_bytes);
  text += store->manifest.closed ? "closed: what is here is as it was then\n"
                                 : "not closed: a job has it open, or has ended without closing it\n";
  text += fmt::format("{} files, {} extents and {} runs (a run counts at each server that has it)\n", files,
                      entries, runs);
  return InfoReport{std::move(json), std::move(text), store->absent};
}

Result<VerifyReport> meta_verify(const std::string& path, const VerifyRequest& request) {
  io::PosixDevice device({}, path);
  SWALE_ASSIGN_OR_RETURN(const auto store, open_store(device, path));
  VerifyReport report;
  uint64_t files = 0, extents = 0, servers = 0, blocks = 0;
  const auto add = [&](const Status& problem) {
    // What hinders opening a part is often what the check of its files finds.
    const auto same = [&](const Status& known) { return known.message() == problem.message(); };
    if (problem.ok() || std::any_of(report.problems.begin(), report.problems.end(), same)) return;
    if (report.problems.size() < request.problems_max) report.problems.push_back(problem);
  };
  for (const Status& problem : store->all_problems()) add(problem);
  for (meta::Server server = 0; server < store->servers.size(); ++server) {
    ServerPart& part = store->servers[server];
    add(part.status);
    if (!part.there) continue;
    // Every block and log as it stands; then the same through the eyes of a reader.
    const auto checked = meta::verify_shard(device, path, server);
    add(checked.status());
    if (checked.ok()) {
      blocks += checked->blocks;
      for (const Status& problem : checked->problems) add(problem);
    }
    if (!part.status.ok()) continue;
    ++servers;
    for_each_file(*part.shard, [&](const meta::FileId& file) {
      ++files;
      const Status read = for_each_extent(*store->partition, server, part.shard.get(), file,
                                          [&](const meta::Extent&) { ++extents; });
      if (!read.ok()) add(read.with_context(fmt::format("server {}, file {}", server, id_text(file))));
    });
    if (request.progress) request.progress(server + 1, store->servers.size());
  }
  report.checked = {{"servers", "servers", servers},
                    {"files", "files of servers", files},
                    {"extents", "extents", extents},
                    {"blocks", "blocks", blocks}};
  return report;
}

// What a server's files say, by the names of a running server's counters.
Counters stored_counters(const ServerPart& part, meta::Server server) {
  const meta::ShardState state = part.shard->state();
  const meta::AttributeTable& table = *part.attributes;
  const size_t files = table.list().size();
  const uint64_t stored = meta::content_bytes({files, table.tables_bytes(), state.index_memory_bytes});
  const std::pair<std::string_view, uint64_t> values[] = {
      {"attribute.files", files},
      {"index.files", state.files},
      {"index.runs", state.runs},
      {"index.extents", state.buffered_entries + state.compressed_entries + state.filed_entries},
      {"index.layers", state.layers},
      {"index.bytes", state.file_bytes},
      {"memory.index", state.index_memory_bytes},
      {"memory.stored", stored},
      {"log.bytes", part.report.log_bytes}};
  Counters counters = Counters::of_rank(static_cast<int32_t>(server));
  for (const auto& [name, value] : values) counters.add(*row_named(meta::server_counter_rows(), name), value);
  return counters;
}

Result<StatsReport> meta_stats(const std::string& path, const StatsRequest& request) {
  if (request.epoch) return invalid_argument("{}: a metadata store has no epochs", path);
  io::PosixDevice device({}, path);
  SWALE_ASSIGN_OR_RETURN(const auto store, open_store(device, path));
  if (const auto problems = store->all_problems(); !problems.empty()) return problems.front();
  StatsReport report;
  report.text = fmt::format("{:>6} {:>8} {:>12} {:>8} {:>12} {:>12} {:>12}\n", "server", "files", "extents",
                            "runs", "log bytes", "file bytes", "index bytes");
  for (meta::Server server = 0; server < store->servers.size(); ++server) {
    const ServerPart& part = store->servers[server];
    SWALE_RETURN_IF_ERROR(part.status);
    if (!part.there) continue;
    const meta::ShardState state = part.shard->state();
    const uint64_t extents = state.buffered_entries + state.compressed_entries + state.filed_entries;
    const size_t files = part.attributes->list().size();
    report.text += fmt::format("{:>6} {:>8} {:>12} {:>8} {:>12} {:>12} {:>12}\n", server, files, extents,
                               state.runs, part.report.log_bytes, state.file_bytes, state.index_memory_bytes);
    if (request.show != StatsRequest::Show::kJson) continue;
    Json line = {{"path", path}, {"server", server}};
    line.update(Json::parse(stored_counters(part, server).json()));
    report.lines.push_back(std::move(line));
  }
  if (request.show == StatsRequest::Show::kJson) report.text.clear();
  return report;
}

Status meta_dump(io::Device& device, const std::string& path, DumpOutput* out) {
  SWALE_ASSIGN_OR_RETURN(const auto store, open_store(device, path));
  if (const auto problems = store->all_problems(); !problems.empty()) {
    out->begin_file(path, {.words = "as a whole"});
    for (const Status& problem : problems) out->damage(0, problem);
    out->end_file();
  }
  for (meta::Server server = 0; server < store->servers.size(); ++server) {
    ServerPart& part = store->servers[server];
    out->begin_file(path, {.words = fmt::format("server {}", server), .members = {{"server", server}}});
    if (!part.status.ok()) out->damage(0, part.status);
    if (!part.status.ok() || !part.there) continue;
    for (const meta::Attributes& each : part.attributes->list()) {
      out->line({{"what", "attributes"},
                 {"id", id_text(each.file)},
                 {"name", show(each.name, Notation::kAuto)},
                 {"size", each.size},
                 {"generation", each.generation},
                 {"mode", fmt::format("{:o}", each.mode)},
                 {"sealed", each.sealed}});
    }
    for_each_file(*part.shard, [&](const meta::FileId& file) {
      const Status read =
          for_each_extent(*store->partition, server, part.shard.get(), file, [&](const meta::Extent& each) {
            out->line({{"what", "extent"},
                       {"offset", each.offset},
                       {"id", id_text(file)},
                       {"length", each.length},
                       {"log", each.place.log},
                       {"address", each.place.address}});
          });
      if (!read.ok()) out->damage(0, read);
    });
    out->end_file();
  }
  return {};
}

Result<RepairReport> meta_repair(io::Device&, const std::string& path, const RepairRequest&) {
  return error(
      Code::kUnsupported, Scope::kOperation,
      "{}: a metadata store recovers by itself when a job opens it; what `swale verify` calls damaged "
      "cannot be repaired: restore those files from a copy",
      path);
}

}  // namespace

constexpr Engine kMetaEngine = {.format = meta::kFormatName,
                                .directory = "metadata store",
                                .info = meta_info,
                                .verify = meta_verify,
                                .stats = meta_stats,
                                .dump = meta_dump,
                                .repair = meta_repair};

}  // namespace swale::tools
