#include "imd/optimize/optimizer.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/contain.h"
#include "base/entropy.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/processors.h"
#include "base/sealed_document.h"
#include "imd/format/generation.h"
#include "imd/optimize/freed_source.h"
#include "imd/optimize/pass_choice.h"
#include "imd/optimize/pass_ranks.h"
#include "imd/optimize/stripe_pipeline.h"
#include "imd/optimize/stripe_reader.h"
#include "imd/optimize/throttle.h"
#include "imd/read/reader_clusters.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"
#include "imd/read/reader_values.h"
#include "imd/write/writer.h"
#include "net/job/job.h"
#include "net/meeting/bootstrap.h"
#include "run/ordered_records.h"

namespace swale::imd {
namespace {

constexpr size_t kWriterMemoryMax = 64 * kMiB;
constexpr size_t kWriterMemoryMaxOfRate = 16 * kMiB;  // so that it is not written in long bursts
constexpr size_t kRunBytesMax = 32 * kMiB;            // two of them are in memory
constexpr size_t kRunBytesMaxOfRate = 2 * kMiB;
constexpr size_t kReadsInFlight = 16;
constexpr size_t kReadsInFlightOfRate = 1;
constexpr uint64_t kStripesMax = uint64_t{1} << 20;
// A stripe with what sorts it stays in a core's caches. If runs must be read again for each, it is as long as
// memory permits.
constexpr uint64_t kStripeBytesMax = 2 * kMiB;
constexpr uint64_t kBytesPerRecord = SeriesMaker::kBytesPerRecord + 16;

void remove_tree(io::Device& device, const std::string& path);

void empty_folder(io::Device& device, const std::string& path) {
  const Result<std::vector<std::string>> names = device.list(path);
  if (!names.ok()) return;
  for (const std::string& name : *names) remove_tree(device, fmt::format("{}/{}", path, name));
}

void remove_or_tell(io::Device& device, const std::string& path) {
  const Status removed = device.remove(path);
  if (!removed.ok() && removed.code() != Code::kNotFound) log_warn("{}", removed.message());
}

// Files first, then the folder that they were in. Whatever cannot be removed is only told: nothing refers to
// it.
void remove_tree(io::Device& device, const std::string& path) {
  empty_folder(device, path);
  remove_or_tell(device, path);
}

uint64_t content_bytes(const EpochEntry& epoch) { return epoch.data_bytes + epoch.large.bytes; }

class Pass {
 public:
  Pass(io::Device& device, const std::string& directory, const OptimizeOptions& options)
      : options_(options), files_{device, directory, {}, counters_} {}

  Result<OptimizeReport> run();

 private:
  Status run_on_ranks();
  Status decide();
  Status choose();
  Status learn();
  Status follow_order(Bytes order);
  void plan();
  Status make_cluster();
  // What it has written, epoch by epoch.
  Result<std::vector<RecordTally>> write_series(Writer& writer);
  SeriesLayout series_layout() const {
    return manifest_.layout.compression != Codec::kNone ? SeriesLayout::kColumns : SeriesLayout::kRows;
  }
  // To be compressed, and on several ranks, series go through memtables, as all other records do.
  bool by_memtables() const { return manifest_.layout.compression != Codec::kNone || ranks_->size() > 1; }
  Status append(Writer& writer, SeriesBatch& batch);
  Status append_run(Writer& writer);
  bool is_long(const run::OrderedRecords& run) const;
  SeriesMaker::ResolveFn resolve(ValueReader& values) const;
  StripePipeline::Params pipeline_params(const StripeReader& reader) const;
  Status compare(std::span<const RecordTally> tallies) const;
  Status commit();
  void remove_dead(uint32_t below);
  void take_back();
  void remove_logs(const std::function<bool(uint32_t)>& goes);
  std::string folder() const { return cluster_folder(files_.directory, order_.number); }

