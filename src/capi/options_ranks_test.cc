// Ranks that differ in an option: either opening is refused on all of them by name, or every record is read
// back. Each row of the tables, as a string and as a variable; and options that are the same on all ranks, at
// random.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/coding.h"
#include "base/log.h"
#include "base/rng.h"
#include "capi/options.h"
#include "imd/format/generation.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/testing/device_test_fixture.h"
#include "net/job/opening.h"

namespace swale::capi::options_ranks_test {
namespace {

using imd::Writer;
using testing::HasSubstr;

constexpr uint32_t kEpochs = 2;
constexpr uint64_t kRecords = 300;  // of a rank in an epoch
constexpr char kSmall[] = "imd.memory=24M,";
constexpr char kSchema[] = "imd.schema=e:f8;n:u8,";
constexpr char kPartitioner[] = "by_last_byte";

uint32_t by_last_byte(void*, const void* key, size_t key_bytes, uint32_t partitions) {
  return static_cast<const unsigned char*>(key)[key_bytes - 1] % partitions;
}

// SWALE_OPTION_CASES: how many random cases instead (make test-long).
uint64_t random_cases() {
  const char* cases = std::getenv("SWALE_OPTION_CASES");
  return cases != nullptr ? std::strtoull(cases, nullptr, 10) : 60;
}

std::string whole(double number) { return fmt::format("{:.0f}", number); }

// Legal values of a row; a row of text that is not known here fails the test.
std::vector<std::string> values_of(const OptionRow& row) {
  static const std::map<std::string_view, std::vector<std::string>> chosen = {
      {"imd.memory", {"0", "1", "6M", "64M"}},  // its largest is more than machines have
      {"imd.schema", {"", "e:f8;n:u8", "x:u8;y:u8"}},
      {"imd.extrema", {"", "e", "n;e"}},
      {"imd.partitioner", {"hash", kPartitioner}},
      {"imd.resume_after", {"", "0", "-5", "1000"}},
      {"job.node", {"", "node-7"}},
  };
  if (const auto found = chosen.find(row.name); found != chosen.end()) return found->second;
  std::vector<std::string> values;
  switch (row.type) {
    case OptionType::kEnum:
      for (std::string_view rest = row.choices; !rest.empty();) {
        const size_t end = std::min(rest.find('|'), rest.size());
        values.emplace_back(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
      return values;
    case OptionType::kInt:
    case OptionType::kBytes:
    case OptionType::kSeconds:
      for (const double number : {row.min, (row.min + row.max) / 2, row.max}) {
        values.push_back(row.type == OptionType::kSeconds ? fmt::format("{:.3f}", number) : whole(number));
      }
      return values;
    case OptionType::kBool:
      return {"yes", "no"};
    case OptionType::kString:
      break;
  }
  ADD_FAILURE() << "add a value for row " << row.name;
  return {};
}

// What one rank is given.
struct Given {
  std::string text;
  std::map<std::string, std::string> variables = {};
  Writer::Create create = Writer::Create::kIfMissing;

  Environment environment() const {
    return [variables = variables](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    };
  }
};

// All ranks' options: `usual`, but for `odd`'s.
std::vector<Given> but_one(int32_t ranks, const Given& usual, int32_t odd, const Given& other) {
  std::vector<Given> given(static_cast<size_t>(ranks), usual);
  given[static_cast<size_t>(odd)] = other;
  return given;
}

// Where a case writes: in memory, or below a directory of the machine, with the storage options of each rank.
class Place {
 public:
  explicit Place(bool real) {
    if (real) folder_.emplace();
  }
  std::string directory() const { return folder_ ? folder_->path() + "/dir" : "/dir"; }
  std::shared_ptr<io::Device> device(const io::PosixOptions& options = {}) {
    if (folder_) return std::make_shared<io::PosixDevice>(options);
    return {std::shared_ptr<void>(), &memory_};
  }

 private:
  io::MemoryDevice memory_;
  std::optional<io::TemporaryDirectory> folder_;
};

using Records = std::multiset<std::pair<std::string, std::string>>;

// What was committed, by epoch.
class Truth {
 public:
  void add(uint32_t epoch, const Records& records) {
    const std::lock_guard lock(mutex_);
    epochs_[epoch].insert(records.begin(), records.end());
  }
  uint32_t epochs() const { return static_cast<uint32_t>(epochs_.size()); }
  // As imd.resume_after: steps are numbers of epochs here. What is dropped.
  std::map<uint32_t, Records> drop_after(int64_t step) {
    std::map<uint32_t, Records> dropped;
    while (!epochs_.empty() && epochs_.rbegin()->first > step)
      dropped.insert(epochs_.extract(--epochs_.end()));
    return dropped;
  }
  void restore(std::map<uint32_t, Records> dropped) { epochs_.merge(dropped); }
  Records& at(uint32_t epoch) { return epochs_.at(epoch); }

  // Every record by scan and by key; else what is wrong.
  Status compare(io::Device& device, const std::string& directory) const {
    SWALE_ASSIGN_OR_RETURN(const auto reader, imd::Reader::open(device, directory, {}));
    if (reader->manifest().epochs.size() != epochs_.size())
      return corruption("{} epochs, not {}", reader->manifest().epochs.size(), epochs_.size());
    for (const auto& [epoch, expected] : epochs_) {
      Records found;
      SWALE_RETURN_IF_ERROR(reader->scan(epoch, [&](uint32_t, Bytes key, Bytes value) {
        found.emplace(key, value);
        return true;
      }));
      if (found != expected)
        return corruption("epoch {}: {} records, not {}, or others", epoch, found.size(), expected.size());
      for (const auto& [key, value] : expected) {
        SWALE_ASSIGN_OR_RETURN(const auto values, reader->get(key, epoch));
        if (values.size() != 1 || values.front().bytes != value)
          return corruption("epoch {}: get has {} values", epoch, values.size());
      }
    }
    return {};
  }

 private:
  std::mutex mutex_;  // guards epochs_
  std::map<uint32_t, Records> epochs_;
};

// Opens as swale_dir_open does.
Result<std::unique_ptr<Writer>> open_as_given(net::Job& job, Place& place, const Given& given,
                                              std::shared_ptr<io::Device>* device) {
  imd::WriterOptions options;
  const auto parse = [&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(options, writer_options(given.text, given.environment()));
    SWALE_ASSIGN_OR_RETURN(const io::PosixOptions storage,
                           storage_options(Call::kWrite, given.text, given.environment()));
    if (options.partitioner.name == kPartitioner) options.partitioner.function = by_last_byte;
    *device = place.device(storage);
    return {};
  };
  const std::string directory = place.directory();
  SWALE_RETURN_IF_ERROR(net::begin_collective(job, net::CallKind::kOpenDirectory, directory, parse()));
  return Writer::open(job, **device, directory, given.create, options);
}

Records records_of(uint32_t epoch, int32_t rank) {
  Records records;
  for (uint64_t i = 0; i < kRecords; ++i) {
    Rng rng((uint64_t{epoch} << 40) + (static_cast<uint64_t>(rank) << 32) + i);
    std::string key;
    append_u64(&key, rng.next());
    std::string value;
    append_double(&value, static_cast<double>(rng.below(1'000'000)));
    append_u64(&value, rng.next());
    records.emplace(std::move(key), std::move(value));
  }
  return records;
}

// The epochs of one job, from `first` on. All ranks' answers to the opening.
std::vector<Status> run_job(Place& place, const std::vector<Given>& given, uint32_t first, Truth* truth) {
  std::vector<Status> told(given.size());
  imd::run_ranks(static_cast<int32_t>(given.size()), [&](net::Job& job) {
    const auto rank = static_cast<size_t>(job.rank());
    std::shared_ptr<io::Device> device;
    auto writer = open_as_given(job, place, given[rank], &device);
    told[rank] = writer.status();
    if (!writer.ok()) return;
    for (uint32_t epoch = first; epoch < first + kEpochs; ++epoch) {
      const Records records = records_of(epoch, job.rank());
      for (const auto& [key, value] : records) {
        const Status appended = (*writer)->append(key, value);
        ASSERT_TRUE(appended.ok()) << appended.to_string();
      }
      const Status ended = (*writer)->epoch_end(epoch, epoch);
      ASSERT_TRUE(ended.ok()) << given[rank].text << ": " << ended.to_string();
      truth->add(epoch, records);
    }
    const Status closed = (*writer)->close();
    ASSERT_TRUE(closed.ok()) << closed.to_string();
  });
  return told;
}

// All ranks say the same.
void expect_one_status(const std::vector<Status>& told, const std::string& what) {
  for (const Status& status : told) {
    EXPECT_EQ(status.code(), told.front().code()) << what << ": " << status.to_string();
    EXPECT_EQ(status.message(), told.front().message()) << what;
  }
}

struct Count {
  uint64_t points = 0;
  uint64_t refused = 0;
  uint64_t accepted = 0;
};

// One case: perhaps a job before it, the job, what it has written, a later job with defaults.
Status run_case(const std::vector<Given>& given, bool real, bool existing, const std::string& what,
                Count* count) {
  Place place(real);
  Truth truth;
  const std::vector<Given> usual(given.size(), {.text = kSmall});
  if (existing) {
    const std::string schema = given.front().text.find(kSchema) != std::string::npos ? kSchema : "";
    expect_one_status(run_job(place, {2, {.text = kSmall + schema}}, 0, &truth), what);
  }
  std::map<uint32_t, Records> dropped;
  const auto options = writer_options(given.front().text, given.front().environment());
  if (options.ok() && options->resume_after) dropped = truth.drop_after(*options->resume_after);
  const uint32_t before = truth.epochs();
  const std::vector<Status> told = run_job(place, given, before, &truth);
  expect_one_status(told, what);
  ++count->points;
  ++(told.front().ok() ? count->accepted : count->refused);
  if (!told.front().ok()) truth.restore(std::move(dropped));
  const auto device = place.device();
  if (told.front().ok()) {
    EXPECT_EQ(truth.epochs(), before + kEpochs) << what;
    const Status compared = truth.compare(*device, place.directory());
    EXPECT_TRUE(compared.ok()) << what << ": " << compared.to_string();
  }
  // The directory is none the worse for it.
  const std::vector<Status> later = run_job(place, usual, truth.epochs(), &truth);
  EXPECT_TRUE(later.front().ok()) << what << ": " << later.front().to_string();
  const Status compared = truth.compare(*device, place.directory());
  EXPECT_TRUE(compared.ok()) << what << ", after the later job: " << compared.to_string();
  return told.front();
}

// What the other options of a case must be, so that any value of the row is legal.
std::string base_of(const OptionRow& row) {
  if (row.name == "imd.memory") return "";
  return row.name == "imd.extrema" ? std::string(kSmall) + kSchema : kSmall;
}

class Quiet {
 public:
  Quiet() { set_log_level(LogLevel::kOff); }
  ~Quiet() { set_log_level(LogLevel::kWarn); }
};

TEST(OptionsOfRanks, OneThatDiffersIsRefusedByNameOrEverythingIsReadBack) {
  const Quiet quiet;
  Count count;
  std::set<std::string> refused_rows;
  uint64_t values = 0;
  for (const OptionRow& row : rows_of(Call::kWrite)) {
    const bool real = row.name.starts_with("io.");
    for (const std::string& value : values_of(row)) {
      ++values;
      for (const bool variable : {false, true}) {
        for (const bool existing : {false, true}) {
          if (real && existing) continue;  // slow
          const int32_t ranks = variable == existing ? 2 : 3;
          const auto odd = static_cast<int32_t>(count.points % static_cast<uint64_t>(ranks));
          const Given usual{.text = base_of(row)};
          Given other = usual;
          if (variable) {
            other.variables[Config::environment_name(row.name)] = value;
          } else {
            other.text += fmt::format("{}={}", row.name, value);
          }
          const std::string what =
              fmt::format("{}={} on rank {} of {}, {}, {} directory", row.name, value, odd, ranks,
                          variable ? "by variable" : "by string", existing ? "an existing" : "a new");
          const Status told = run_case(but_one(ranks, usual, odd, other), real, existing, what, &count);
          if (told.ok()) continue;
          EXPECT_THAT(std::string(told.message()), HasSubstr(std::string(row.name))) << what;
          EXPECT_THAT(std::string(told.message()), HasSubstr(fmt::format("rank {}", odd))) << what;
          refused_rows.emplace(row.name);
        }
      }
    }
  }
  fmt::print("{} rows, {} values, {} points: {} refused, {} accepted and read back\n",
             rows_of(Call::kWrite).size(), values, count.points, count.refused, count.accepted);
  // Neither way out is the only one.
  EXPECT_TRUE(refused_rows.contains("imd.ways"));
  EXPECT_GT(count.accepted, count.points / 4);
}

TEST(OptionsOfRanks, TheSameOnAllRanksAtRandom) {
  const Quiet quiet;
  Count count;
  const uint64_t cases = random_cases();
  for (uint64_t number = 0; number < cases; ++number) {
    Rng rng(number + 1);
    const auto ranks = static_cast<int32_t>(1 + rng.below(3));
    Given given{.text = std::string(kSmall) + kSchema};
    for (const OptionRow& row : rows_of(Call::kWrite)) {
      if (!rng.chance(1, 4)) continue;
      const std::vector<std::string> values = values_of(row);
      ASSERT_FALSE(values.empty());
      const std::string& value = values[rng.below(values.size())];
      if (rng.chance(1, 2)) {
        given.text += fmt::format("{}={},", row.name, value);
      } else {
        given.variables[Config::environment_name(row.name)] = value;
      }
    }
    std::string what = fmt::format("case {}: {} ranks, \"{}\"", number, ranks, given.text);
    for (const auto& [name, value] : given.variables) what += fmt::format(" {}={}", name, value);
    const std::vector<Given> all(static_cast<size_t>(ranks), given);
    static_cast<void>(run_case(all, rng.chance(1, 8), rng.chance(1, 2), what, &count));
  }
  fmt::print("{} random cases: {} refused, {} accepted and read back\n", count.points, count.refused,
             count.accepted);
  EXPECT_GT(count.accepted, count.points / 4);
}

TEST(OptionsOfRanks, FlagsThatDifferGiveOneAnswer) {
  const Quiet quiet;
  constexpr std::array kModes = {Writer::Create::kNever, Writer::Create::kIfMissing,
                                 Writer::Create::kExclusive};
  Count count;
  for (const Writer::Create usual : kModes) {
    for (const Writer::Create other : kModes) {
      if (usual == other) continue;
      for (const bool existing : {false, true}) {
        for (const int32_t odd : {0, 1, 2}) {
          const std::string what = fmt::format("flags {} and {} on rank {}", static_cast<int>(usual),
                                               static_cast<int>(other), odd);
          const Status told =
              run_case(but_one(3, {.text = kSmall, .create = usual}, odd, {.text = kSmall, .create = other}),
                       false, existing, what, &count);
          EXPECT_EQ(told.code(), Code::kInvalidArgument) << what;
          EXPECT_THAT(std::string(told.message()), HasSubstr("flags")) << what;
          EXPECT_THAT(std::string(told.message()), HasSubstr(fmt::format("rank {}", odd))) << what;
        }
      }
    }
  }
  fmt::print("{} points: {} refused, {} accepted\n", count.points, count.refused, count.accepted);
}

TEST(OptionsOfRanks, DirectoriesAreMadeByRanksThatAgree) {
  const Quiet quiet;
  Place place(false);
  imd::run_ranks(2, [&](net::Job& job) {
    const std::shared_ptr<io::Device> device = place.device();
    const auto options = writer_options(job.rank() == 1 ? kSchema : "", Given().environment());
    ASSERT_TRUE(options.ok());
    const Status made = imd::make_massive_directory(job, *device, "/dir", *options);
    EXPECT_EQ(made.code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(made.message()), HasSubstr("imd.schema"));
    EXPECT_TRUE(imd::make_massive_directory(job, *device, "/dir").ok());
  });
}

// A job whose ranks have these options: what it writes is read back.
void check_job(const std::vector<net::JobOptions>& options, const std::string& what) {
  Place place(false);
  Truth truth;
  const auto ranks = static_cast<int32_t>(options.size());
  const auto group = std::make_shared<net::LocalGroup>(ranks);
  std::vector<std::thread> threads;
  for (net::Rank rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto job = net::Job::open(net::local_bootstrap(group, rank), options[static_cast<size_t>(rank)]);
      ASSERT_TRUE(job.ok()) << what << ": " << job.status().to_string();
      std::shared_ptr<io::Device> device;
      auto writer = open_as_given(**job, place, {.text = kSmall}, &device);
      ASSERT_TRUE(writer.ok()) << what << ": " << writer.status().to_string();
      const Records records = records_of(0, rank);
      for (const auto& [key, value] : records) EXPECT_TRUE((*writer)->append(key, value).ok());
      const Status ended = (*writer)->epoch_end(0, 0);
      EXPECT_TRUE(ended.ok()) << what << ": " << ended.to_string();
      truth.add(0, records);
      EXPECT_TRUE((*writer)->close().ok());
      EXPECT_TRUE((*job)->close().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Status compared = truth.compare(*place.device(), place.directory());
  EXPECT_TRUE(compared.ok()) << what << ": " << compared.to_string();
}

// A job whose ranks must not differ in this option: all are told.
void expect_refused(const std::vector<net::JobOptions>& options, const std::string& name) {
  const auto ranks = static_cast<int32_t>(options.size());
  const auto group = std::make_shared<net::LocalGroup>(ranks);
  std::vector<std::thread> threads;
  for (net::Rank rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto job = net::Job::open(net::local_bootstrap(group, rank), options[static_cast<size_t>(rank)]);
      ASSERT_FALSE(job.ok()) << name;
      EXPECT_THAT(std::string(job.status().message()), HasSubstr(name));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(OptionsOfRanks, OfTheJobThatDiffer) {
  const Quiet quiet;
  // How a launched job meets: there is nothing of it among threads.
  const std::set<std::string_view> launched = {"job.transport", "job.rendezvous", "job.id",
                                               "job.join_deadline_s"};
  uint64_t points = 0;
  uint64_t told_alone = 0;
  for (const OptionRow& row : rows_of(Call::kJob)) {
    if (launched.contains(row.name)) continue;
    for (const std::string& value : values_of(row)) {
      const Given other{.text = fmt::format("job.transport=loopback,{}={}", row.name, value)};
      const auto usual = job_settings("job.transport=loopback", Given().environment());
      ASSERT_TRUE(usual.ok());
      const auto differs = job_settings(other.text, other.environment());
      ++points;
      if (!differs.ok()) {  // a contradiction, which a rank is told before it meets the others
        ++told_alone;
        EXPECT_THAT(std::string(differs.status().message()), HasSubstr(std::string(row.name)));
        continue;
      }
      std::vector<net::JobOptions> options(2 + points % 2, usual->job);
      options[points % options.size()] = differs->job;
      if (row.name == "net.route") {
        if (value != row.default_value) expect_refused(options, "net.route");
        options.assign(options.size(), differs->job);
      }
      check_job(options, other.text);
    }
  }
  fmt::print("{} points: {} told before the ranks meet, {} read back\n", points, told_alone,
             points - told_alone);
  EXPECT_GT(points, 2 * told_alone);
}

TEST(OptionsOfRanks, ACanaryTheComparisonSeesWhatIsMissingOrOther) {
  const Quiet quiet;
  Place place(false);
  Truth truth;
  ASSERT_TRUE(run_job(place, {2, {.text = std::string(kSmall) + "imd.ways=2"}}, 0, &truth).front().ok());
  io::Device& device = *place.device();
  ASSERT_TRUE(truth.compare(device, "/dir").ok());
  // A record more, a record less, another value.
  Records& records = truth.at(1);
  const Records all = records;
  records.erase(records.begin());
  EXPECT_FALSE(truth.compare(device, "/dir").ok());
  records = all;
  records.emplace("more", "value");
  EXPECT_FALSE(truth.compare(device, "/dir").ok());
  records = all;
  const std::string key = records.begin()->first;
  records.erase(records.begin());
  records.emplace(key, "other");
  EXPECT_FALSE(truth.compare(device, "/dir").ok());
  records = all;
  ASSERT_TRUE(truth.compare(device, "/dir").ok());
  // What ranks that differ in imd.ways would leave: rank 0 says one way, and two wrote.
  auto manifest = imd::load_manifest(device, "/dir");
  ASSERT_TRUE(manifest.ok());
  manifest->jobs.back().ways = 1;
  ASSERT_TRUE(imd::rewrite_document(device, "/dir", *manifest).ok());
  const Status forged = truth.compare(device, "/dir");
  fmt::print("forged ways: {}\n", forged.to_string());
  EXPECT_FALSE(forged.ok());
}

}  // namespace
}  // namespace swale::capi::options_ranks_test
