// impact-verify: is every record of the dumps in Swale, byte for byte, and nothing else? Both ways of reading
// are checked: get_many over all ids, and a scan of all epochs. Exits with 0 if all is equal, 1 if not, 2 if
// it cannot run.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "answer.h"
#include "arguments.h"
#include "reader.h"

namespace {

using impact::AtomState;
using impact::DumpRecord;
using impact::fail;
using impact::Reader;

constexpr int kComplaintsMax = 10;

std::vector<DumpRecord> read_dumps(const std::string& out, int ranks) {
  std::vector<DumpRecord> records;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = fmt::format("{}/dump.{:04}.bin", out, rank);
    const auto bytes = std::filesystem::file_size(path);
    if (bytes % sizeof(DumpRecord) != 0) fail(path + " is torn: not a whole number of records");
    const size_t before = records.size();
    records.resize(before + bytes / sizeof(DumpRecord));
    std::ifstream file(path, std::ios::binary);
    if (!file.read(reinterpret_cast<char*>(records.data() + before), static_cast<std::streamsize>(bytes)))
      fail("cannot read " + path);
  }
  return records;
}

// What the dumps say, to be ticked off record by record.
class Expectation {
 public:
  explicit Expectation(std::vector<DumpRecord> records) : records_(std::move(records)) {
    impact::sort_answer(records_);
    const auto same = [](const DumpRecord& a, const DumpRecord& b) {
      return a.id == b.id && a.state.step == b.state.step;
    };
    if (std::adjacent_find(records_.begin(), records_.end(), same) != records_.end())
      fail("the dumps hold an atom twice in one frame");
    seen_.resize(records_.size());
  }

  void flip_one_byte() { reinterpret_cast<unsigned char*>(&records_[records_.size() / 2].state)[17] ^= 1; }

  std::vector<int64_t> ids() const {
    std::vector<int64_t> ids;
    for (const DumpRecord& record : records_) {
      if (ids.empty() || ids.back() != record.id) ids.push_back(record.id);
    }
    return ids;
  }

  std::map<int64_t, uint64_t> records_of_step() const {
    std::map<int64_t, uint64_t> count;
    for (const DumpRecord& record : records_) ++count[record.state.step];
    return count;
  }

  // `step` is what the epoch that gave `state` says of itself.
  void tick(int64_t id, int64_t step, const AtomState& state) {
    const auto before = [](const DumpRecord& a, const std::pair<int64_t, int64_t>& b) {
      return std::tie(a.id, a.state.step) < std::tie(b.first, b.second);
    };
    const auto found = std::lower_bound(records_.begin(), records_.end(), std::pair(id, step), before);
    if (found == records_.end() || found->id != id || found->state.step != step)
      return complain(fmt::format("atom {} at step {} is in Swale, not in the dumps", id, step));
    if (std::memcmp(&found->state, &state, sizeof state) != 0)
      return complain(fmt::format("atom {} at step {} differs", id, step));
    const auto index = static_cast<size_t>(found - records_.begin());
    if (seen_[index]) return complain(fmt::format("atom {} at step {} was given twice", id, step));
    seen_[index] = true;
    ++seen_count_;
  }

  // Ends one pass over everything: what was not ticked off is missing.
  void end_pass(const char* how) {
    if (seen_count_ != records_.size())
      complain(
          fmt::format("{}: {} of {} records not found", how, records_.size() - seen_count_, records_.size()));
    fmt::print("  {:<9} {:>9} of {} records found and equal\n", how, seen_count_, records_.size());
    seen_.assign(records_.size(), false);
    seen_count_ = 0;
  }

  void complain(const std::string& message) {
    if (++complaints_ <= kComplaintsMax) fmt::print("  WRONG: {}\n", message);
  }
  int complaints() const { return complaints_; }
  size_t size() const { return records_.size(); }

 private:
  std::vector<DumpRecord> records_;  // sorted by id and step
  std::vector<bool> seen_;
  size_t seen_count_ = 0;
  int complaints_ = 0;
};

std::vector<int64_t> check_epochs(const Reader& reader, Expectation& expected) {
  std::map<int64_t, uint64_t> records_of_step = expected.records_of_step();
  std::vector<int64_t> steps;
  for (int64_t epoch = 0; epoch < reader.epochs(); ++epoch) {
    const swale_epoch_info info = reader.epoch(epoch);
    steps.push_back(info.step);
    if (records_of_step[info.step] != info.records)
      expected.complain(fmt::format("epoch {} (step {}) says {} records, the dumps hold {}", epoch, info.step,
                                    info.records, records_of_step[info.step]));
  }
  if (steps.size() != records_of_step.size())
    expected.complain(
        fmt::format("{} epochs, but {} frames in the dumps", steps.size(), records_of_step.size()));
  if (reader.count() != expected.size())
    expected.complain(fmt::format("{} records by count, {} in the dumps", reader.count(), expected.size()));
  return steps;
}

void check_absent(const Reader& reader, int64_t largest_id, Expectation& expected) {
  std::vector<int64_t> absent = {0, -1, INT64_MAX};
  for (int64_t i = 1; i <= 1000; ++i) absent.push_back(largest_id + i);
  if (reader.get_many(absent, [](int64_t, int64_t, const AtomState&) {}) != 0 ||
      !reader.trajectory(0).empty())
    expected.complain("an atom that never was is found");
}

}  // namespace

int main(int argc, char** argv) {
  constexpr size_t kBatch = 8192;
  std::string out;
  bool canary = false;
  impact::Arguments arguments(
      "Compares every record of OUT/atoms.swale with the dumps of the same run, byte for byte.");
  arguments.directory(out, "the directory that impact wrote");
  arguments.flag("--canary", canary,
                 "flip one bit of one record of the dumps in memory: the check must fail");
  arguments.parse(argc, argv);

  Expectation expected(read_dumps(out, impact::read_json(out + "/run.json").at("ranks").get<int>()));
  if (expected.size() == 0) fail("the dumps are empty");
  if (canary) expected.flip_one_byte();
  const Reader reader(out + "/atoms.swale");
  const std::vector<int64_t> steps = check_epochs(reader, expected);
  const auto tick = [&](int64_t epoch, int64_t id, const AtomState& state) {
    expected.tick(id, steps.at(static_cast<size_t>(epoch)), state);
  };

  const std::vector<int64_t> ids = expected.ids();
  for (size_t i = 0; i < ids.size(); i += kBatch) {
    const auto first = ids.begin() + static_cast<ptrdiff_t>(i);
    const auto last = ids.begin() + static_cast<ptrdiff_t>(std::min(i + kBatch, ids.size()));
    reader.get_many({first, last}, tick);
  }
  expected.end_pass("get_many");
  reader.scan(SWALE_ALL_EPOCHS, tick);
  expected.end_pass("scan");
  check_absent(reader, ids.back(), expected);
  if (expected.complaints() > 0)
    fmt::print("  {} complaints: Swale and the dumps differ\n", expected.complaints());
  return expected.complaints() > 0 ? 1 : 0;
}