  const OptimizeOptions& options_;
  ReadCounters counters_;
  const ReaderFiles files_;
  std::unique_ptr<net::Job> own_job_;
  std::optional<PassRanks> ranks_;
  PassOrder order_;
  Manifest manifest_;
  ClusterList list_;  // as it is, then as it will be
  std::vector<EpochNumber> epochs_;
  std::vector<FreedSource> sources_;  // clusters that are replaced, and have what no log has
  std::optional<io::LockFile> lock_;
  std::optional<store::JobClaim> claim_;
  std::unique_ptr<run::OrderedRecords> run_;  // that is being filled
  OptimizeReport report_;
};

Result<OptimizeReport> Pass::run() {
  if (options_.job == nullptr) {
    net::JobOptions of_one;
    of_one.transport = "loopback";
    SWALE_ASSIGN_OR_RETURN(own_job_, net::Job::open(net::solo_bootstrap(), of_one));
  }
  ranks_.emplace(own_job_ ? *own_job_ : *options_.job);
  const Status made = run_on_ranks();
  const Status closed = own_job_ ? own_job_->close() : Status();
  SWALE_RETURN_IF_ERROR(made);
  SWALE_RETURN_IF_ERROR(closed);
  return report_;
}

Status Pass::run_on_ranks() {
  SWALE_RETURN_IF_ERROR(
      ranks_->same(fmt::format("{} --memory {} --rate {}{}", files_.directory, options_.memory_bytes,
                               options_.rate_bytes_per_s, options_.full ? " --full" : ""),
                   "options"));
  const Status decided = contain([&] { return ranks_->is_first() ? decide() : Status(); });
  SWALE_RETURN_IF_ERROR(ranks_->agree(decided));
  Status made = learn();
  if (made.ok() && order_.number == 0) return {};
  if (made.ok()) made = contain([&] { return make_cluster(); });
  if (made.ok()) made = ranks_->agree(contain([&] { return ranks_->is_first() ? commit() : Status(); }));
  if (made.ok()) report_.number = order_.number;
  if (claim_) {
    static_cast<void>(contain([&] { made.ok() ? remove_dead(order_.number) : take_back(); }));
  }
  return made;
}

// The first rank: which epochs are copied, in place of which clusters, under which number.
Status Pass::decide() {
  SWALE_RETURN_IF_ERROR(load_manifest(files_.device, files_.directory).status());
  SWALE_RETURN_IF_ERROR(refuse_cluster(files_.device, files_.directory));
  SWALE_RETURN_IF_ERROR(io::make_directories(files_.device, clusters_folder(files_.directory)));
  const io::LockRequest request{.job = hex16(random_number()), .lease = options_.lease};
  SWALE_ASSIGN_OR_RETURN(
      lock_,
      io::LockFile::acquire(files_.device, clusters_folder(files_.directory) + "/optimize.lock", request));
  SWALE_ASSIGN_OR_RETURN(manifest_, load_manifest(files_.device, files_.directory));
  SWALE_RETURN_IF_ERROR(choose());
  plan();
  if (order_.epochs_left + epochs_.size() < std::max<uint64_t>(options_.epochs_min, 1)) return {};
  if (options_.approve) SWALE_RETURN_IF_ERROR(options_.approve(report_.plan));
  SWALE_ASSIGN_OR_RETURN(claim_, store::JobClaim::next(files_.device, cluster_claims(files_.directory)));
  order_.number = claim_->number();
  for (const EpochNumber epoch : epochs_) order_.epochs.push_back({epoch, manifest_.epochs[epoch].epoch_id});
  for (const FreedSource& source : sources_) order_.sources.push_back(source.cluster->entry().number);
  remove_dead(claim_->number());
  return {};
}

Status Pass::choose() {
  const PassRules rules{.full = options_.full,
                        .epochs_min = options_.epochs_min,
                        .memory_bytes = options_.memory_bytes,
                        .ranks = ranks_->size()};
  SWALE_ASSIGN_OR_RETURN(PassChoice choice, choose_epochs(files_, manifest_, rules));
  list_ = std::move(choice.list);
  epochs_ = std::move(choice.epochs);
  sources_ = std::move(choice.sources);
  report_.plan.epochs_lost = choice.epochs_lost;
  order_.epochs_left = choice.epochs_left;
  return {};
}

// The other ranks: what the first has decided, and what they need for it.
Status Pass::learn() {
  SWALE_ASSIGN_OR_RETURN(const std::string order, ranks_->from_first(order_.encode()));
  if (ranks_->size() == 1) return {};
  const Status learnt = contain([&] { return ranks_->is_first() ? Status() : follow_order(order); });
  return ranks_->agree(learnt);
}

Status Pass::follow_order(Bytes order) {
  SWALE_ASSIGN_OR_RETURN(order_, PassOrder::decode(order));
  if (order_.number == 0) return {};
  SWALE_ASSIGN_OR_RETURN(manifest_, load_manifest(files_.device, files_.directory));
  for (const ClusterEntry::Epoch& epoch : order_.epochs) {
    if (manifest_.find_epoch(epoch.epoch, epoch.epoch_id) == nullptr) {
      return error(
          Code::kAborted, Scope::kOperation,
          "{}: epoch {} was dropped or rewritten meanwhile; nothing was changed. Run the command again",
          files_.directory, epoch.epoch);
    }
    epochs_.push_back(epoch.epoch);
  }
  plan();
  if (order_.sources.empty()) return {};
  SWALE_ASSIGN_OR_RETURN(list_, load_clusters(files_.device, files_.directory));
  for (const uint32_t number : order_.sources) {
    const auto entry = std::ranges::find(list_.clusters, number, &ClusterEntry::number);
    if (entry == list_.clusters.end())
      return corruption("{}: the list of clusters has no cluster {}, which rank 0 has found",
                        files_.directory, number);
    sources_.push_back({Cluster::as_listed(files_, *entry)});
  }
  return {};
}

// What it takes to copy them.
void Pass::plan() {
  OptimizePlan& plan = report_.plan;
  plan.epochs = epochs_.size();
  plan.epochs_left = order_.epochs_left;
  for (const EpochNumber number : epochs_) {
    const EpochEntry& epoch = manifest_.epochs[number];
    plan.records += epoch.records;
    plan.data_bytes += content_bytes(epoch);
  }
  // A key that is in one epoch only has a series of its own: its head, its sketch entry, the record's.
  constexpr uint64_t kOverheadBytes = 12;
  constexpr uint64_t kFixedBytes = 256 * kKiB;
  plan.cluster_bytes_max =
      plan.epochs == 0 ? 0
                       : plan.data_bytes + plan.data_bytes / 50 + plan.records * kOverheadBytes + kFixedBytes;
}

// A rank that fails destroys its writer, which tells the others.
Status Pass::make_cluster() {
  WriterOptions options;
  options.memory_bytes = std::min(options_.memory_bytes / 4,
                                  options_.rate_bytes_per_s == 0 ? kWriterMemoryMax : kWriterMemoryMaxOfRate);
  if (manifest_.layout.compression != Codec::kNone) options.compression = manifest_.layout.compression;
  options.lease = options_.lease;
  options.gives_runs = !by_memtables();
  options.log_place = LogPlace::kBeside;
  SWALE_ASSIGN_OR_RETURN(auto writer,
                         Writer::open(ranks_->job(), files_.device, folder(), Create::kExclusive, options));
  std::vector<RecordTally> tallies;
  const Status written = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(tallies, write_series(*writer));
    return {};
  });
  if (!written.ok()) writer.reset();
  SWALE_RETURN_IF_ERROR(ranks_->agree(written));
  tallies.push_back({report_.series, report_.bytes, report_.stripes});
  SWALE_ASSIGN_OR_RETURN(tallies, ranks_->sum(tallies));
  report_.series = tallies.back().records;
  report_.bytes = tallies.back().data_bytes;
  report_.stripes = tallies.back().digest;
  tallies.pop_back();
  SWALE_RETURN_IF_ERROR(compare(tallies));
  SWALE_RETURN_IF_ERROR(writer->epoch_end(0, 0));
  return writer->close();
}

