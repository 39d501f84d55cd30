// Queries of every kind while only some pages of the files are in memory: all patterns of small files, random
// ones of larger ones, and real page caches from which pages were dropped. Every answer is compared with what
// was written. SWALE_RESIDENCY multiplies the random patterns (make test-long).
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>

#include "imd/read/reader.h"
#include "imd/testing/test_directory.h"
#include "io/advised_queue.h"
#include "io/mapping.h"
#include "io/posix_device.h"
#include "io/testing/forwarding_file.h"

namespace swale::imd::reader_residency_test {
namespace {

using test::Model;
using test::Records;
using test::TestDirectory;
using test::text_key;

constexpr size_t kPageBytes = 4096;

// Whether a page of a file is in memory.
using Pattern = std::function<bool(const std::string& path, uint64_t page)>;

// What is in memory is what a pattern says.
class PatternFile final : public io::ForwardingFile {
 public:
  PatternFile(std::unique_ptr<io::File> file, const Pattern& pattern)
      : ForwardingFile(std::move(file)), pattern_(pattern) {}
  bool read_resident(uint64_t offset, MutableBytes out) override {
    for (uint64_t page = offset / kPageBytes; page * kPageBytes < offset + out.size(); ++page) {
      if (!pattern_(path(), page)) return false;
    }
    const auto got = pread(offset, out);
    return got.ok() && *got == out.size();
  }
  Residency residency() const override {
    return [this_path = path(), &pattern = pattern_](uint64_t offset, std::span<unsigned char> pages) {
      for (size_t i = 0; i < pages.size(); ++i)
        pages[i] = pattern(this_path, offset / kPageBytes + i) ? 1 : 0;
    };
  }

 private:
  const Pattern& pattern_;
};

class PatternDevice final : public io::PosixDevice {
 public:
  explicit PatternDevice(const Pattern& pattern) : pattern_(pattern) {}
  Result<std::unique_ptr<io::IoQueue>> make_read_queue(size_t, const io::File&) override {
    return std::unique_ptr<io::IoQueue>(std::make_unique<io::AdvisedQueue>());
  }
  Result<std::unique_ptr<io::File>> open(const std::string& path, io::OpenMode mode) override {
    SWALE_ASSIGN_OR_RETURN(auto file, PosixDevice::open(path, mode));
    return std::unique_ptr<io::File>(std::make_unique<PatternFile>(std::move(file), pattern_));
  }

 private:
  const Pattern& pattern_;
};

uint64_t rounds(uint64_t count) {
  const char* factor = std::getenv("SWALE_RESIDENCY");
  return count * (factor != nullptr ? std::strtoull(factor, nullptr, 10) : 1);
}

class ReaderResidency : public testing::Test {
 protected:
  ReaderResidency()
      : path_(
            fmt::format("{}/swale-residency-{}", std::filesystem::temp_directory_path().string(), getpid())) {
    std::filesystem::remove_all(path_);
    directory_.emplace(device_, path_);
  }
  ~ReaderResidency() override { std::filesystem::remove_all(path_); }

  // Many keys have records in several runs, so that the candidates of one slice jump between blocks.
  void write(int32_t ranks, uint32_t epochs, size_t records, size_t records_per_run, uint64_t keys,
             size_t bytes) {
    directory_->begin_job(ranks, 1);
    for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
      Rng rng(epoch + 1);
      directory_->write_epoch(test::numbered_records(rng, records, keys, bytes),
                              {.records_per_run = records_per_run});
    }
    keys_ = keys;
  }

  std::vector<std::string> files() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
      const std::string name = entry.path().string();
      if (name.ends_with(".data") || name.ends_with(".index")) found.push_back(name);
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  const std::vector<std::string>* values_of(uint32_t epoch, const std::string& key) const {
    const auto found = directory_->models[epoch].find(key);
    return found == directory_->models[epoch].end() ? nullptr : &found->second;
  }

