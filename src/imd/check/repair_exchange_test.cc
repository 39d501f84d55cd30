// Files in the wrong place: exchanged, copied over each other or put back from an older copy, while documents
// or epoch logs are lost; then repair; every query before and after. The names of files say of which job and
// partition they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "imd/check/repair.h"
#include "imd/format/log_names.h"
#include "imd/testing/test_repair.h"
#include "imd/testing/test_repair_case.h"

namespace swale::imd::repair_exchange_test {
namespace {

using test::check_case;
using test::Counts;
using test::files_of;
using test::Image;
using test::kRepairDir;
using test::Made;
using test::Plan;

std::string index_of(uint32_t job, uint32_t partition) {
  return index_log_path(kRepairDir, {job, PartitionNumber(partition)});
}

std::string data_of(uint32_t job, uint32_t partition) {
  return data_log_path(kRepairDir, {job, PartitionNumber(partition)});
}

// Asks what is right before repair, too.
void expect_right(const Image& image, const Made& made) {
  Counts counts;
  check_case(image, made.truth, false, &counts);
}

// The index log of partition 0 of the second job has the first job's epochs then. It does not have the keys
// of partition 1.
TEST(RepairExchange, AnExchangedIndexLogMakesNoEpochOfAnotherJob) {
  const Made made = test::make_directory({.seed = 1, .epochs = 1, .ranks = {2, 1}, .ways = 1});
  Image image = made.image;
  std::swap(image.at(index_of(1, 0)), image.at(index_of(2, 0)));
  image.erase(epoch_log_path(kRepairDir, 2));
  expect_right(image, made);
}

// Then nobody can say whose the last epoch is, and the first one is still not the second job's.
TEST(RepairExchange, WithoutDocumentsAnExchangedIndexLogMakesNoEpochOfAnotherJob) {
  const Made made = test::make_directory({.seed = 1, .epochs = 1, .ranks = {2, 1}, .ways = 1});
  Image image = made.image;
  std::swap(image.at(index_of(1, 0)), image.at(index_of(2, 0)));
  image.erase(manifest_path(kRepairDir));
  for (const std::string& path : files_of(made.image, "/jobs/")) image.erase(path);
  expect_right(image, made);
}

// Only logs tell of the second job's epochs. The first job has dropped records for the same number.
TEST(RepairExchange, AnExchangedDataLogBringsNoDroppedEpochBack) {
  for (const std::vector<int32_t>& ranks : {std::vector<int32_t>{2, 2}, {2, 1}, {1, 1}, {1, 2}}) {
    const Made made = test::make_directory({.seed = 2, .ranks = ranks, .ways = 1, .dropped = 1});
    for (const bool both : {false, true}) {
      Image image = made.image;
      std::swap(image.at(data_of(1, 0)), image.at(data_of(2, 0)));
      if (both) std::swap(image.at(index_of(1, 0)), image.at(index_of(2, 0)));
      image.erase(epoch_log_path(kRepairDir, 2));
      expect_right(image, made);
      EXPECT_FALSE(HasFailure()) << ranks[0] << " and " << ranks[1] << " ranks, both: " << both;
    }
  }
}

// A log that says that it is another generation's is not this one's.
TEST(RepairExchange, TheEpochLogOfAnOlderGenerationBringsNoDroppedEpochBack) {
  const Made made = test::make_directory({.seed = 3, .ranks = {2, 2}, .ways = 1, .dropped = 1});
  for (const bool swapped : {false, true}) {
    Image image = made.image;
    std::string& older = image.at(epoch_log_path(kRepairDir, 1));
    std::string& newest = image.at(epoch_log_path(kRepairDir, 2));
    if (swapped) {
      std::swap(older, newest);
    } else {
      newest = older;
    }
    expect_right(image, made);
    EXPECT_FALSE(HasFailure()) << (swapped ? "swapped" : "copied");
  }
}

// A directory in which repair has copied an open epoch into files of its own job, number 3.
Made repaired() {
  Made made =
      test::make_directory({.seed = 4, .records = 60, .open_records = 20'000, .ranks = {2, 2}, .ways = 1});
  io::MemoryDevice device;
  test::put_back(made.image, device);
  EXPECT_EQ(repair_directory(device, kRepairDir, {}).value().epochs_recovered, 1u);
  made.history.push_back(std::move(made.image));
  made.image = test::image_of(device);
  return made;
}

// The id of such an epoch is the dead job's.
TEST(RepairExchange, WhatRepairHasCopiedIsRepairsWithoutARecord) {
  const Made made = repaired();
  io::MemoryDevice device;
  Image image = made.image;
  image.erase(epoch_log_path(kRepairDir, 3));
  test::put_back(image, device);
  ASSERT_TRUE(repair_directory(device, kRepairDir, {}).ok());
  const Manifest manifest = Reader::open(device, kRepairDir, {}).value()->manifest();
  ASSERT_EQ(manifest.epochs.size(), made.truth.epochs.size() + 1);
  EXPECT_EQ(manifest.job_of(manifest.epochs.back()).number, 3u);
  EXPECT_FALSE(manifest.has_lost(manifest.epochs.back()));
  expect_right(image, made);
}

// ---- every file in every other file's place ----

// Of names of which one may be missing, too.
void exchange(const std::string& a, const std::string& b, Image* image) {
  auto first = image->extract(a);
  auto second = image->extract(b);
  if (first) {
    first.key() = b;
    image->insert(std::move(first));
  }
  if (second) {
    second.key() = a;
    image->insert(std::move(second));
  }
}

// Whether the last file of this name is still under this name, of whatever job.
bool has_the_last(const Image& image, const Made& made, const char* name) {
  const std::string& content = made.image.at(files_of(made.image, name).back());
  return std::ranges::any_of(files_of(image, name),
                             [&](const std::string& path) { return image.at(path) == content; });
}

// Whether it can be known of the last generation what it has. Of a job that is not closed only its epoch log
// says it.
bool tells_of_the_last(const Image& image, const Made& made) {
  if (has_the_last(image, made, "/epochs")) return true;
  if (!made.truth.uncommitted.empty()) return false;
  const auto document = image.find(manifest_path(kRepairDir));
  return has_the_last(image, made, "/manifest.json") ||
         (document != image.end() && document->second == made.image.at(document->first));
}

struct Change {
  std::string what;
  std::function<void(Image*)> apply;
};

// What else may be lost at the same time.
std::vector<Change> losses(const Made& made) {
  const std::vector<std::string> logs = files_of(made.image, "/epochs");
  const std::vector<std::string> documents = files_of(made.image, "/manifest.json");
  const auto lose = [](std::vector<std::string> paths) {
    return [paths](Image* image) {
      for (const std::string& path : paths) image->erase(path);
    };
  };
  std::vector<std::string> all_documents = documents;
  all_documents.push_back(manifest_path(kRepairDir));
  std::vector<Change> losses = {{"nothing", lose({})},
                                {"the last documents", lose({manifest_path(kRepairDir), documents.back()})},
                                {"all documents", lose(all_documents)}};
  losses.push_back({"the last epoch log", lose({logs.back()})});
  losses.push_back({"all epoch logs", lose(logs)});
  return losses;
}

// In other jobs, and in other partitions of the same job.
void add_exchanges(const std::vector<std::string>& files, std::vector<Change>* changes) {
  const auto id_of = [](const std::string& path) { return parse_log_name(path.substr(path.rfind('/') + 1)); };
  for (const std::string& from : files) {
    for (const std::string& to : files) {
      const auto a = id_of(from);
      const auto b = id_of(to);
      if (from == to || (a && b && a->job != b->job && a->partition != b->partition)) continue;
      const auto has_both = [from, to](const Image& image) {
        return image.contains(from) && image.contains(to);
      };
      if (from < to) {
        changes->push_back({from + " and " + to + " exchanged", [=](Image* image) {
                              if (has_both(*image)) std::swap(image->at(from), image->at(to));
                            }});
      }
      changes->push_back({from + " in the place of " + to, [=](Image* image) {
                            if (has_both(*image)) image->at(to) = image->at(from);
                          }});
    }
  }
}

// All files of a partition of two jobs.
void add_partitions(const Made& made, std::vector<Change>* changes) {
  for (const std::string& path : files_of(made.image, ".j0001.index")) {
    const std::string stem = path.substr(0, path.rfind(".j0001"));
    for (const std::string& other : files_of(made.image, stem)) {
      const size_t at = other.rfind(".j");
      if (!other.ends_with(".index") || other.substr(at, 6) == ".j0001") continue;
      changes->push_back(
          {path + " and " + other + " exchanged, with all others of the partition", [=](Image* image) {
             for (const char* const kind : {"index", "data", "values", "pages", "source"}) {
               exchange(fmt::format("{}.j0001.{}", stem, kind),
                        fmt::format("{}{}.{}", stem, other.substr(at, 6), kind), image);
             }
           }});
    }
  }
}

void add_older_copies(const Made& made, std::vector<Change>* changes) {
  for (const Image& backup : made.history) {
    for (const auto& [path, content] : backup) {
      const auto now = made.image.find(path);
      if (now == made.image.end() || now->second == content) continue;
      changes->push_back({path + " as it was", [path, content](Image* image) {
                            if (image->contains(path)) image->at(path) = content;
                          }});
    }
  }
}

std::vector<Change> changes(const Made& made) {
  std::vector<Change> changes;
  for (const char* const kind :
       {".data", ".index", ".values", ".pages", ".source", "/manifest.json", "/epochs", "/extrema"})
    add_exchanges(files_of(made.image, kind), &changes);
  add_partitions(made, &changes);
  add_older_copies(made, &changes);
  return changes;
}

void expect_right_or_errors(const Made& made) {
  Counts counts;
  for (const Change& loss : losses(made)) {
    for (const Change& change : changes(made)) {
      Image image = made.image;
      change.apply(&image);
      loss.apply(&image);
      if (!tells_of_the_last(image, made)) continue;
      check_case(image, made.truth, false, &counts);
      ASSERT_FALSE(testing::Test::HasFailure()) << change.what << "; lost: " << loss.what;
    }
  }
  EXPECT_GT(counts.right, counts.cases);
  EXPECT_GT(counts.errors, 0u);
  fmt::print("{} cases: {} right answers and {} errors before, {} and {} after repair\n", counts.cases,
             counts.before_right, counts.before_errors, counts.right, counts.errors);
}

class RepairExchanges : public testing::TestWithParam<Plan> {};

TEST_P(RepairExchanges, AnAnswerIsRightOrAnError) {
  expect_right_or_errors(test::make_directory(GetParam()));
}

// The open epoch of a job that died, and repair's copy of it in files of repair's own job.
TEST(RepairExchange, AfterAnEarlierRepairAnAnswerIsRightOrAnError) { expect_right_or_errors(repaired()); }

INSTANTIATE_TEST_SUITE_P(
    Plans, RepairExchanges,
    testing::Values(Plan{.seed = 11, .jobs = 3, .ranks = {2, 1, 2}},
                    Plan{.seed = 12, .ranks = {1, 3}, .ways = 1},
                    Plan{.seed = 13, .ranks = {2, 2}, .ways = 1},
                    Plan{.seed = 14, .ranks = {2, 1}, .ways = 1, .dropped = 1},
                    Plan{.seed = 15, .ranks = {2, 2}, .ways = 2, .dropped = 1},
                    Plan{.seed = 16, .ranks = {1, 2}, .dropped = 1},
                    Plan{.seed = 17, .records = 60, .open_records = 20'000, .ranks = {2, 2}, .ways = 1},
                    Plan{.seed = 18, .large = true, .ranks = {2, 2}, .ways = 1, .dropped = 1},
                    Plan{.seed = 19, .large = true, .format = run::ShuffleFormat::kIndirect, .ranks = {2, 2}},
                    Plan{.seed = 20, .large = true, .format = run::ShuffleFormat::kLossy, .ranks = {2, 3}}));

}  // namespace
}  // namespace swale::imd::repair_exchange_test