// Stripes take half of the memory at most; only one that has more of one key takes more.
StripePipeline::Params Pass::pipeline_params(const StripeReader& reader) const {
  StripePipeline::Params params{.epochs = static_cast<uint32_t>(epochs_.size()), .layout = series_layout()};
  if (reader.by_hash()) {
    params.threads = options_.threads != 0 ? options_.threads : usable_processors();
    params.slots = params.threads + 2;
  } else {
    params.slots = 1;
  }
  uint64_t stripe_bytes = options_.memory_bytes / 2 / params.slots;
  if (reader.by_hash()) stripe_bytes = std::min(stripe_bytes, kStripeBytesMax);
  params.range = ranks_->range();
  const uint64_t bytes = (report_.plan.data_bytes + report_.plan.records * kBytesPerRecord) / ranks_->size();
  params.stripes = std::clamp<uint64_t>(bytes / stripe_bytes + 1, 1, kStripesMax);
  return params;
}

SeriesMaker::ResolveFn Pass::resolve(ValueReader& values) const {
  if (manifest_.layout.values() != run::ValueRule::kPaged) return {};
  return [&](uint32_t index, Bytes key, Bytes stored) -> Result<std::string> {
    SWALE_ASSIGN_OR_RETURN(
        const auto place,
        ValueReader::place_of(manifest_, manifest_.epochs[epochs_[index]], key, stored, files_.directory));
    return values.read(place);
  };
}