  // "" if every answer is right.
  std::string wrong_batch(Reader& reader, const std::vector<std::string>& keys, int64_t epoch) const {
    const std::vector<Bytes> views(keys.begin(), keys.end());
    std::vector<Model> got(directory_->models.size());
    size_t given = 0;
    const auto found = reader.get_many(views, epoch, [&](size_t index, uint32_t at, Bytes value) {
      got[at][keys[index]].emplace_back(value);
      ++given;
      return true;
    });
    if (!found.ok()) return found.status().to_string();
    for (uint32_t e = 0; e < got.size(); ++e) {
      if (epoch != Reader::kAllEpochs && epoch != e) continue;
      for (const std::string& key : keys) {
        const auto* expected = values_of(e, key);
        std::vector<std::string> values = got[e][key];
        std::vector<std::string> wanted = expected == nullptr ? std::vector<std::string>() : *expected;
        std::sort(values.begin(), values.end());
        std::sort(wanted.begin(), wanted.end());
        if (values != wanted) return fmt::format("get_many: {} in epoch {}", key, e);
      }
    }
    return "";
  }
  std::string wrong_get(Reader& reader, const std::string& key) const {
    std::vector<std::pair<uint32_t, std::string>> wanted;
    for (uint32_t e = 0; e < directory_->models.size(); ++e) {
      if (const auto* values = values_of(e, key)) {
        for (const std::string& value : *values) wanted.emplace_back(e, value);
      }
    }
    const auto got = reader.get(key, Reader::kAllEpochs);
    if (wanted.empty() && got.status().code() == Code::kNotFound) return "";
    if (!got.ok()) return got.status().to_string();
    std::vector<std::pair<uint32_t, std::string>> values;
    for (const Value& value : *got) values.emplace_back(value.epoch, value.bytes);
    return values == wanted ? "" : fmt::format("get: {}", key);
  }
  std::string wrong_scan(Reader& reader) const {
    Model got;
    const Status status = reader.scan(0, [&](uint32_t, Bytes key, Bytes value) {
      got[std::string(key)].emplace_back(value);
      return true;
    });
    if (!status.ok()) return status.to_string();
    return got == directory_->models[0] ? "" : "scan";
  }
  std::string wrong_sample(Reader& reader, uint64_t seed) const {
    std::set<std::string> got;
    const Status status = reader.sample(0, 3, seed, [&](Bytes key) { return got.emplace(key).second; });
    if (!status.ok()) return status.to_string();
    const bool known = std::all_of(got.begin(), got.end(),
                                   [&](const std::string& key) { return values_of(0, key) != nullptr; });
    return known && got.size() == 3 ? "" : "sample";
  }

  std::string wrong_in(Reader& reader, Rng& rng) const {
    std::vector<std::string> all;
    for (uint64_t i = 0; i < keys_; ++i) all.push_back(text_key(i));
    std::string wrong = wrong_batch(reader, all, Reader::kAllEpochs);
    for (int i = 0; i < 3 && wrong.empty(); ++i) {
      std::vector<std::string> some;
      for (uint64_t n = 1 + rng.below(20); n > 0; --n) some.push_back(text_key(rng.below(keys_ + 2)));
      std::sort(some.begin(), some.end());
      some.erase(std::unique(some.begin(), some.end()), some.end());
      wrong = wrong_batch(reader, some, i == 0 ? Reader::kAllEpochs : 0);
    }
    for (int i = 0; i < 3 && wrong.empty(); ++i) wrong = wrong_get(reader, text_key(rng.below(keys_ + 2)));
    if (wrong.empty()) wrong = wrong_scan(reader);
    if (wrong.empty()) wrong = wrong_sample(reader, rng.next());
    return wrong;
  }

  std::string wrong_with(const Pattern& pattern, ReaderOptions::Map map, Rng& rng) const {
    PatternDevice device(pattern);
    ReaderOptions options;
    options.map = map;
    const auto reader = Reader::open(device, path_, options);
    return reader.ok() ? wrong_in(**reader, rng) : reader.status().to_string();
  }

