#include "meta/index/testing/shard_model.h"

#include <algorithm>
#include <deque>

namespace swale::meta::model {

void Oracle::write(FileModel* file, const Extent& extent) {
  for (uint64_t i = 0; i < extent.length; ++i)
    file->bytes[extent.offset + i] = {extent.place.log, extent.place.address + i};
  file->size.known = true;
  file->size.size = std::max(file->size.size, extent.offset + extent.length);
}

void Oracle::apply(const Operation& operation) {
  FileModel& file = files_[operation.file];
  switch (operation.kind) {
    case Operation::Kind::kPut: {
      size_t done = 0;
      for (size_t i = 0; i <= operation.runs.size(); ++i) {
        const size_t until = i < operation.runs.size() ? operation.run_at[i] : operation.extents.size();
        for (; done < until; ++done) write(&file, operation.extents[done]);
        if (i == operation.runs.size()) break;
        const uint64_t blocks = blocks_of(operation.runs[i]);
        for (uint64_t block = 0; block < blocks; ++block) write(&file, block_at(operation.runs[i], block));
      }
      break;
    }
    case Operation::Kind::kRemove:
      file = FileModel{.bytes = {}, .size = {}, .removals = file.removals + 1};
      break;
    case Operation::Kind::kTruncate:
      if (operation.generation <= file.size.generation) break;
      for (uint64_t i = operation.size; i < kBytes; ++i) file.bytes[i] = {};
      file.size = {true, operation.generation, operation.size};
      break;
    case Operation::Kind::kRelocate:
      for (FileModel& each : files_) {
        for (Byte& byte : each.bytes) {
          const Relocation& rule = operation.relocation;
          if (byte.log == rule.from && byte.address >= rule.begin && byte.address < rule.end)
            byte = {rule.to.log, rule.to.address + (byte.address - rule.begin)};
        }
      }
      break;
  }
}

ShardOptions small_options(Rng* rng) {
  ShardOptions options;
  options.directory = "/store";
  options.shard = 7;
  options.write_buffer_entries = 20 + rng->below(100);
  options.compression_buffer_bytes = 500 + rng->below(8000);
  options.cache_bytes = 1;
  options.log_bytes_max = 1000 + rng->below(20000);
  options.relocations_retire = 1 + rng->below(8);
  options.layers_max = static_cast<unsigned>(1 + rng->below(4));
  options.run_blocks_min = static_cast<unsigned>(2 + rng->below(6));
  options.keep_runs = !rng->chance(1, 8);
  options.cluster_reads = rng->chance(1, 2);
  options.codec = rng->chance(1, 2) ? BlockCodec::kAuto
                                    : (rng->chance(1, 2) ? BlockCodec::kFrame : BlockCodec::kDeltaZstd);
  return options;
}

namespace {

class Test {
 public:
  Test(uint64_t seed, const Faults& faults)
      : rng_(seed), faults_(faults), faulty_(disk_), options_(small_options(&rng_)) {
    static_cast<void>(disk_.make_directory("/store"));
    static_cast<void>(disk_.sync_directory("/"));
  }

  Report run(uint64_t steps) {
    open();
    for (report_.steps = 0; report_.steps < steps && report_.problem.empty(); ++report_.steps) step();
    if (report_.problem.empty()) settle();
    for (size_t file = 0; file < kFiles && report_.problem.empty(); ++file) check_all(file);
    report_.calls = calls_ + faulty_.calls();
    return report_;
  }

 private:
  FileId id_after(size_t file, uint64_t removals) const { return {file % 2, 1 + kFiles * removals + file}; }
  // As lookups see it; and as the next operation does, after removals that are not durable yet.
  FileId id_of(size_t file) const { return id_after(file, oracle_.file(file).removals); }
  FileId next_id_of(size_t file) const {
    const auto removes = [&](const auto& each) {
      return each.second.kind == Operation::Kind::kRemove && each.second.file == file;
    };
    const auto pending = std::count_if(pending_.begin(), pending_.end(), removes);
    return id_after(file, oracle_.file(file).removals + static_cast<uint64_t>(pending));
  }

  void problem(const std::string& what) {
    if (report_.problem.empty()) report_.problem = fmt::format("step {}: {}", report_.steps, what);
  }

