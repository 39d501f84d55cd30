// What tests of repair share: directories that the real writer has made, with the truth about them; images of
// directories, to be damaged and put back; and a check that asks every kind of query and compares the answers
// with the truth.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "imd/check/repair.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"
#include "run/schema.h"

namespace swale::imd::test {

inline constexpr char kRepairDir[] = "/dir";

// ---- images ----

// The content of all files of the directory, by path.
using Image = std::map<std::string, std::string>;

inline void add_to_image(io::Device& device, const std::string& folder, Image* image) {
  const auto names = device.list(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::string path = fmt::format("{}/{}", folder, name);
    if (device.list(path).ok()) {
      (*image)[path + "/"];  // a folder, empty or not
      add_to_image(device, path, image);
      continue;
    }
    const auto content = io::read_file(device, path, kGiB);
    if (content.ok()) (*image)[path] = *content;
  }
}

inline Image image_of(io::Device& device) {
  Image image;
  add_to_image(device, kRepairDir, &image);
  return image;
}

// Durable, in a device that has nothing yet.
inline void put_back(const Image& image, io::Device& device) {
  ASSERT_TRUE(io::make_directories(device, kRepairDir).ok());
  std::set<std::string> folders = {"/", kRepairDir};
  for (const auto& [path, content] : image) {
    if (path.ends_with('/')) {
      const std::string folder = path.substr(0, path.size() - 1);
      ASSERT_TRUE(io::make_directories(device, folder).ok());
      folders.insert(folder);
      continue;
    }
    const auto file = device.open(path, io::OpenMode::kOpenOrCreate).value();
    ASSERT_TRUE(file->pwrite(0, content).ok() && file->sync().ok());
    folders.insert(io::parent_directory(path));
  }
  for (const std::string& folder : folders) ASSERT_TRUE(device.sync_directory(folder).ok());
}

inline std::vector<std::string> files_of(const Image& image, std::string_view part = "") {
  std::vector<std::string> files;
  for (const auto& [path, content] : image) {
    if (!path.ends_with('/') && path.find(part) != std::string::npos) files.push_back(path);
  }
  return files;
}

// ---- the truth ----

// of one epoch: the values of each key, sorted
using Contents = std::map<std::string, std::vector<std::string>>;

struct Truth {
  std::vector<Contents> epochs;       // committed ones
  std::vector<Contents> uncommitted;  // what was appended and never committed; of epochs after them, in order