  const std::string path_;
  io::PosixDevice device_;
  std::optional<TestDirectory> directory_;
  uint64_t keys_ = 0;
};

constexpr auto kMapped = ReaderOptions::Map::kAuto;
constexpr auto kRead = ReaderOptions::Map::kNever;

// All patterns of the data's pages, with all, none and every other page of the index.
TEST_F(ReaderResidency, OfAllPatternsOfASmallPartition) {
  write(1, 1, 28, 14, 16, 2'000);  // records that span blocks have candidates that overlap
  uint64_t data_pages = 0;
  for (const std::string& name : files()) {
    if (name.ends_with(".data")) data_pages += std::filesystem::file_size(name) / kPageBytes;
  }
  ASSERT_GE(data_pages, 6u);
  ASSERT_LE(data_pages, 12u);
  Rng rng(5);
  uint64_t points = 0;
  for (const auto map : {kMapped, kRead}) {
    for (uint64_t pages = 0; pages < uint64_t{1} << data_pages; ++pages) {
      for (const uint64_t index : {~uint64_t{0}, uint64_t{0}, uint64_t{0x5555555555555555}}) {
        const Pattern pattern = [=](const std::string& name, uint64_t page) {
          return ((name.ends_with(".data") ? pages : index) >> (page % 64) & 1) != 0;
        };
        ++points;
        const std::string wrong = wrong_with(pattern, map, rng);
        ASSERT_EQ(wrong, "") << fmt::format("data {:b}, index {:b}, {}", pages, index,
                                            map == kMapped ? "mapped" : "read");
      }
    }
  }
  fmt::print("{} patterns of {} pages of data\n", points, data_pages);
}

TEST_F(ReaderResidency, OfRandomPatternsOfSeveralPartitions) {
  write(3, 3, 6'000, 700, 2'000, 120);
  Rng rng(6);
  uint64_t points = 0;
  for (uint64_t round = 0; round < rounds(40); ++round) {
    const uint64_t seed = rng.next();
    const uint64_t share = 1 + rng.below(99);  // percent
    const Pattern pattern = [=](const std::string& name, uint64_t page) {
      return hash_bytes(fmt::format("{} {} {}", seed, name, page)) % 100 < share;
    };
    for (const auto map : {kMapped, kRead}) {
      ++points;
      ASSERT_EQ(wrong_with(pattern, map, rng), "") << fmt::format("seed {}, {} %", seed, share);
    }
  }
  fmt::print("{} random patterns\n", points);
}

// Pages come and go between two looks.
TEST_F(ReaderResidency, OfPatternsThatChangeAllTheTime) {
  write(2, 3, 3'000, 400, 1'000, 120);
  Rng rng(7);
  uint64_t points = 0;
  for (uint64_t round = 0; round < rounds(20); ++round) {
    Rng chance(round);
    const uint64_t share = 1 + rng.below(99);
    const Pattern pattern = [&](const std::string&, uint64_t) { return chance.below(100) < share; };
    for (const auto map : {kMapped, kRead}) {
      ++points;
      ASSERT_EQ(wrong_with(pattern, map, rng), "") << fmt::format("round {}, {} %", round, share);
    }
  }
  fmt::print("{} changing patterns\n", points);
}

// Real pages are dropped from the real page cache before each pass.
TEST_F(ReaderResidency, OfARealPageCacheWithHoles) {
  write(2, 3, 6'000, 700, 2'000, 120);
  Rng rng(8);
  uint64_t dropped = 0;
  uint64_t points = 0;
  for (uint64_t round = 0; round < rounds(20); ++round) {
    for (const std::string& name : files()) {
      const auto file = device_.open(name, io::OpenMode::kReadWrite).value();
      if (round == 0) {
        ASSERT_TRUE(file->sync().ok());  // dirty pages stay
      }
      const uint64_t pages = std::filesystem::file_size(name) / kPageBytes;
      std::vector<char> all(std::filesystem::file_size(name));
      ASSERT_TRUE(io::read_exactly(*file, 0, {all.data(), all.size()}).ok());
      for (uint64_t i = 0; i < pages / 3; ++i, ++dropped) {
        ::posix_fadvise(file->descriptor(), static_cast<off_t>(rng.below(pages) * kPageBytes), kPageBytes,
                        POSIX_FADV_DONTNEED);
      }
    }
    for (const auto map : {kMapped, kRead}) {
      ReaderOptions options;
      options.map = map;
      const auto reader = Reader::open(device_, path_, options);
      ASSERT_TRUE(reader.ok()) << reader.status().to_string();
      ++points;
      ASSERT_EQ(wrong_in(**reader, rng), "") << "round " << round;
    }
  }
  fmt::print("{} passes over real files, {} pages dropped before them\n", points, dropped);
}

// The canary: one record that is not as it was written.
TEST_F(ReaderResidency, CheckerNoticesAWrongAnswer) {
  write(1, 2, 120, 30, 40, 100);
  const Pattern none = [](const std::string&, uint64_t) { return false; };
  Rng rng(9);
  ASSERT_EQ(wrong_with(none, kMapped, rng), "");
  directory_->models[0].begin()->second.front() += "x";
  EXPECT_NE(wrong_with(none, kMapped, rng), "");
}

}  // namespace
}  // namespace swale::imd::reader_residency_test