  void open() {
    calls_ += faulty_.calls();
    faulty_.clear();
    full_ = false;
    if (faults_.lying_sync)
      faulty_.inject({.action = io::FaultAction::kDrop, .kind = io::CallKind::kSync, .from_then_on = true});
    RecoveryReport recovery;
    auto shard = Shard::open(faulty_, options_, &recovery);
    if (!shard.ok()) return problem("open: " + shard.status().to_string());
    shard_ = *std::move(shard);
    report_.torn += recovery.torn_bytes > 0 ? 1 : 0;
    // Groups that were on their way may or may not have arrived; those that were acknowledged have.
    if (shard_->durable_group() < durable_) return problem("an acknowledged group is missing");
    while (!pending_.empty() && pending_.front().first <= shard_->durable_group()) {
      apply(pending_.front().second);
      pending_.pop_front();
    }
    pending_.clear();
    durable_ = shard_->durable_group();
    if (faults_.failing_call != 0 && !failed_) {
      failed_ = true;
      faulty_.inject({.nth = faults_.failing_call, .from_then_on = true});
    }
    if (!shard_->consistent()) return problem("the parts of the shard do not agree after an opening");
    for (size_t file = 0; file < kFiles && report_.problem.empty(); ++file) check_all(file);
  }

  void apply(const Operation& operation) {
    oracle_.apply(operation);
    if (faults_.wrong_oracle && operation.kind == Operation::Kind::kPut && !operation.extents.empty()) {
      Operation wrong = operation;
      wrong.extents.resize(1);
      wrong.extents[0].place.address += 1;
      wrong.runs.clear(), wrong.run_at.clear();
      oracle_.apply(wrong);
    }
  }

  void crash() {
    ++report_.crashes;
    commit_.reset();
    background_.reset();
    shard_.reset();
    disk_.crash(rng_, rng_.chance(1, 2)   ? io::CrashMode::kDropAll
                      : rng_.chance(1, 2) ? io::CrashMode::kTearPages
                                          : io::CrashMode::kReorder);
    options_ = small_options(&rng_);  // another job may have other options
    open();
  }

  // Power fails in the middle of it: a write is torn, or a later call does not come any more.
  void cut(std::unique_ptr<Work>* work) {
    if (rng_.chance(1, 2)) {
      faulty_.inject(
          {.action = io::FaultAction::kTear, .kind = io::CallKind::kWrite, .position = rng_.below(400)});
      faulty_.inject({.kind = io::CallKind::kSync, .from_then_on = true});
    } else {
      faulty_.inject({.nth = 1 + rng_.below(8), .from_then_on = true});
    }
    (*work)->run();
    crash();
  }

  void finish(std::unique_ptr<Work>* work) {
    if (rng_.below(500) < faults_.crash_percent) return cut(work);
    (*work)->run();
    const bool commits = (*work)->kind() == WorkKind::kCommit;
    const uint64_t rules = shard_->state().relocations;
    const Status status = shard_->finish(std::move(*work));
    if (shard_->state().relocations < rules) ++report_.retired;
    if (!shard_->consistent()) return problem("the parts of the shard do not agree");
    if (!status.ok() && faults_.full_disk && status.code() == Code::kNoSpace) return no_space(commits);
    if (!status.ok()) {
      if (faults_.failing_call == 0) return problem("finish: " + status.to_string());
      if (shard_->health().ok()) return problem("a failure left the shard writable: " + status.to_string());
      return crash();
    }
    while (!pending_.empty() && pending_.front().first <= shard_->durable_group()) {
      apply(pending_.front().second);
      pending_.pop_front();
    }
    durable_ = shard_->durable_group();
  }

  // Groups that are not durable are void; the shard goes on.
  void no_space(bool commits) {
    if (!shard_->health().ok()) return problem("a full disk made the shard read-only");
    if (!commits) return;
    ++report_.voided;
    if (faults_.forgets_void) {
      for (const auto& [group, operation] : pending_) apply(operation);
    }
    pending_.clear();
  }

  void fill_or_empty_disk() {
    full_ = !full_;
    if (!full_) return faulty_.clear();
    const Status none = error(Code::kNoSpace, Scope::kFile, "no space left on the device");
    faulty_.inject({.action = io::FaultAction::kTear,
                    .kind = io::CallKind::kWrite,
                    .nth = 1 + rng_.below(3),
                    .from_then_on = true,
                    .status = none,
                    .position = rng_.below(300)});
    if (rng_.chance(1, 2))
      faulty_.inject({.kind = io::CallKind::kOpen, .from_then_on = true, .status = none});
  }