Result<std::vector<RecordTally>> Pass::write_series(Writer& writer) {
  PartitionCache partitions(files_, manifest_);
  point_sources(manifest_, epochs_, sources_);
  const bool slowly = options_.rate_bytes_per_s != 0;
  SWALE_ASSIGN_OR_RETURN(
      const auto reader,
      StripeReader::open(files_, manifest_, partitions, epochs_, sources_, options_.memory_bytes / 8,
                         slowly ? kReadsInFlightOfRate : kReadsInFlight, ranks_->range()));
  ValueReader values(files_);
  StripePipeline::Params params = pipeline_params(*reader);
  params.resolve = resolve(values);
  report_.stripes = params.stripes;
  SWALE_ASSIGN_OR_RETURN(const auto pipeline, StripePipeline::start(*reader, params));
  Throttle throttle(options_.rate_bytes_per_s / ranks_->size(), *options_.clock, options_.pause);
  uint64_t done = 0;
  for (;;) {
    SWALE_ASSIGN_OR_RETURN(SeriesBatch* const batch, pipeline->next());
    if (batch == nullptr) break;
    SWALE_RETURN_IF_ERROR(append(writer, *batch));
    done += batch->records;
    if (options_.progress && ranks_->is_first())
      options_.progress(done, std::max(done, report_.plan.records / ranks_->size()));
    if (!throttle.take(batch->read_bytes + batch->bytes))
      return error(Code::kAborted, Scope::kOperation, "{}: the pass was told to end; nothing was changed",
                   files_.directory);
  }
  if (run_) SWALE_RETURN_IF_ERROR(append_run(writer));
  SWALE_RETURN_IF_ERROR(reader->finish());
  return pipeline->tallies();
}

// As runs of their own: the longer they are, the fewer pieces a slice has.
Status Pass::append(Writer& writer, SeriesBatch& batch) {
  report_.series += batch.series;
  report_.bytes += batch.bytes;
  if (by_memtables()) {
    for (const auto& chunk : batch.chunks) {
      SWALE_RETURN_IF_ERROR(chunk->walk(
          [&](const run::RecordView& record) { return writer.append(record.key, record.value); }));
    }
    return {};
  }
  for (auto& chunk : batch.chunks) {
    if (run_ && (is_long(*run_) || !run_->has_room(*chunk))) SWALE_RETURN_IF_ERROR(append_run(writer));
    if (!run_) run_ = std::make_unique<run::OrderedRecords>();
    run_->add(std::move(chunk));
  }
  return {};
}

bool Pass::is_long(const run::OrderedRecords& run) const {
  const size_t bytes_max =
      options_.rate_bytes_per_s == 0 ? std::min(options_.memory_bytes / 8, kRunBytesMax) : kRunBytesMaxOfRate;
  return run.shape().encoded_bytes >= bytes_max || run.memory_bytes() >= 2 * bytes_max;
}

Status Pass::append_run(Writer& writer) {
  if (run_->empty()) return {};
  ++report_.runs;
  return writer.append_run(std::move(run_));
}

