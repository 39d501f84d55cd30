// What the tests of the table of attributes and of its log share: requests, random changes, and a table that
// a shard logs as a server has it.
//
// Threads: one at a time.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "io/overlay_device.h"
#include "meta/attributes/attribute_table.h"
#include "meta/index/shard.h"

namespace swale::meta::attributes_test {

inline AttributeRequest request(AttributeOp op, std::string name, uint64_t client = 1, uint64_t number = 0) {
  AttributeRequest made;
  made.op = op;
  made.name = std::move(name);
  made.from = {client, number};
  return made;
}

inline Result<Applied> ask(AttributeTable* table, const AttributeRequest& what) {
  std::string record;
  return table->apply(what, &record);
}

// All that a table holds, in an order.
inline std::string dump(const AttributeTable& table) {
  std::vector<std::string> records;
  table.for_each_record([&](Bytes record) { records.emplace_back(record); });
  std::sort(records.begin(), records.end());
  std::string all;
  for (const std::string& each : records) append_sized(&all, each);
  return all;
}

inline AttributeRequest any_request(Rng& rng, uint64_t number) {
  AttributeRequest made = request(static_cast<AttributeOp>(1 + rng.below(8)),
                                  fmt::format("file {}", rng.below(5)), 1 + rng.below(3), number);
  made.size = rng.below(1000);
  made.generation = rng.below(40);
  made.time_ns = static_cast<int64_t>(rng.below(1000));
  return made;
}

// A table, logged by a shard as a server has it.
struct Logged {
  std::unique_ptr<io::OverlayDevice> view;  // of read()
  AttributeTable table{3};
  std::unique_ptr<Shard> shard;
  RecoveryReport report;

  Status open(io::Device& device, uint64_t table_bytes_min = 16 * kMiB) {
    ShardOptions options;
    options.directory = "store";
    options.shard = 3;
    options.table = &table;
    options.table_bytes_min = table_bytes_min;
    auto opened = Shard::open(device, options, &report);
    if (!opened.ok()) return opened.status();
    shard = *std::move(opened);
    return {};
  }
  Status ask(const AttributeRequest& what) {
    std::string record;
    const Status asked = table.apply(what, &record).status();
    shard->add_record(record);
    return asked;
  }
  // The works that there are, one after the other. The first failure.
  Status work() {
    for (;;) {
      std::unique_ptr<Work> next = shard->next_commit();
      if (next == nullptr) next = shard->next_background();
      if (next == nullptr) return shard->health();
      next->run();
      SWALE_RETURN_IF_ERROR(shard->finish(std::move(next)));
    }
  }
};

// What a later job finds, which changes nothing.
inline Status read(io::Device& device, Logged* found) {
  found->view = std::make_unique<io::OverlayDevice>(device);
  return found->open(*found->view);
}

// One change, with its second half if there is one, and their records.
inline void any_change(Rng& rng, uint64_t number, Logged* logged) {
  AttributeTable& table = logged->table;
  std::string record;
  const AttributeRequest what = any_request(rng, number);
  if (rng.chance(1, 12)) {
    rng.chance(1, 2) ? table.refuse_puts(what.file, &record) : table.allow_puts(what.file, &record);
    logged->shard->add_record(record);
    return;
  }
  const auto applied = table.apply(what, &record);
  logged->shard->add_record(record);
  if (!applied.ok() || applied->follow_up == FollowUp::kNone || rng.chance(1, 3)) return;
  record.clear();
  static_cast<void>(table.followed(what, applied->follow_up, applied->answer.attributes.generation,
                                   std::string(rng.below(100), 'r'), &record));
  logged->shard->add_record(record);
}

}  // namespace swale::meta::attributes_test