  void settle() {
    if (full_) fill_or_empty_disk();
    if (commit_) finish(&commit_);
    if (report_.problem.empty() && background_) finish(&background_);
    if (!report_.problem.empty() || !shard_) return;
    if (const Status status = shard_->commit(); !status.ok()) {
      if (faults_.failing_call == 0) return problem("commit: " + status.to_string());
      return crash();
    }
    while (!pending_.empty() && pending_.front().first <= shard_->durable_group()) {
      apply(pending_.front().second);
      pending_.pop_front();
    }
    durable_ = shard_->durable_group();
  }

  void step() {
    if (rng_.below(10000) < faults_.crash_percent) return crash();
    if (faults_.full_disk && rng_.chance(1, full_ ? 15 : 40)) fill_or_empty_disk();
    const uint64_t dice = rng_.below(100);
    if (dice < 40) return put();
    if (dice < 42) return truncate();
    if (dice < 43) return relocate();
    if (dice < 60) {
      if (commit_) return finish(&commit_);
      commit_ = shard_->next_commit();
      return;
    }
    if (dice < 75) {
      if (background_) return finish(&background_);
      background_ = shard_->next_background();
      return;
    }
    if (dice == 75 && rng_.chance(1, 10)) {
      settle();
      if (!report_.problem.empty() || background_) return;
      const Status status = shard_->drain();
      if (!status.ok() && faults_.failing_call == 0) problem("drain: " + status.to_string());
      if (!status.ok() && report_.problem.empty()) crash();
      return;
    }
    if (dice < 85) return check_ranges();
    if (dice < 92) return check_query();
    return check_scan(rng_.below(kFiles));
  }

  void submit(Operation operation) {
    const RequestKey key{1 + rng_.below(3), ++number_};
    const FileId id = next_id_of(operation.file);
    const auto send = [&]() -> Result<uint64_t> {
      if (operation.kind == Operation::Kind::kPut) {
        const Put put{id, operation.extents, operation.runs, operation.run_at};
        return shard_->put(key, std::span(&put, 1));
      }
      if (operation.kind == Operation::Kind::kRelocate) return shard_->relocate(key, operation.relocation);
      if (operation.kind == Operation::Kind::kRemove) return shard_->remove(key, id, operation.generation);
      return shard_->truncate(key, id, operation.size, operation.generation);
    };
    const auto group = send();
    if (!group.ok()) {
      if (group.status().code() == Code::kNoSpace && faults_.full_disk) {
        ++report_.refused;
      } else if (group.status().code() != Code::kBusy && faults_.failing_call == 0) {
        problem("put: " + group.status().to_string());
      }
      return;
    }
    if (*group < durable_) return problem("a put joined a group that is over");
    if (!shard_->consistent()) return problem("the parts of the shard do not agree after a put");
    if (rng_.chance(1, 8)) {  // a retry changes nothing
      const auto again = send();
      if (again.ok() && *again < *group) problem("a retry was acknowledged too early");
    }
    pending_.emplace_back(*group, std::move(operation));
    put_dead(rng_.below(kFiles));
  }

  // By the handle of a file that was removed: also if the removal is not durable yet.
  void put_dead(size_t file) {
    const FileId id = next_id_of(file);
    if (id.low <= kFiles) return;
    const Extent one = extent();
    const Put put{{id.high, id.low - kFiles}, std::span(&one, 1), {}, {}};
    const Code code = shard_->put({}, std::span(&put, 1)).status().code();
    if (code != Code::kNotFound && shard_->health().ok() && code != Code::kBusy && code != Code::kNoSpace)
      problem("a put by the handle of a removed file was not refused with kNotFound");
  }

  Place place() { return {static_cast<LogId>(rng_.below(4)), rng_.below(2000)}; }

  Extent extent() {
    const uint64_t offset = rng_.below(kBytes);
    const uint64_t most = rng_.chance(1, 20) ? kBytes : 24;
    return {offset, 1 + rng_.below(std::min(most, kBytes - offset)), place()};
  }