  void sort() {
    for (auto* all : {&epochs, &uncommitted}) {
      for (Contents& epoch : *all) {
        for (auto& [key, values] : epoch) std::sort(values.begin(), values.end());
      }
    }
  }
};

// How a directory is made; everything else is drawn.
struct Plan {
  uint64_t seed = 1;
  int jobs = 2;
  int epochs = 2;    // of each job
  int records = 40;  // of a rank and epoch
  int keys = 60;
  bool large = false;
  bool schema = true;
  int32_t ranks_max = 4;
  std::optional<Codec> compression = {};
  std::optional<run::IndexKind> index = {};
  std::optional<run::ShuffleFormat> format = {};
  int open_records = 0;             // of a rank: appended by the last job, which is then killed
  std::vector<int32_t> ranks = {};  // of each job; empty: drawn
  uint32_t ways = 0;                // of all jobs; 0: drawn
  size_t dropped = 0;               // epochs of the job before that the last job drops
};

struct Made {
  Image image;
  std::vector<Image> history;  // after each job but the last
  Truth truth;
};

inline std::string value_of(Rng& rng, const Plan& plan, uint64_t number) {
  std::string value = fmt::format("{:016x}", number * 0x9e3779b97f4a7c15);
  if (plan.large && rng.below(6) == 0) {
    value.resize(run::kValueBytesMax + 1 + rng.below(90'000), static_cast<char>('a' + number % 26));
  } else {
    value.resize(16 + rng.below(60), 'v');
  }
  return value;
}

class DirectoryMaker {
 public:
  explicit DirectoryMaker(const Plan& plan) : plan_(plan), rng_(plan.seed) {}

  Made make() {
    for (int job = 0; job < plan_.jobs; ++job) {
      if (job > 0) made_.history.push_back(image_of(device_));
      write_job(job);
    }
    if (plan_.open_records == 0) made_.image = image_of(device_);
    made_.truth.sort();
    return std::move(made_);
  }

 private:
  void write_job(int number) {
    WriterOptions options;
    options.memory_bytes = plan_.format == run::ShuffleFormat::kLossy ? 20 * kMiB : 8 * kMiB;
    options.ways = plan_.ways > 0 ? plan_.ways : 1 + static_cast<uint32_t>(rng_.below(3));
    if (number == 0) {
      if (plan_.schema) options.schema = run::Schema::parse("number:u8;_:*", "number").value();
      options.compression = plan_.compression;
      options.index = plan_.index;
      options.format = plan_.format;
    }
    const bool dies = plan_.open_records > 0 && number + 1 == plan_.jobs;
    const auto drawn = static_cast<int32_t>(1 + rng_.below(static_cast<uint64_t>(plan_.ranks_max)));
    const int32_t ranks = plan_.ranks.empty() ? drawn : plan_.ranks.at(static_cast<size_t>(number));
    if (plan_.dropped > 0 && number + 1 == plan_.jobs) {
      made_.truth.epochs.resize(made_.truth.epochs.size() - plan_.dropped);
      options.resume_after = static_cast<int64_t>(made_.truth.epochs.size()) - 1;  // epoch i is step i
    }
    const size_t first = made_.truth.epochs.size();
    made_.truth.epochs.resize(first + static_cast<size_t>(plan_.epochs));
    if (dies) made_.truth.uncommitted.resize(1);
    run_ranks(ranks, [&](net::Job& job) {
      auto writer = Writer::open(job, device_, kRepairDir, Writer::Create::kIfMissing, options);
      ASSERT_TRUE(writer.ok()) << writer.status().to_string();
      for (int epoch = 0; epoch < plan_.epochs; ++epoch) {
        append(job, **writer, plan_.records, &made_.truth.epochs[first + static_cast<size_t>(epoch)]);
        const Status ended = (*writer)->epoch_end(static_cast<int64_t>(first) + epoch, 0.5);
        ASSERT_TRUE(ended.ok()) << ended.to_string();
      }
      if (dies) {
        append(job, **writer, plan_.open_records, &made_.truth.uncommitted[0]);
        ASSERT_TRUE(job.allgather("").ok());
        if (job.rank() == 0) made_.image = image_with_open_epoch();
        ASSERT_TRUE(job.allgather("").ok());
      }
      const Status closed = (*writer)->close();
      EXPECT_TRUE(closed.ok() || dies) << closed.to_string();
    });
  }

  // Runs reach storage when threads of the writer come to it: with so many records some will.
  Image image_with_open_epoch() {
    constexpr int kRecordsThatMakeRuns = 20'000;
    Image image = image_of(device_);
    for (int look = 0; plan_.open_records >= kRecordsThatMakeRuns && look < 1000; ++look) {
      io::MemoryDevice copy;
      put_back(image, copy);
      const auto repaired = repair_directory(copy, kRepairDir, {});
      if (repaired.ok() && repaired->epochs_recovered > 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      image = image_of(device_);
    }
    return image;
  }

  void append(net::Job& job, Writer& writer, int records, Contents* contents) {
    for (int i = 0; i < records; ++i) {
      std::string key;
      std::string value;
      {
        const std::lock_guard lock(mutex_);
        key = fmt::format("key-{}", rng_.below(static_cast<uint64_t>(plan_.keys)));
        value = value_of(rng_, plan_, ++number_);
        (*contents)[key].push_back(value);
      }
      ASSERT_TRUE(writer.append(key, value).ok()) << job.rank();
    }
  }

  const Plan plan_;
  io::MemoryDevice device_;
  Rng rng_;
  std::mutex mutex_;
  uint64_t number_ = 0;
  Made made_;
};

inline Made make_directory(const Plan& plan) { return DirectoryMaker(plan).make(); }

// ---- asking ----

// Asks everything. An answer that is not the truth is told; an error is fine.
class Asker {
 public:
  Asker(io::Device& device, const Truth& truth) : device_(device), truth_(truth) {}

  // What was found wrong; nothing: good.
  std::vector<std::string> run();
  uint64_t right() const { return right_; }
  uint64_t errors() const { return static_cast<uint64_t>(errors_.size()); }
  const std::vector<std::string>& error_messages() const { return errors_; }
  // Which questions were answered (rightly), by number.
  const std::vector<bool>& answered() const { return answered_; }
  // Whether everything that `before` has answered of single committed epochs is answered here.
  bool answers_as_much_as(const Asker& before) const {
    for (size_t i = 0; i < before.of_epochs_; ++i) {
      if (before.answered_[i] && (i >= of_epochs_ || !answered_[i])) return false;
    }
    return true;
  }

 private:
  void judge(const std::string& question, const Status& status, bool is_right) {
    answered_.push_back(status.ok() && is_right);
    if (!status.ok()) {
      errors_.push_back(fmt::format("{}: {}", question, status.to_string()));
    } else if (is_right) {
      ++right_;
    } else {
      wrong_.push_back(question);
    }
  }
  void ask_epoch(Reader& reader, uint32_t epoch);
  void ask_scans(Reader& reader, uint32_t epoch);
  void ask_top(Reader& reader, uint32_t epoch);
  void ask_keys(Reader& reader, uint32_t epoch);
  void ask_all(Reader& reader);
  void ask_recovered(Reader& reader, uint32_t epoch, const Contents& appended);

  io::Device& device_;
  const Truth& truth_;
  uint64_t right_ = 0;
  std::vector<std::string> errors_;
  std::vector<std::string> wrong_;
  std::vector<bool> answered_;
  size_t of_epochs_ = 0;  // the first so many of them concern single committed epochs
};

inline void sort_values(Contents* contents) {
  for (auto& [key, values] : *contents) std::sort(values.begin(), values.end());
}

inline std::vector<std::string> Asker::run() {
  const auto reader = Reader::open(device_, kRepairDir, {});
  judge("open", reader.status(), true);
  if (!reader.ok()) return wrong_;
  const size_t committed = truth_.epochs.size();
  const size_t epochs = (*reader)->manifest().epochs.size();
  if (epochs < committed || epochs > committed + truth_.uncommitted.size())
    judge(fmt::format("epochs: {} instead of {}", epochs, committed), {}, false);
  if (!wrong_.empty()) return wrong_;
  for (uint32_t epoch = 0; epoch < committed; ++epoch) ask_epoch(**reader, epoch);
  of_epochs_ = answered_.size();
  if (epochs == committed) ask_all(**reader);
  for (size_t epoch = committed; epoch < epochs; ++epoch)
    ask_recovered(**reader, static_cast<uint32_t>(epoch), truth_.uncommitted[epoch - committed]);
  return wrong_;
}

inline void Asker::ask_epoch(Reader& reader, uint32_t epoch) {
  const Contents& truth = truth_.epochs[epoch];
  const auto question = [&](std::string_view what) { return fmt::format("epoch {}: {}", epoch, what); };
  uint64_t records = 0;
  std::vector<std::string> keys = {"no such key"};
  for (const auto& [key, values] : truth) {
    keys.push_back(key);
    records += values.size();
  }
  for (const std::string& key : keys) {
    const auto values = reader.get(key, epoch);
    const bool there = truth.contains(key);
    std::vector<std::string> got;
    if (values.ok()) {
      for (const Value& value : *values) got.push_back(value.bytes);
    }
    std::sort(got.begin(), got.end());
    const bool not_found = values.status().code() == Code::kNotFound;
    judge(question("get " + key), not_found ? Status() : values.status(),
          there ? !not_found && got == truth.at(key) : not_found);
  }
  Contents got;
  const std::vector<Bytes> views(keys.begin(), keys.end());
  const auto found = reader.get_many(views, epoch, [&](size_t index, uint32_t, Bytes value) {
    got[keys[index]].emplace_back(value);
    return true;
  });
  sort_values(&got);
  judge(question("get_many"), found.status(), got == truth && found.ok() && *found == truth.size());
  const auto count = reader.count(epoch);
  judge(question("count"), count.status(), count.ok() && *count == records);
  ask_scans(reader, epoch);
  ask_top(reader, epoch);
  ask_keys(reader, epoch);
}

inline void Asker::ask_scans(Reader& reader, uint32_t epoch) {
  Contents got;
  const auto take = [&](uint32_t, Bytes key, Bytes value) {
    got[std::string(key)].emplace_back(value);
    return true;
  };
  const Status scanned = reader.scan(epoch, take);
  sort_values(&got);
  judge(fmt::format("epoch {}: scan", epoch), scanned, got == truth_.epochs[epoch]);
  got.clear();
  Status parts;
  for (uint32_t part = 0; part < 3 && parts.ok(); ++part) parts = reader.scan_part(epoch, part, 3, take);
  sort_values(&got);
  judge(fmt::format("epoch {}: scan_part", epoch), parts, got == truth_.epochs[epoch]);
}

// Values begin with the field's bytes, as a little-endian number.
inline void Asker::ask_top(Reader& reader, uint32_t epoch) {
  if (reader.manifest().schema.empty()) return;
  const auto number = [](Bytes value) {
    uint64_t bits = 0;
    for (size_t i = 8; i > 0; --i) bits = bits << 8 | static_cast<uint8_t>(value[i - 1]);
    return bits;
  };
  for (const run::Extreme which : {run::Extreme::kLargest, run::Extreme::kSmallest}) {
    std::vector<uint64_t> expected;
    for (const auto& [key, values] : truth_.epochs[epoch]) {
      for (const std::string& value : values) expected.push_back(number(value));
    }
    std::sort(expected.begin(), expected.end());
    if (which == run::Extreme::kLargest) std::reverse(expected.begin(), expected.end());
    expected.resize(std::min<size_t>(expected.size(), 7));
    const auto top = reader.top(epoch, "number", 7, which);
    std::vector<uint64_t> got;
    if (top.ok()) {
      for (const auto& record : top->records) got.push_back(number(record.value));
    }
    judge(fmt::format("epoch {}: top", epoch), top.status(), got == expected);
  }
}

inline void Asker::ask_keys(Reader& reader, uint32_t epoch) {
  std::vector<std::string> expected;
  for (const auto& [key, values] : truth_.epochs[epoch]) expected.push_back(key);
  std::vector<std::string> got;
  const auto take = [&](Bytes key) {
    got.emplace_back(key);
    return true;
  };
  const Status keys = reader.keys(epoch, take);
  std::sort(got.begin(), got.end());
  judge(fmt::format("epoch {}: keys", epoch), keys, got == expected);
  for (const size_t n : {size_t{3}, expected.size()}) {
    got.clear();
    const Status sample = reader.sample(epoch, n, 7, take);
    std::sort(got.begin(), got.end());
    const bool distinct = std::adjacent_find(got.begin(), got.end()) == got.end();
    judge(fmt::format("epoch {}: sample of {}", epoch, n), sample,
          distinct && got.size() == std::min(n, expected.size()) &&
              std::includes(expected.begin(), expected.end(), got.begin(), got.end()));
  }
}

inline void Asker::ask_all(Reader& reader) {
  Contents expected;
  uint64_t records = 0;
  for (const Contents& epoch : truth_.epochs) {
    for (const auto& [key, values] : epoch) {
      expected[key].insert(expected[key].end(), values.begin(), values.end());
      records += values.size();
    }
  }
  sort_values(&expected);
  Contents got;
  const Status scanned = reader.scan(Reader::kAllEpochs, [&](uint32_t, Bytes key, Bytes value) {
    got[std::string(key)].emplace_back(value);
    return true;
  });
  sort_values(&got);
  judge("all: scan", scanned, got == expected);
  const auto count = reader.count(Reader::kAllEpochs);
  judge("all: count", count.status(), count.ok() && *count == records);
  for (const auto& [key, values] : expected) {
    const auto found = reader.get(key, Reader::kAllEpochs);
    std::vector<std::string> bytes;
    if (found.ok()) {
      for (const Value& value : *found) bytes.push_back(value.bytes);
    }
    std::sort(bytes.begin(), bytes.end());
    const bool not_found = found.status().code() == Code::kNotFound;
    judge("all: get " + key, not_found ? Status() : found.status(), !not_found && bytes == values);
  }
}

// Of an epoch that was never committed some records are there, and nothing else.
inline void Asker::ask_recovered(Reader& reader, uint32_t epoch, const Contents& appended) {
  Contents got;
  const Status scanned = reader.scan(epoch, [&](uint32_t, Bytes key, Bytes value) {
    got[std::string(key)].emplace_back(value);
    return true;
  });
  sort_values(&got);
  bool right = !got.empty();
  for (const auto& [key, values] : got) {
    const auto known = appended.find(key);
    right = right && known != appended.end() &&
            std::includes(known->second.begin(), known->second.end(), values.begin(), values.end());
    const auto found = reader.get(key, epoch);
    right = right && (!scanned.ok() || (found.ok() && found->size() == values.size()));
  }
  judge(fmt::format("epoch {}, recovered: scan", epoch), scanned, right);
}

}  // namespace swale::imd::test
