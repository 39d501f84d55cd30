#include "meta/server/server_counters.h"

#include <array>

namespace swale::meta {
namespace {

struct ServerRow {
  CounterRow row;
  uint64_t (*value)(const ServerNumbers& of);
};

#define SWALE_OF(expression) [](const ServerNumbers& of) { return static_cast<uint64_t>(of.expression); }

constexpr std::array kServerRows = {
    ServerRow{{"requests", "", "messages of clients and other servers"}, SWALE_OF(server.requests)},
    ServerRow{{"put.requests", "", "puts"}, SWALE_OF(server.puts)},
    ServerRow{{"put.extents", "", "extents in them that are no runs"}, SWALE_OF(shard.extents)},
    ServerRow{{"put.runs", "", "runs in them"}, SWALE_OF(shard.runs)},
    ServerRow{{"put.duplicates", "", "puts that had come before and were answered again"},
              SWALE_OF(shard.duplicates)},
    ServerRow{{"get.requests", "", "gets"}, SWALE_OF(server.gets)},
    ServerRow{{"get.ranges", "", "ranges in them"}, SWALE_OF(server.ranges)},
    ServerRow{{"get.pieces", "", "extents in the answers"}, SWALE_OF(server.pieces)},
    ServerRow{{"get.runs", "", "runs that were asked for"}, SWALE_OF(server.run_queries)},
    ServerRow{{"get.joined", "", "gets that were looked up together with others"},
              SWALE_OF(server.joined_gets)},
    ServerRow{{"get.refused", "", "requests that were refused"}, SWALE_OF(server.refused)},
    ServerRow{{"held_max", "", "most requests that waited for space at a time", true},
              SWALE_OF(server.held_max)},
    ServerRow{{"attribute.requests", "", "requests for attributes"}, SWALE_OF(server.attribute_requests)},
    ServerRow{{"attribute.follow_ups", "", "truncates, seals and removals that all servers had a part in"},
              SWALE_OF(server.follow_ups)},
    ServerRow{{"attribute.files", "", "files whose attributes the server has"}, SWALE_OF(files)},
    ServerRow{{"attribute.bytes", "bytes", "of their records, without those that the log alone has"},
              SWALE_OF(state.table_file_bytes + of.state.table_tail_bytes)},
    ServerRow{{"ring.forwarded", "", "requests for attributes that the delegate passed on"},
              SWALE_OF(ring.forwarded)},
    ServerRow{{"ring.bypassed", "", "of them straight to the root, because a server on the way failed"},
              SWALE_OF(ring.bypassed)},
    ServerRow{{"ring.merged_max", "", "most equal requests in one", true}, SWALE_OF(ring.merged_max)},
    ServerRow{{"log.groups", "", "groups of puts that one sync made durable"}, SWALE_OF(shard.groups)},
    ServerRow{{"log.syncs", "", "of the log"}, SWALE_OF(shard.log_syncs)},
    ServerRow{{"log.bytes", "bytes", "of the log now"}, SWALE_OF(state.log_bytes)},
    ServerRow{{"index.files", "", "files that have extents here"}, SWALE_OF(state.files)},
    ServerRow{{"index.runs", "", "runs that are stored"}, SWALE_OF(state.runs)},
    ServerRow{{"index.extents", "", "other extents that are stored"},
              [](const ServerNumbers& of) {
                return of.state.buffered_entries + of.state.compressed_entries + of.state.filed_entries;
              }},
    ServerRow{{"index.layers", "", "buffers, trees and tables of them"}, SWALE_OF(state.layers)},
    ServerRow{{"index.bytes", "bytes", "of the files that have them"}, SWALE_OF(state.file_bytes)},
    ServerRow{{"read.requests", "", "reads of these files"}, SWALE_OF(shard.reads)},
    ServerRow{{"read.bytes", "bytes", "in them"}, SWALE_OF(shard.read_bytes)},
    ServerRow{{"read.cache_hits", "", "blocks that memory had already"}, SWALE_OF(shard.cache_hits)},
    ServerRow{{"memory.index", "bytes", "of runs, files and indexes of blocks"},
              SWALE_OF(state.index_memory_bytes)},
    ServerRow{{"memory.buffers", "bytes", "of puts that are in no file yet"},
              SWALE_OF(state.buffer_memory_bytes)},
    ServerRow{{"memory.cache", "bytes", "of blocks that were read"}, SWALE_OF(state.cache_memory_bytes)},
    ServerRow{{"memory.reserved", "bytes", "of the process's memory"}, SWALE_OF(reserved_bytes)},
    ServerRow{{"memory.stored", "bytes", "of them for what is stored"}, SWALE_OF(stored_bytes)},
    ServerRow{{"failed", "", "1: the server's storage has failed, and it changes nothing more"},
              SWALE_OF(failed)},
};

#undef SWALE_OF

constexpr auto kServerCounterRows = [] {
  std::array<CounterRow, kServerRows.size()> rows;
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = kServerRows[i].row;
  return rows;
}();

}  // namespace

std::span<const CounterRow> server_counter_rows() { return kServerCounterRows; }

Counters server_counters(const ServerNumbers& numbers, uint32_t server) {
  Counters counters = Counters::of_rank(static_cast<int32_t>(server));
  for (const ServerRow& each : kServerRows) counters.add(each.row, each.value(numbers));
  return counters;
}

}  // namespace swale::meta
