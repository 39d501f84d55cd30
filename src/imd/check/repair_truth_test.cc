// Damage x repair x every query, against the truth: an answer is right, or it is an error. SWALE_REPAIRS in
// the environment says how many random damages are tried, SWALE_REPAIRS_SEED which ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <set>
#include <utility>

#include "imd/check/repair_index.h"
#include "imd/check/verify.h"
#include "imd/format/generation.h"
#include "imd/testing/test_repair.h"
#include "imd/testing/test_repair_case.h"
#include "io/fault_device.h"

namespace swale::imd::repair_truth_test {
namespace {

using test::Asker;
using test::check_case;
using test::Counts;
using test::Image;
using test::joined;
using test::kRepairDir;
using test::Made;
using test::Plan;

std::vector<Plan> plans(uint64_t seed) {
  return {
      {.seed = seed},
      {.seed = seed + 1, .jobs = 3, .epochs = 1, .large = true},
      {.seed = seed + 2, .jobs = 2, .epochs = 3, .schema = false, .compression = Codec::kLz4},
      {.seed = seed + 3, .jobs = 1, .epochs = 2, .index = run::IndexKind::kBloom},
      {.seed = seed + 4, .jobs = 2, .epochs = 1, .records = 200, .ranks_max = 2, .open_records = 20'000},
      {.seed = seed + 5, .jobs = 1, .epochs = 1, .records = 60, .large = true, .open_records = 400},
      {.seed = seed + 6, .jobs = 2, .large = true, .format = run::ShuffleFormat::kIndirect},
      {.seed = seed + 7,
       .jobs = 2,
       .epochs = 1,
       .records = 100,
       .ranks_max = 3,
       .format = run::ShuffleFormat::kIndirect,
       .open_records = 20'000},
      {.seed = seed + 8, .jobs = 2, .large = true, .format = run::ShuffleFormat::kLossy},
      {.seed = seed + 9,
       .jobs = 2,
       .epochs = 1,
       .records = 100,
       .ranks_max = 3,
       .format = run::ShuffleFormat::kLossy,
       .open_records = 20'000},
  };
}

// One damage of the image, and what it was.
class Damager {
 public:
  Damager(const Made& made, Rng& rng, bool unclosed) : made_(made), rng_(rng), unclosed_(unclosed) {}

  std::string damage(Image* image) {
    static const char* const kParts[] = {".data",  ".index",     ".values",       ".pages", ".source",
                                         "/jobs/", "swale.json", "manifest.json", "/"};
    std::vector<std::string> files;
    while (files.empty()) files = test::files_of(*image, kParts[rng_.below(std::size(kParts))]);
    const std::string path = files[rng_.below(files.size())];
    // A lock that nobody understands is a question for a person.
    if (path.ends_with("swale.lock") || is_last_witness(path)) return "nothing";
    std::string& content = image->at(path);
    uint64_t kind = rng_.below(7);
    // Nothing but its epoch log says how many epochs a job has committed that is not closed: one copy of its
    // last record stays.
    if (unclosed_ && path.ends_with("/epochs")) {
      if (std::exchange(open_log_hit_, true)) return "nothing";
      kind = 0;
    }
    switch (kind) {
      case 0: {
        if (content.empty()) return "nothing";
        const char bit = static_cast<char>(1 << rng_.below(8));
        const size_t at = rng_.below(content.size());
        content[at] ^= bit;
        return fmt::format("a bit of byte {} of {}", at, path);
      }
      case 1: {
        if (content.empty()) return "nothing";
        const size_t at = rng_.below((content.size() + 4095) / 4096) * 4096;
        content.replace(at, std::min<size_t>(4096, content.size() - at),
                        std::string(std::min<size_t>(4096, content.size() - at), '\0'));
        return fmt::format("a page of {} at {}", path, at);
      }
      case 2:
        content.resize(rng_.below(content.size() + 1));
        return fmt::format("{} cut to {}", path, content.size());
      case 3:
        image->erase(path);
        return "without " + path;
      case 4:
        return restore(path, image);
      case 5: {
        const std::string other = files[rng_.below(files.size())];
        if ((unclosed_ && other.ends_with("/epochs")) || other.ends_with("swale.lock") ||
            is_last_witness(other))
          return "nothing";
        std::swap(content, image->at(other));
        return fmt::format("{} and {} swapped", path, other);
      }
      default: {
        if (content.empty()) return "nothing";
        const size_t at = rng_.below(content.size());
        for (size_t i = at; i < std::min(content.size(), at + 64); ++i)
          content[i] = static_cast<char>(rng_.next());
        return fmt::format("64 bytes of {} at {}", path, at);
      }
    }
  }

 private:
  // Both documents and the epoch log tell of the last job's generation. Nobody can know of it where all three
  // are damaged.
  bool is_last_witness(const std::string& path) {
    const std::string directory = kRepairDir;
    std::string job = std::prev(made_.image.upper_bound(directory + "/jobs/9999"))->first;
    job.resize(job.rfind('/'));
    if (path != directory + "/swale.json" && path != job + "/manifest.json" && path != job + "/epochs")
      return false;
    witnesses_.insert(path);
    return witnesses_.size() == 3;
  }

  // As a backup had it that was made after an earlier job.
  std::string restore(const std::string& path, Image* image) {
    if (made_.history.empty()) return "nothing";
    const Image& backup = made_.history[rng_.below(made_.history.size())];
    const auto old = backup.find(path);
    if (old == backup.end()) {
      image->erase(path);
    } else {
      image->at(path) = old->second;
    }
    return path + " from a backup";
  }

  const Made& made_;
  Rng& rng_;
  const bool unclosed_;
  bool open_log_hit_ = false;
  std::set<std::string> witnesses_;  // that were damaged
};

TEST(RepairTruth, AfterRandomDamageAnAnswerIsRightOrAnError) {
  const char* const wanted = std::getenv("SWALE_REPAIRS");
  const uint64_t cases = wanted == nullptr ? 400 : std::strtoull(wanted, nullptr, 10);
  constexpr uint64_t kCasesOfAPlan = 40;
  Counts counts;
  const char* const chosen = std::getenv("SWALE_REPAIRS_SEED");
  const uint64_t seed = chosen == nullptr ? 0 : std::strtoull(chosen, nullptr, 10);
  Rng rng(wanted == nullptr ? 11 : 12 + seed);
  for (uint64_t round = 0; counts.cases < cases; ++round) {
    for (const Plan& plan : plans(1 + seed * 1'000'000 + round * 100)) {
      const Made made = test::make_directory(plan);
      ASSERT_FALSE(testing::Test::HasFailure());
      for (uint64_t i = 0; i < kCasesOfAPlan && counts.cases < cases; ++i) {
        Image image = made.image;
        std::vector<std::string> damages;
        Damager damager(made, rng, plan.open_records > 0);
        for (uint64_t n = 1 + rng.below(3); n > 0; --n) damages.push_back(damager.damage(&image));
        check_case(image, made.truth, i % 8 == 0, &counts);
        ASSERT_FALSE(testing::Test::HasFailure())
            << "seed " << plan.seed << ", case " << i << ":\n  " << joined(damages);
      }
    }
  }
  EXPECT_GT(counts.lossless, counts.cases / 4);
  EXPECT_GT(counts.errors, 0u);
  fmt::print(
      "{} damages: before repair {} right answers and {} errors; after it {} and {}; {} repairs lost "
      "nothing, {} were refused, {} epochs were recovered\n",
      counts.cases, counts.before_right, counts.before_errors, counts.right, counts.errors, counts.lossless,
      counts.refused, counts.recovered);
}

// Of one partition it loses a table, of another one values: the second repair notices both in another place.
TEST(RepairTruth, LossesAreListedInOneOrder) {
  const Made made =
      test::make_directory({.seed = 3909, .jobs = 2, .large = true, .format = run::ShuffleFormat::kLossy});
  Image image = made.image;
  ASSERT_EQ(image.erase("/dir/p000/part-000001.j0002.index"), 1u);
  ASSERT_EQ(image.erase("/dir/p000/part-000000.j0002.values"), 1u);
  ASSERT_EQ(image.erase("/dir/jobs/0002/epochs"), 1u);
  Counts counts;
  check_case(image, made.truth, false, &counts);
  EXPECT_EQ(counts.lossless, 0u);
}

// ---- the cases of issue 11 ----

// Two ranks, two jobs of one epoch each.
Made two_jobs() {
  return test::make_directory({.seed = 5, .jobs = 2, .epochs = 1, .records = 500, .ranks_max = 2});
}

// The first file whose path has these parts and that is not empty.
std::string file_with(const Image& image, std::string_view a, std::string_view b) {
  for (const std::string& path : test::files_of(image, a)) {
    if (path.find(b) != std::string::npos && !image.at(path).empty()) return path;
  }
  ADD_FAILURE() << "no " << a << " " << b;
  return {};
}

// The partition's files of a job as they were after its first epoch.
TEST(RepairTruth, APartitionFromAnOlderBackupIsSaidToBeLost) {
  test::Truth truth;
  Image old;
  io::MemoryDevice device;
  truth.epochs.resize(2);
  run_ranks(2, [&](net::Job& job) {
    WriterOptions options;
    options.memory_bytes = 8 * kMiB;
    auto writer = Writer::open(job, device, kRepairDir, Writer::Create::kIfMissing, options);
    ASSERT_TRUE(writer.ok());
    for (uint32_t epoch = 0; epoch < 2; ++epoch) {
      for (int i = 0; i < 1'000 && job.rank() == 0; ++i) {
        truth.epochs[epoch][fmt::format("key-{}", i)] = {fmt::format("{:032}", i)};
        ASSERT_TRUE((*writer)->append(fmt::format("key-{}", i), fmt::format("{:032}", i)).ok());
      }
      ASSERT_TRUE((*writer)->epoch_end(epoch, 0).ok());
      if (epoch == 0 && job.rank() == 0) old = test::image_of(device);
    }
    ASSERT_TRUE((*writer)->close().ok());
  });
  Image image = test::image_of(device);
  for (const std::string& path : test::files_of(image, "part-000001")) image[path] = old.at(path);
  Counts counts;
  check_case(image, truth, true, &counts);
  EXPECT_EQ(counts.lossless, 0u);
  EXPECT_GT(counts.errors, 0u);
  io::MemoryDevice repaired;
  test::put_back(image, repaired);
  EXPECT_EQ(repair_directory(repaired, kRepairDir, {})->lost_parts, 1u);
  const auto reader = Reader::open(repaired, kRepairDir, {}).value();
  uint64_t records = 0;
  const auto count = [&](uint32_t, Bytes, Bytes) { return ++records > 0; };
  EXPECT_TRUE(reader->scan(0, count).ok()) << "epoch 0 is whole";
  EXPECT_EQ(records, 1'000u);
  const Status scanned = reader->scan(1, count);
  EXPECT_EQ(scanned.code(), Code::kCorruption);
  EXPECT_THAT(std::string(scanned.message()),
              testing::AllOf(testing::HasSubstr("/dir: records of epoch 1 in partition 1 are lost"),
                             testing::HasSubstr("part-000001.j0001.data")));
  EXPECT_FALSE(verify_directory(*reader, 100).problems.empty());
  // With the right files everything is back.
  for (const std::string& path : test::files_of(image, "part-000001")) {
    const std::string right = io::read_file(device, path, kGiB).value();
    ASSERT_TRUE(io::replace_file(repaired, path, right).ok());
  }
  EXPECT_EQ(repair_directory(repaired, kRepairDir, {})->lost_parts, 0u);
  Asker asker(repaired, truth);
  EXPECT_THAT(asker.run(), testing::IsEmpty());
  EXPECT_EQ(asker.errors(), 0u);
}

// Every block of every data log in turn, without its index log.
TEST(RepairTruth, DamagedDataWithAMissingIndexIsSaidToBeLost) {
  const Made made = two_jobs();
  Counts counts;
  for (const std::string& path : test::files_of(made.image, ".data")) {
    std::string index = path;
    index.replace(index.rfind(".data"), 5, ".index");
    for (size_t at = 0; at + 4096 <= made.image.at(path).size(); at += 4096) {
      Image image = made.image;
      image.erase(index);
      image[path][at + 100] ^= 1;
      check_case(image, made.truth, false, &counts);
      ASSERT_FALSE(HasFailure()) << path << " at " << at;
    }
  }
  EXPECT_EQ(counts.lossless, 0u);
  EXPECT_GT(counts.cases, 10u);
  fmt::print("{} damaged blocks\n", counts.cases);
}

// What the index names is still answered where it is whole, and the manifest says what is not.
TEST(RepairTruth, ATornRunWithAnIntactIndexIsRecorded) {
  const Made made = two_jobs();
  const std::string path = file_with(made.image, ".data", ".j0001");
  Image image = made.image;
  ASSERT_GT(image[path].size(), 3u * 4096);
  image[path].replace(4096, 4096, std::string(4096, '\0'));
  io::MemoryDevice device;
  test::put_back(image, device);
  Asker before(device, made.truth);
  EXPECT_THAT(before.run(), testing::IsEmpty());
  const auto report = repair_directory(device, kRepairDir, {}).value();
  EXPECT_EQ(report.lost_parts, 1u);
  EXPECT_EQ(report.indexes_rebuilt, 0u);
  ASSERT_EQ(report.lost.size(), 1u);
  EXPECT_THAT(report.lost[0], testing::HasSubstr(path));
  Asker after(device, made.truth);
  EXPECT_THAT(after.run(), testing::IsEmpty());
  EXPECT_EQ(after.answered(), before.answered());
  const auto reader = Reader::open(device, kRepairDir, {}).value();
  EXPECT_EQ(reader->manifest().lost.size(), 1u);
  EXPECT_FALSE(verify_directory(*reader, 100).problems.empty());
  EXPECT_TRUE(repair_directory(device, kRepairDir, {})->done.empty());
}

// Canary: what repair did before, an index of what is left and nothing in the manifest, is noticed.
TEST(RepairTruth, CanaryAnIndexOfWhatIsLeftIsNoticed) {
  const Made made = two_jobs();
  const std::string path = file_with(made.image, ".data", ".j0001");
  std::string index = path;
  index.replace(index.rfind(".data"), 5, ".index");
  const LogId id = *parse_log_name(path.substr(path.rfind('/') + 1));
  Image image = made.image;
  image.erase(index);
  image[path].replace(4096, 4096, std::string(4096, '\0'));
  io::MemoryDevice device;
  test::put_back(image, device);
  const Manifest manifest = load_manifest(device, kRepairDir).value();
  const auto data = device.open(path, io::OpenMode::kRead).value();
  const auto out = device.open(index, io::OpenMode::kCreate).value();
  const LogFacts facts = gather(true, take_inventory(*data, id.partition, {}).value(), {}, std::nullopt);
  IndexWriter writer =
      IndexWriter::create(*data, *out, 0, run::FooterBuilder(id.partition), manifest.layout).value();
  for (const EpochEntry& epoch : manifest.epochs) {
    if (manifest.job_of(epoch).number != id.job) continue;
    std::vector<run::FieldTotals> totals;
    ASSERT_TRUE(writer
                    .add_epoch(id.partition, manifest.job_of(epoch), epoch, facts.of(epoch.epoch_id).runs,
                               BlockNumber(0), manifest.schema.indexed, &totals)
                    .ok());
  }
  ASSERT_TRUE(writer.finish().ok());
  Asker asker(device, made.truth);
  EXPECT_FALSE(asker.run().empty());
}

// A reader that was opened before the repair meets what it has lost as an error, too, with or without a
// refresh.
TEST(RepairTruth, AReaderFromBeforeTheRepairIsNotSilent) {
  const Made made = two_jobs();
  Image image = made.image;
  const std::string path = file_with(image, ".data", ".j0001");
  std::string index = path;
  index.replace(index.rfind(".data"), 5, ".index");
  image[path].replace(4096, 4096, std::string(4096, '\0'));
  image.erase(index);
  io::MemoryDevice device;
  test::put_back(image, device);
  const auto reader = Reader::open(device, kRepairDir, {}).value();
  ASSERT_EQ(repair_directory(device, kRepairDir, {})->lost_parts, 1u);
  for (const bool refreshed : {false, true}) {
    if (refreshed) {
      ASSERT_TRUE(reader->refresh().ok());
      EXPECT_EQ(reader->manifest().lost.size(), 1u);
    }
    uint64_t errors = 0;
    for (const auto& [key, values] : made.truth.epochs[0]) {
      const auto got = reader->get(key, 0);
      EXPECT_NE(got.status().code(), Code::kNotFound) << key;
      errors += got.ok() ? 0 : 1;
    }
    EXPECT_GT(errors, 0u);
  }
}

// ---- crashes ----

// Repair stops at every call in turn, and the machine with it: every question that was answered before is
// answered the same way, and the next repair ends as the first would have.
TEST(RepairTruth, ACrashOfRepairTakesNothingAway) {
  const Made made = test::make_directory(
      {.seed = 21, .jobs = 2, .epochs = 2, .records = 60, .ranks_max = 2, .open_records = 20'000});
  const std::vector<std::function<void(Image*)>> damages = {
      [](Image*) {},
      [](Image* image) { image->erase(file_with(*image, ".index", ".j0001")); },
      [](Image* image) {
        const std::string path = file_with(*image, ".data", ".j0001");
        image->at(path)[200] ^= 1;
        image->erase(file_with(*image, ".index", ".j0001"));
      },
      [](Image* image) { image->at("/dir/swale.json")[40] ^= 1; },
      [](Image* image) {
        image->erase(file_with(*image, "manifest.json", "0002"));
        image->at("/dir/swale.json")[40] ^= 1;
      },
  };
  uint64_t points = 0;
  for (size_t work = 0; work < damages.size(); ++work) {
    Image image = made.image;
    damages[work](&image);
    for (uint64_t n = 1;; n += 1 + n / 3) {
      io::MemoryDevice memory;
      test::put_back(image, memory);
      Asker before(memory, made.truth);
      ASSERT_THAT(before.run(), testing::IsEmpty());
      io::FaultDevice device(memory);
      device.inject({.nth = n, .from_then_on = true});
      static_cast<void>(repair_directory(device, kRepairDir, {}));
      const bool through = device.faults() == 0;
      Rng rng(n);
      memory.crash(rng, n % 2 == 0 ? io::CrashMode::kDropAll : io::CrashMode::kTearPages);
      Asker after(memory, made.truth);
      EXPECT_THAT(after.run(), testing::IsEmpty());
      EXPECT_TRUE(after.answers_as_much_as(before));
      const auto report = repair_directory(memory, kRepairDir, {});
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      Asker last(memory, made.truth);
      EXPECT_THAT(last.run(), testing::IsEmpty());
      EXPECT_TRUE(last.answers_as_much_as(before));
      EXPECT_TRUE(repair_directory(memory, kRepairDir, {})->done.empty());
      ASSERT_FALSE(HasFailure()) << "damage " << work << ", call " << n;
      ++points;
      if (through) break;
    }
  }
  EXPECT_GT(points, 30u);
  fmt::print("visited {} crashes\n", points);
}

}  // namespace
}  // namespace swale::imd::repair_truth_test