// What was written is what the epoch log says, record for record.
Status Pass::compare(std::span<const RecordTally> tallies) const {
  for (size_t i = 0; i < epochs_.size(); ++i) {
    const EpochEntry& epoch = manifest_.epochs[epochs_[i]];
    const RecordTally& found = tallies[i];
    if (found == RecordTally{epoch.records, epoch.data_bytes, epoch.digest}) continue;
    return corruption(
        "{}: epoch {} has {} records of {} bytes with the digest {:016x}, the epoch log says {} of {} with "
        "{:016x}; nothing was changed; run `swale verify`",
        files_.directory, epoch.epoch, found.records, found.data_bytes, found.digest, epoch.records,
        epoch.data_bytes, epoch.digest);
  }
  return {};
}

// Through the folder as it was claimed: one that was removed meanwhile gets no list.
Status Pass::commit() {
  SWALE_ASSIGN_OR_RETURN(const Manifest own, load_manifest(files_.device, folder()));
  if (own.epochs.size() != 1)
    return corruption("{}: has {} epochs; expected the one that was committed", folder(), own.epochs.size());
  ClusterEntry entry{.number = claim_->number(),
                     .epoch_id = own.epochs[0].epoch_id,
                     .ranks = ranks_->size(),
                     .series = report_.series,
                     .bytes = report_.bytes,
                     .epochs = order_.epochs,
                     .columns = series_layout() == SeriesLayout::kColumns,
                     .log_place = LogPlace::kBeside};
  list_.generation = claim_->number();
  list_.clusters.push_back(std::move(entry));
  SWALE_ASSIGN_OR_RETURN(const auto anchored, files_.device.anchored(folder()));
  SWALE_RETURN_IF_ERROR(claim_->fence());
  SWALE_RETURN_IF_ERROR(lock_->check());
  const std::string text = list_.encode();
  SWALE_RETURN_IF_ERROR(
      io::replace_file(*anchored, cluster_list_path(files_.directory, claim_->number()), text));
  const Status copied = io::replace_file(files_.device, cluster_list_copy_path(files_.directory), text);
  if (!copied.ok()) log_warn("{}; readers take the list itself", copied.message());
  return {};
}

// What it has made. The folder stays: it is the claim.
void Pass::take_back() {
  empty_folder(files_.device, folder());
  remove_logs([&](uint32_t number) { return number == order_.number; });
}

// The logs beside their folders. Those of a pass that slept may come after its folder has gone.
void Pass::remove_logs(const std::function<bool(uint32_t)>& goes) {
  const std::string all = clusters_folder(files_.directory);
  const Result<std::vector<std::string>> names = files_.device.list(all);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::optional<uint32_t> number = parse_job_folder(name.substr(0, name.find('.')));
    if (number && name.find('.') != std::string::npos && goes(*number))
      remove_or_tell(files_.device, fmt::format("{}/{}", all, name));
  }
}

// Folders and logs of numbers below this one that are in no list: of passes that were killed, and of clusters
// that others have replaced.
void Pass::remove_dead(uint32_t below) {
  const Result<ClusterList> now = load_clusters(files_.device, files_.directory);
  const Result<std::vector<uint32_t>> numbers =
      store::list_jobs(files_.device, cluster_claims(files_.directory));
  if (!numbers.ok() || (!now.ok() && manifest_.has_moved)) return;
  std::set<uint32_t> live;
  if (now.ok()) live.insert(now->generation);
  for (const ClusterEntry& cluster : now.ok() ? now->clusters : list_.clusters) live.insert(cluster.number);
  const auto dead = [&](uint32_t number) { return number < below && !live.contains(number); };
  for (const uint32_t number : *numbers) {
    if (dead(number)) remove_tree(files_.device, cluster_folder(files_.directory, number));
  }
  remove_logs(dead);
}

}  // namespace

Result<OptimizeReport> optimize_directory(io::Device& device, const std::string& directory,
                                          const OptimizeOptions& options) {
  if (options.memory_bytes < kOptimizeMemoryMin) {
    return invalid_argument("{}: {} bytes of memory; a pass needs at least {}", directory,
                            options.memory_bytes, kOptimizeMemoryMin);
  }
  return Pass(device, directory, options).run();
}

}  // namespace swale::imd
