#include <algorithm>
#include <memory>
#include <vector>

#include "imd/format/epoch_stats.h"
#include "tools/imd_engine.h"
#include "tools/options.h"

namespace swale::tools {
namespace {

using imd::MergedStat;
using imd::Stat;

constexpr double kNanosPerSecond = 1e9;
constexpr size_t kPlotColumns = 64;

struct EpochCost {
  const imd::EpochEntry* entry = nullptr;
  imd::EpochStats stats;  // empty: none were kept
};

// The parts of a bar in the plot, in the order of the pipeline; each is the time of the slowest rank.
struct Stage {
  Stat stat;
  char letter;
  const char* name;
};
constexpr Stage kStages[] = {
    {Stat::kAppendWaitNanos, 'a', "append.wait"}, {Stat::kDeliveryWaitNanos, 'd', "delivery.wait"},
    {Stat::kSortNanos, 's', "sort.time"},         {Stat::kIndexNanos, 'i', "index.time"},
    {Stat::kSyncNanos, 'f', "sync.time"},         {Stat::kCommitNanos, 'c', "commit.time"},
};

std::string seconds_text(uint64_t nanos) {
  return fmt::format("{:.3f}", static_cast<double>(nanos) / kNanosPerSecond);
}

std::string value_text(const imd::StatRow& row, uint64_t value) {
  if (row.unit != "ns") return fmt::format("{}", value);
  const auto nanos = static_cast<double>(value);
  if (nanos < 1e6) return fmt::format("{:.1f} us", nanos / 1e3);
  return nanos < 1e9 ? fmt::format("{:.2f} ms", nanos / 1e6) : fmt::format("{:.3f} s", nanos / 1e9);
}

Result<std::vector<EpochCost>> collect(imd::Reader& reader, std::optional<int64_t> epoch) {
  const imd::Manifest& manifest = reader.manifest();
  std::vector<EpochCost> costs;
  for (const imd::EpochEntry& entry : manifest.epochs) {
    if (epoch && *epoch != entry.epoch) continue;
    EpochCost cost{&entry, {}};
    Result<imd::EpochStats> stats = reader.epoch_stats(entry.epoch);
    if (stats.ok()) {
      cost.stats = *stats;
    } else if (stats.status().code() != Code::kNotFound) {
      return stats.status();
    }
    costs.push_back(cost);
  }
  if (epoch && costs.empty()) {
    return invalid_argument("{}: no epoch {}: it has {} committed epochs, numbered from 0",
                            reader.directory(), *epoch, manifest.epochs.size());
  }
  return costs;
}

Json as_json(const EpochCost& cost) {
  Json out = {{"epoch", cost.entry->epoch.value()},
              {"step", step_json(*cost.entry)},
              {"time", cost.entry->time},
              {"records", cost.entry->records},
              {"data_bytes", cost.entry->data_bytes}};
  out.update(Json::parse(cost.stats.counters().json()));
  return out;
}

// One line per epoch: sums of bytes and counts, and the longest time of any rank.
std::string table(const std::vector<EpochCost>& costs) {
  std::string text =
      fmt::format("{:>6} {:>10} {:>6} {:>12} {:>14} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
                  "epoch", "step", "ranks", "records", "bytes", "out/in", "open", "waited", "drain", "flush",
                  "sort", "write", "sync", "commit");
  size_t without = 0;
  for (const EpochCost& cost : costs) {
    const imd::EpochEntry& entry = *cost.entry;
    text += fmt::format("{:>6} {:>10} ", entry.epoch, step_text(entry));
    if (cost.stats.empty()) {
      ++without;
      text += fmt::format("{:>6} {:>12} {:>14}\n", "-", entry.records, entry.data_bytes);
      continue;
    }
    const auto longest = [&](Stat stat) { return seconds_text(cost.stats.at(stat).max); };
    const uint64_t out = cost.stats.at(Stat::kWriteDataBytes).sum + cost.stats.at(Stat::kWriteIndexBytes).sum;
    const std::string ratio =
        entry.data_bytes == 0
            ? "-"
            : fmt::format("{:.3f}", static_cast<double>(out) / static_cast<double>(entry.data_bytes));
    text +=
        fmt::format("{:>6} {:>12} {:>14} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
                    cost.stats.ranks, entry.records, entry.data_bytes, ratio, longest(Stat::kEpochOpenNanos),
                    longest(Stat::kAppendWaitNanos), longest(Stat::kEpochDrainNanos),
                    longest(Stat::kEpochFlushNanos), longest(Stat::kSortNanos), longest(Stat::kWriteNanos),
                    longest(Stat::kSyncNanos), longest(Stat::kCommitNanos));
  }
  text +=
      "Times are seconds of the slowest rank; bytes are those of keys and values. open: since the previous "
      "epoch; waited:\nappends in it; drain, flush, commit: its end. Sorting and writing overlap with all "
      "of these.\n";
  if (without != 0) text += fmt::format("No statistics were kept of {} epochs.\n", without);
  return text;
}

std::string details(const EpochCost& cost) {
  std::string text = fmt::format(
      "epoch {}, step {}, {} ranks\n\n  {:<24} {:>16} {:>16} {:>16}  {:>7} {:>16}  {:>7}  what it is\n",
      cost.entry->epoch, step_text(*cost.entry), cost.stats.ranks, "counter", "sum", "mean", "least",
      "on rank", "greatest", "on rank");
  for (const imd::StatRow& row : imd::stat_rows()) {
    const MergedStat& value = cost.stats.at(row.stat);
    const uint64_t ranks = std::max(cost.stats.ranks, 1u);
    text += fmt::format("  {:<24} {:>16} {:>16} {:>16}  {:>7} {:>16}  {:>7}  {}\n", row.name,
                        row.is_mark ? "-" : value_text(row, value.sum),
                        row.is_mark ? "-" : value_text(row, value.sum / ranks), value_text(row, value.min),
                        value.min_rank, value_text(row, value.max), value.max_rank, row.help);
  }
  return text;
}

std::string chart(const std::vector<EpochCost>& costs) {
  uint64_t longest = 1;
  const auto total = [](const EpochCost& cost) {
    uint64_t sum = 0;
    for (const Stage& stage : kStages) sum += cost.stats.at(stage.stat).max;
    return sum;
  };
  for (const EpochCost& cost : costs) longest = std::max(longest, total(cost));
  std::string text =
      "time by stage, each of its slowest rank; stages overlap, so an epoch may take less time\n ";
  for (const Stage& stage : kStages) text += fmt::format(" {} {} ", stage.letter, stage.name);
  text += "\n\n";
  for (const EpochCost& cost : costs) {
    std::string bar;
    uint64_t sum = 0;
    for (const Stage& stage : kStages) {
      sum += cost.stats.at(stage.stat).max;
      // Round the end of each part, not its length, so that the bar's length is right.
      const auto end =
          static_cast<size_t>(static_cast<double>(sum) / static_cast<double>(longest) * kPlotColumns + 0.5);
      if (end > bar.size()) bar.append(end - bar.size(), stage.letter);
    }
    text += cost.stats.empty() ? fmt::format("{:>6} (no statistics)\n", cost.entry->epoch)
                               : fmt::format("{:>6} |{:<{}}| {} s\n", cost.entry->epoch, bar, kPlotColumns,
                                             seconds_text(sum));
  }
  return text;
}

}  // namespace

Result<StatsReport> imd_stats(const std::string& path, const StatsRequest& request) {
  SWALE_ASSIGN_OR_RETURN(const auto directory, open_imd(path));
  SWALE_ASSIGN_OR_RETURN(const std::vector<EpochCost> costs, collect(*directory->reader, request.epoch));
  StatsReport report;
  if (request.show == StatsRequest::Show::kJson) {
    for (const EpochCost& cost : costs) report.lines.push_back(as_json(cost));
  } else if (request.show == StatsRequest::Show::kPlot) {
    report.text = chart(costs);
  } else {
    const bool one = request.epoch && !costs.front().stats.empty();
    report.text = one ? details(costs.front()) : table(costs);
  }
  return report;
}

}  // namespace swale::tools
