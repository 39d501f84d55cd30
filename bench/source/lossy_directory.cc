// bench_lossy_directory: one rank's part of a lossy directory of a large job, made by the product's own code,
// committed, and read by the product's reader. Reports one line.
//   --directory PATH    replaced
//   --keys N --ranks P  of the rank, and of the job: nodes of 32 ranks, so that keys come by three hops
//   --value BYTES       of a record, beside a key of 8 (40)
// The rank appends N records, and is the home of N keys that other ranks append, in messages of as many keys
// as a rank's stage gives a home at a time. The other ranks do not exist: of the home's keys those are asked
// for that this rank has appended, so that no query looks at another partition.
// Processor time: of the home for a key that comes, of the rank for a record and its table, and of its stage
// for a key that leaves, in messages of which the bytes are counted, too.
#include <algorithm>
#include <vector>

#include "base/rng.h"
#include "bench/arguments.h"
#include "bench/measure.h"
#include "bench/writer_job.h"
#include "imd/format/log_names.h"
#include "imd/read/reader.h"
#include "imd/write/key_stage.h"
#include "imd/write/source_home.h"
#include "imd/write/writer_open.h"
#include "io/fault_device.h"
#include "source/key_message.h"

namespace swale::bench {
namespace {

constexpr size_t kBudgetBytes = 64 * kMiB;
constexpr int32_t kRanksPerNode = 32;
constexpr uint64_t kQueries = 400;

using imd::OpenedDirectory;
using imd::Partition;

// Rank 0 opens the directory; the other ranks say nothing against it.
OpenedDirectory open_alone(const net::Ranks& ranks, io::Device& device, const std::string& directory) {
  imd::WriterOptions options;
  options.format = run::ShuffleFormat::kLossy;
  OpenedDirectory opened =
      take(imd::open_directory(ranks, device, {}, directory, imd::Create::kExclusive, options));
  check(imd::finish_opening(ranks, &opened));
  return opened;
}

imd::MemoryPlan plan_of(int32_t ranks, const run::Layout& layout) {
  imd::MemoryWish wish{.budget_bytes = kBudgetBytes, .ranks = ranks};
  wish.layout = layout;
  const std::vector<int32_t> nodes(static_cast<size_t>(ranks / kRanksPerNode), kRanksPerNode);
  wish.nodes = std::make_shared<const net::NodeMap>(take(net::NodeMap::in_blocks(nodes)));
  wish.route = net::RouteChoice::kThreeHop;
  return take(imd::plan_memory(wish));
}

// A partition and its storage, which does everything at once.
class OnePart {
 public:
  OnePart(OpenedDirectory* opened, int32_t ranks) : opened_(*opened), ranks_(static_cast<uint32_t>(ranks)) {
    const imd::MemoryPlan memory = plan_of(ranks, opened->manifest.layout);
    stage_keys_ = memory.key_stage_bytes / 16;
    check(opened->make_source_home(ranks, memory));
    net::Conversation::Params talk;
    talk.size = ranks;
    partition_ = take(Partition::create(opened->core_params(talk, memory, 1).partition));
    partition_->begin_epoch(opened->first_epoch, imd::epoch_id(opened->job_id, opened->first_epoch));
  }