  bool run(Run* out) {
    Run run;
    run.length = 1 + rng_.below(6);
    run.place = place();
    uint64_t span = run.length;
    const auto levels = static_cast<uint32_t>(1 + rng_.below(kRunLevels));
    const bool shaped = rng_.chance(1, 2);  // of few shapes, so that runs share layers
    for (uint32_t l = 0; l < levels; ++l) {
      const uint64_t count = 2 + rng_.below(l == 0 ? 20 : 5);
      const uint64_t stride =
          shaped ? std::max(span, uint64_t{8} << (2 * l + 1)) : span + rng_.below(l == 0 ? 20 : 60);
      if (span + (count - 1) * stride >= kBytes) break;
      const uint64_t address = rng_.chance(1, 2) ? run.length * (l + 1) : rng_.below(200);
      run.level[run.levels++] = {count, stride, address};
      span += (count - 1) * stride;
    }
    if (run.levels == 0) return false;
    run.offset = rng_.below(kBytes - span + 1);
    if (shaped) run.offset -= run.offset % 8;
    *out = run;
    return valid(run);
  }

  void put() {
    Operation operation;
    operation.file = rng_.below(kFiles);
    const uint64_t extents = rng_.chance(1, 3) ? 0 : rng_.below(rng_.chance(1, 10) ? 60 : 6);
    for (uint64_t i = 0; i < extents; ++i) operation.extents.push_back(extent());
    for (uint64_t i = rng_.below(3); i > 0; --i) {
      Run one;
      if (run(&one)) operation.runs.push_back(one);
    }
    for (size_t i = 0; i < operation.runs.size(); ++i)
      operation.run_at.push_back(rng_.below(operation.extents.size() + 1));
    std::sort(operation.run_at.begin(), operation.run_at.end());
    submit(std::move(operation));
  }

  void truncate() {
    Operation operation;
    operation.kind = rng_.chance(1, 4) ? Operation::Kind::kRemove : Operation::Kind::kTruncate;
    operation.file = rng_.below(kFiles);
    operation.size = operation.kind == Operation::Kind::kRemove ? 0 : rng_.below(kBytes + 1);
    generation_ += rng_.below(3);
    operation.generation = generation_;
    submit(std::move(operation));
  }

  void relocate() {
    if (++relocations_ > 40) return;
    Operation operation;
    operation.kind = Operation::Kind::kRelocate;
    operation.relocation.from = static_cast<LogId>(rng_.below(4));
    operation.relocation.to = place();
    if (rng_.chance(1, 2)) {
      operation.relocation.begin = rng_.below(1000);
      operation.relocation.end = operation.relocation.begin + rng_.below(1000);
    }
    submit(std::move(operation));
  }

  // What a range of the model is, with its extents in one piece as far as they continue each other.
  bool right(size_t file, uint64_t begin, uint64_t end, std::span<const Extent> extents) {
    ++report_.checks;
    const FileModel& model = oracle_.file(file);
    uint64_t at = begin;
    for (const Extent& extent : extents) {
      if (extent.offset < at || extent.length == 0 || extent.offset + extent.length > end) {
        problem(fmt::format("file {}: extent {}+{} is out of order or range [{}, {})", file, extent.offset,
                            extent.length, begin, end));
        return false;
      }
      for (; at < extent.offset; ++at) {
        if (model.bytes[at].log != kHoleLog) return wrong(file, at, {});
      }
      for (uint64_t i = 0; i < extent.length; ++i, ++at) {
        const Byte found{extent.place.log, extent.place.address + i};
        if (model.bytes[at] != found) return wrong(file, at, found);
      }
    }
    for (; at < end; ++at) {
      if (model.bytes[at].log != kHoleLog) return wrong(file, at, {});
    }
    return true;
  }
  bool wrong(size_t file, uint64_t at, const Byte& found) {
    const Byte& expected = oracle_.file(file).bytes[at];
    problem(fmt::format("file {}, byte {}: expected log {} address {}, found log {} address {}", file, at,
                        static_cast<int32_t>(expected.log), expected.address, static_cast<int32_t>(found.log),
                        found.address));
    return false;
  }

  void check_ranges() {
    std::vector<Range> ranges;
    std::vector<size_t> files;
    for (uint64_t i = 1 + rng_.below(40); i > 0; --i) {
      const uint64_t offset = rng_.below(kBytes);
      const uint64_t length =
          rng_.below(std::min<uint64_t>(kBytes - offset, rng_.chance(1, 10) ? kBytes : 12) + 1);
      files.push_back(rng_.below(kFiles));
      ranges.push_back({id_of(files.back()), offset, length});
    }
    const size_t pieces_max = rng_.chance(1, 4) ? 1 + rng_.below(20) : 1'000'000;
    Found found;
    if (const Status status = shard_->lookup(ranges, pieces_max, &found); !status.ok())
      return failed("lookup", status);
    if (!found.resume && found.answered != ranges.size()) return problem("a lookup stopped without a reason");
    for (size_t i = 0; i < found.ends.size(); ++i) {
      const size_t first = i == 0 ? 0 : found.ends[i - 1];
      const uint64_t end = i == found.answered ? *found.resume : ranges[i].offset + ranges[i].length;
      if (!right(files[i], ranges[i].offset, end,
                 std::span(found.extents).subspan(first, found.ends[i] - first)))
        return;
    }
  }

