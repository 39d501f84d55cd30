#include "sim/checker.h"

#include <algorithm>
#include <memory>

#include "imd/check/verify.h"
#include "imd/read/reader.h"
#include "run/schema.h"

namespace swale::sim {
namespace {

constexpr size_t kProblemsMax = 10;
constexpr size_t kTop = 15;

using Values = std::vector<std::string>;

std::map<int32_t, Values> by_writer(const Values& values) {
  std::map<int32_t, Values> writers;
  for (const std::string& value : values) writers[writer_of(value)].push_back(value);
  return writers;
}

class Checker {
 public:
  Checker(imd::Reader& reader, const Model& model) : reader_(reader), model_(model) {}

  void check_epoch(uint32_t epoch, size_t probes) {
    static const Model::mapped_type kNothing;
    const auto found = model_.find(epoch);
    const Model::mapped_type& expected = found == model_.end() ? kNothing : found->second;
    check_scan(epoch, expected);
    check_index(epoch, expected, probes);
    for (const run::FieldPlace& field : reader_.manifest().schema.indexed) check_top(epoch, expected, field);
  }
  void check_all_bytes() {
    for (const Status& problem : imd::verify_directory(reader_, kProblemsMax).problems)
      say("verify: {}", problem.to_string());
  }
  std::vector<std::string> take_problems() { return std::move(problems_); }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    if (problems_.size() < kProblemsMax)
      problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  void check_scan(uint32_t epoch, const Model::mapped_type& expected) {
    std::map<std::string, Values> seen;
    const Status status = reader_.scan(epoch, [&](uint32_t, Bytes key, Bytes value) {
      seen[std::string(key)].emplace_back(value);
      return true;
    });
    if (!status.ok()) return say("scan of epoch {}: {}", epoch, status.to_string());
    if (seen.size() != expected.size())
      say("epoch {}: {} keys, expected {}", epoch, seen.size(), expected.size());
    for (const auto& [key, writers] : expected) {
      if (by_writer(seen[key]) != writers)
        say("epoch {}: key of {} bytes differs in the scan", epoch, key.size());
    }
  }

  void check_index(uint32_t epoch, const Model::mapped_type& expected, size_t probes) {
    const size_t stride = std::max<size_t>(expected.size() / std::max<size_t>(probes, 1), 1);
    size_t number = 0;
    for (const auto& [key, writers] : expected) {
      if (number++ % stride != 0) continue;
      const auto values = reader_.get(key, epoch);
      if (!values.ok()) {
        say("epoch {}: a key is not found: {}", epoch, values.status().to_string());
        continue;
      }
      Values bytes;
      for (const imd::Value& value : *values) bytes.push_back(value.bytes);
      if (by_writer(bytes) != writers) say("epoch {}: a key's values differ", epoch);
    }
    for (size_t i = 0; i < probes; ++i) {
      const auto values = reader_.get(fmt::format("absent {}", i), epoch);
      if (values.status().code() != Code::kNotFound)
        say("epoch {}: an absent key is {}", epoch, values.status().to_string());
    }
  }

  void check_top(uint32_t epoch, const Model::mapped_type& expected, const run::FieldPlace& field) {
    std::vector<run::OrderKey> numbers;
    for (const auto& [key, writers] : expected) {
      for (const auto& [writer, values] : writers) {
        for (const std::string& value : values) {
          const run::FieldValue number = run::read_field(field, value);
          if (number.kind == run::FieldValue::Kind::kNumber) numbers.push_back(number.key);
        }
      }
    }
    std::sort(numbers.begin(), numbers.end());
    check_end(epoch, expected, field, run::Extreme::kSmallest, numbers);
    std::reverse(numbers.begin(), numbers.end());
    check_end(epoch, expected, field, run::Extreme::kLargest, numbers);
  }

  // `numbers`: of all records, the best first.
  void check_end(uint32_t epoch, const Model::mapped_type& expected, const run::FieldPlace& field,
                 run::Extreme which, const std::vector<run::OrderKey>& numbers) {
    const char* const end = which == run::Extreme::kLargest ? "largest" : "smallest";
    const auto top = reader_.top(epoch, field.name, kTop, which);
    if (!top.ok()) return say("epoch {}: the {} {}: {}", epoch, end, field.name, top.status().to_string());
    if (top->partitions_scanned != 0) say("epoch {}: {} was scanned", epoch, field.name);
    if (top->records.size() != std::min(kTop, numbers.size())) {
      return say("epoch {}: {} records of the {} {}, of {}", epoch, top->records.size(), end, field.name,
                 numbers.size());
    }
    for (size_t i = 0; i < top->records.size(); ++i) {
      const auto& [key, value, number] = top->records[i];
      const auto writers = expected.find(key);
      const bool known =
          writers != expected.end() &&
          std::any_of(writers->second.begin(), writers->second.end(), [&value = value](const auto& of) {
            return std::find(of.second.begin(), of.second.end(), value) != of.second.end();
          });
      if (!known || number != numbers[i])
        say("epoch {}: record {} of the {} {} differs", epoch, i, end, field.name);
    }
  }

  imd::Reader& reader_;
  const Model& model_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> check_directory(io::Device& device, const std::string& directory, const Model& model,
                                         uint32_t epochs_promised, size_t probes) {
  const Result<std::unique_ptr<imd::Reader>> reader = imd::Reader::open(device, directory, {});
  if (!reader.ok()) return {fmt::format("cannot open: {}", reader.status().to_string())};
  const size_t epochs = (*reader)->manifest().epochs.size();
  if (epochs < epochs_promised)
    return {fmt::format("{} epochs, but {} were promised", epochs, epochs_promised)};
  Checker checker(**reader, model);
  for (uint32_t epoch = 0; epoch < epochs; ++epoch) checker.check_epoch(epoch, probes);
  checker.check_all_bytes();
  return checker.take_problems();
}

}  // namespace swale::sim