  void append(Bytes key, Bytes value) {
    const HashChoice home = choose(hash_bytes(key), ranks_);
    while (partition_->append(home.rest, key, value).row == nullptr) {
      if (!partition_->make_room(0)) settle();
    }
    if (home.index == 0) own_.push_back(source::kept_hash(home.rest));
  }
  imd::SourceHome& home() { return *opened_.source_home; }
  // Of this rank, whose home it is.
  std::vector<uint64_t>& own() { return own_; }
  // Keys of one home that a full stage has.
  uint64_t keys_of_message() const { return std::clamp<uint64_t>(stage_keys_ / ranks_, 1, 4'096); }

  void end_epoch() {
    const EpochNumber next = opened_.first_epoch + 1;
    const uint64_t next_id = imd::epoch_id(opened_.job_id, next);
    partition_->end_epoch(next, next_id);
    check(home().close_epoch(imd::epoch_id(opened_.job_id, opened_.first_epoch), next));
    partition_->make_table();
    settle();
    if (!partition_->durable()) die("the epoch is not durable");
  }
  imd::RecordTally tally() const { return partition_->tally(); }

 private:
  void settle() {
    for (bool busy = true; busy;) {
      busy = false;
      while (auto task = partition_->next_task(0)) {
        task->work();
        partition_->finish_task(*task);
        busy = true;
      }
      while (const auto request = partition_->next_io()) {
        partition_->finish_io(*request, opened_.files->execute(*request));
        busy = true;
      }
    }
    check(partition_->failure());
  }

  OpenedDirectory& opened_;
  const uint32_t ranks_;
  uint64_t stage_keys_ = 0;
  std::unique_ptr<Partition> partition_;
  std::vector<uint64_t> own_;
};

void send(OnePart* part, uint32_t source, std::vector<uint64_t>* hashes) {
  std::sort(hashes->begin(), hashes->end());
  hashes->erase(std::unique(hashes->begin(), hashes->end()), hashes->end());
  std::string message;
  source::encode_key_message(*hashes, &message);
  check(part->home().add_message(source, message));
  hashes->clear();
}

// The keys of the other ranks, and this rank's own.
void send_all(OnePart* part, uint64_t keys, uint32_t ranks) {
  Rng rng(3);
  std::vector<uint64_t> hashes;
  uint32_t source = 1;
  for (uint64_t sent = part->own().size(); sent < keys; ++sent) {
    hashes.push_back(rng.next() >> source::kSourceBits);
    if (hashes.size() < part->keys_of_message() && sent + 1 < keys) continue;
    send(part, source, &hashes);
    source = source + 1 == ranks ? 1 : source + 1;
  }
  for (const uint64_t hash : part->own()) {
    hashes.push_back(hash);
    if (hashes.size() == part->keys_of_message()) send(part, 0, &hashes);
  }
  if (!hashes.empty()) send(part, 0, &hashes);
}

// What the rank's stage does with as many keys.
void stage_all(uint64_t keys, int32_t ranks, const imd::MemoryPlan& memory, nlohmann::json* line) {
  imd::KeyStage stage({.ranks = static_cast<uint32_t>(ranks),
                       .own = PartitionNumber(1),
                       .bytes = memory.key_stage_bytes,
                       .message_bytes_max = memory.key_message_bytes_max()});
  std::string frame(memory.frame_bytes, '\0');
  uint64_t bytes = 0, messages = 0;
  const auto take_frame = [&] {
    const net::Frame full =
        stage.exchange({.data = frame.data(), .capacity = static_cast<uint32_t>(frame.size())});
    for (Bytes rest = full.payload(); !rest.empty(); ++messages)
      bytes += imd::Batcher::take_routed(&rest).record.size();
  };
  Rng rng(8);
  const Stopwatch staging;
  for (uint64_t key = 0; key < keys; ++key) {
    while (!stage.has_room() && !stage.make_room()) take_frame();
    stage.push(rng.next());
  }
  while (!stage.finish()) take_frame();
  take_frame();
  (*line)["stage_ns_per_key"] = staging.cpu().total_s() / static_cast<double>(keys) * 1e9;
  (*line)["stage_bytes_per_key"] = static_cast<double>(bytes) / static_cast<double>(keys);
  (*line)["stage_keys_per_message"] = static_cast<double>(keys) / static_cast<double>(messages);
}

std::string key_of(uint64_t number) {
  std::string key;
  append_u64(&key, number);
  return key;
}

struct Cold {
  double table_bytes = 0;  // of a query, from files of tables
  double bytes = 0;        // in all, the manifest not among them
  uint64_t queries = 0;
  uint64_t elsewhere = 0;  // others, whose table names a rank that does not exist: kept hashes that collide
};

// Each query by a reader of its own, which has nothing.
Cold query_cold(const std::string& directory, uint64_t keys, uint32_t ranks, size_t value_bytes) {
  io::PosixDevice storage;
  io::FaultDevice device(storage);
  uint64_t of_tables = 0, all = 0;
  device.set_hook([&](const io::Call& call) {
    if (call.kind != io::CallKind::kRead || call.path.find("part-") == std::string::npos) return Status();
    all += call.bytes;
    if (call.path.ends_with(".source")) of_tables += call.bytes;
    return Status();
  });
  Cold cold;
  for (uint64_t number = 0; number < keys && cold.queries < kQueries; ++number) {
    const std::string key = key_of(number);
    if (choose(hash_bytes(key), ranks).index != 0) continue;
    const auto reader = take(imd::Reader::open(device, directory, {}));
    of_tables = all = 0;
    const auto values = reader->get(key, 0);
    if (!values.ok() && ++cold.elsewhere <= 1 + kQueries / 100) continue;
    check(values.status());
    if (values->size() != 1 || values->front().bytes.size() != value_bytes) die("a wrong answer");
    ++cold.queries;
    cold.table_bytes += static_cast<double>(of_tables);
    cold.bytes += static_cast<double>(all);
  }
  if (cold.queries == 0) die("this rank has no key of its own home");
  cold.table_bytes /= static_cast<double>(cold.queries);
  cold.bytes /= static_cast<double>(cold.queries);
  return cold;
}

void run(const std::string& directory, uint64_t keys, int32_t ranks, size_t value_bytes) {
  remove_all(directory);
  io::PosixDevice device;
  const net::Ranks alone{0, ranks, [](Bytes mine) -> Result<std::string> { return std::string(mine); }};
  nlohmann::json line = {{"keys", keys}, {"ranks", ranks}};
  {
    OpenedDirectory opened = open_alone(alone, device, directory);
    stage_all(keys, ranks, plan_of(ranks, opened.manifest.layout), &line);
    OnePart part(&opened, ranks);
    const Stopwatch appending;
    const std::string value(value_bytes, 'v');
    for (uint64_t number = 0; number < keys; ++number) part.append(key_of(number), value);
    const double append_s = appending.cpu().total_s();
    const Stopwatch coming;
    send_all(&part, keys, static_cast<uint32_t>(ranks));
    line["take_ns_per_key"] = coming.cpu().total_s() / static_cast<double>(keys) * 1e9;
    const Stopwatch ending;
    part.end_epoch();
    line["rank_ns_per_record"] = (append_s + ending.cpu().total_s()) / static_cast<double>(keys) * 1e9;
    line["keys_per_message"] = part.keys_of_message();
    imd::Committer committer = opened.committer(system_clock());
    check(committer.commit({.epoch = opened.first_epoch, .tally = part.tally()},
                           imd::epoch_id(opened.job_id, opened.first_epoch)));
    committer.finish();
    check(opened.files->trim());
    uint64_t bytes = 0;
    for (const auto& [name, path] :
         {std::pair{"data_bytes", imd::data_log_path(directory, opened.files->log())},
          std::pair{"index_bytes", imd::index_log_path(directory, opened.files->log())},
          std::pair{"table_bytes", imd::table_log_path(directory, opened.files->log())}}) {
      const uint64_t size = take(take(device.open(path, io::OpenMode::kRead))->size());
      line[name] = size;
      bytes += size;
    }
    line["bytes_ratio"] = static_cast<double>(bytes) / static_cast<double>(keys * (8 + value_bytes));
  }
  const Cold cold = query_cold(directory, keys, static_cast<uint32_t>(ranks), value_bytes);
  line["cold_queries"] = cold.queries;
  line["cold_queries_elsewhere"] = cold.elsewhere;
  line["cold_table_bytes"] = cold.table_bytes;
  line["cold_bytes"] = cold.bytes;
  report(line);
  remove_all(directory);
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  swale::bench::Arguments arguments(argc, argv);
  const std::string directory = arguments.text("directory");
  const uint64_t keys = arguments.number("keys", 7'812'500);
  const auto ranks = static_cast<int32_t>(arguments.number("ranks", 4096));
  const uint64_t value_bytes = arguments.number("value", 40);
  arguments.expect_no_more();
  if (ranks < 64 || ranks % 32 != 0) swale::bench::die("--ranks: 64 or more, in nodes of 32");
  swale::bench::run(directory, keys, ranks, value_bytes);
}