  void failed(const char* what, const Status& status) {
    if (faults_.failing_call == 0) return problem(std::string(what) + ": " + status.to_string());
    crash();
  }

  void check_query() {
    Run query;
    if (!run(&query)) return;
    const size_t file = rng_.below(kFiles);
    std::vector<Run> found;
    if (const Status status =
            shard_->lookup_runs(id_of(file), std::span(&query, 1), 1'000'000, &found, nullptr);
        !status.ok())
      return failed("lookup_runs", status);
    ++report_.checks;
    std::array<Byte, kBytes> answer;
    std::array<bool, kBytes> asked{};
    for (uint64_t i = 0; i < blocks_of(query); ++i) {
      const Extent block = block_at(query, i);
      for (uint64_t b = 0; b < block.length; ++b) asked[block.offset + b] = true;
    }
    for (const Run& part : found) {
      for (uint64_t i = 0; i < blocks_of(part); ++i) {
        const Extent block = block_at(part, i);
        for (uint64_t b = 0; b < block.length; ++b) {
          const uint64_t at = block.offset + b;
          if (at >= kBytes || !asked[at]) return problem(fmt::format("byte {} was not asked for", at));
          if (answer[at].log != kHoleLog) return problem(fmt::format("byte {} was answered twice", at));
          answer[at] = {block.place.log, block.place.address + b};
        }
      }
    }
    for (uint64_t at = 0; at < kBytes; ++at) {
      if (asked[at] && answer[at] != oracle_.file(file).bytes[at]) {
        wrong(file, at, answer[at]);
        return;
      }
    }
  }

  void check_scan(size_t file) {
    const uint64_t from = rng_.chance(1, 2) ? 0 : rng_.below(kBytes);
    scan(file, from, 1 + rng_.below(50));
  }
  void scan(size_t file, uint64_t from, size_t pieces_max) {
    uint64_t at = from;
    while (at < kOffsetEnd) {
      std::vector<Extent> extents;
      uint64_t next = 0;
      if (const Status status = shard_->scan(id_of(file), at, pieces_max, nullptr, &extents, &next);
          !status.ok())
        return failed("scan", status);
      if (extents.size() > pieces_max) return problem("a scan gave too much");
      if (next <= at) return problem("a scan does not advance");
      if (!right(file, std::min(at, kBytes), std::min(next, kBytes), extents)) return;
      at = next;
    }
  }

  void check_all(size_t file) {
    if (const uint64_t removals = oracle_.file(file).removals; removals > 0) {
      Found found;
      const Range dead{id_after(file, removals - 1), 0, kBytes};
      if (shard_->lookup(std::span(&dead, 1), 10, &found).code() != Code::kNotFound)
        return problem("a lookup by the id of a removed file did not answer kNotFound");
    }
    scan(file, 0, 1'000'000);
    if (!report_.problem.empty()) return;
    const FileSize found = shard_->size(id_of(file));
    const FileSize& expected = oracle_.file(file).size;
    if (found.known != expected.known || found.size != expected.size ||
        found.generation != expected.generation)
      problem(fmt::format("file {}: expected size {} of generation {} (known: {}), found {} of {} ({})", file,
                          expected.size, expected.generation, expected.known, found.size, found.generation,
                          found.known));
  }

  Rng rng_;
  const Faults faults_;
  io::MemoryDevice disk_;
  io::FaultDevice faulty_;
  ShardOptions options_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<Work> commit_, background_;
  Oracle oracle_;
  std::deque<std::pair<uint64_t, Operation>> pending_;
  uint64_t durable_ = 0, number_ = 0, generation_ = 1, relocations_ = 0, calls_ = 0;
  bool failed_ = false;
  bool full_ = false;
  Report report_;
};

}  // namespace

Report run(uint64_t seed, uint64_t steps, const Faults& faults) { return Test(seed, faults).run(steps); }

}  // namespace swale::meta::model
