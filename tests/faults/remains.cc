#include "tests/faults/remains.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "swale/swale.h"

namespace swale::faults {

namespace fs = std::filesystem;

uint64_t rounds() {
  const char* factor = std::getenv("SWALE_FAULT_ROUNDS");
  return factor != nullptr ? std::strtoull(factor, nullptr, 10) : 1;
}

Place::Place(uint64_t seed) : root_(files_.scratch()) {
  const std::string memory = "/dev/shm";
  if (seed % 2 == 0 || !fs::is_directory(memory)) return;
  root_ = memory + "/" + fs::path(files_.scratch()).filename().string();
  fs::create_directory(root_);
}

Place::~Place() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

LaunchParams Place::job(int size, int epochs, uint64_t records, const std::string& id) const {
  LaunchParams params = files_.job(size, epochs, records);
  params.arguments[0] = path();
  params.job_id = id;
  params.rendezvous = files_.scratch() + "/meet-" + id;
  return params;
}

std::vector<std::string> check_epochs(const std::string& path, const Launcher& old, const Launcher* later) {
  const int64_t of_old = promised_epochs(old);
  const int64_t of_later = later != nullptr ? promised_epochs(*later) : 0;
  std::vector<std::string> problems = check_job_files(path, of_old + of_later);
  swale_reader* reader = nullptr;
  if (swale_reader_open(path.c_str(), nullptr, &reader) != SWALE_OK) return problems;
  const int64_t first_later = swale_reader_epoch_count(reader) - of_later;
  if (first_later < of_old || first_later > of_old + 1)
    problems.push_back(fmt::format("{} epochs of the old job, which was told of {}", first_later, of_old));
  for (int64_t epoch = 0; epoch < first_later + of_later; ++epoch) {
    const bool is_old = epoch < first_later;
    const int ranks = is_old || later == nullptr ? old.size() : later->size();
    const uint64_t records = is_old ? kOldRecords : kLaterRecords;
    swale_epoch_info info;
    info.struct_bytes = sizeof info;
    if (swale_reader_epoch_info(reader, epoch, &info) != SWALE_OK || info.step != ranks ||
        info.time != static_cast<double>(records))
      problems.push_back(fmt::format("epoch {} is not the {} job's", epoch, is_old ? "old" : "later"));
  }
  swale_reader_close(reader);
  return problems;
}

std::string Tally::text() const {
  std::string said;
  for (const auto& [code, count] : codes) said += fmt::format(", {} × \"{}\"", count, code);
  return fmt::format("{} cases; {} old ranks told, {} had finished; {} old and {} later epochs read back{}",
                     cases.load(), refused.load(), done.load(), old_epochs.load(), later_epochs.load(), said);
}

void expect_epochs(const std::string& name, const std::string& path, const Launcher& old,
                   const Launcher* later, Tally* tally) {
  for (const std::string& problem : check_epochs(path, old, later))
    ADD_FAILURE() << name << ": " << problem << "\nold job:\n"
                  << old.describe() << "later job:\n"
                  << (later != nullptr ? later->describe() : "");
  if (tally == nullptr) return;
  tally->old_epochs += static_cast<int>(promised_epochs(old));
  tally->later_epochs += later != nullptr ? static_cast<int>(promised_epochs(*later)) : 0;
}

void expect_done(const std::string& name, Launcher* job) {
  ASSERT_TRUE(job->wait_for_ends(kPatience)) << name << ": hangs\n" << job->describe();
  for (int rank = 0; rank < job->size(); ++rank)
    EXPECT_EQ(job->end(rank).status, 0) << name << "\n" << job->describe();
}

void expect_told(const std::string& name, const Launcher& job, int rank, bool must, Tally* tally) {
  const RankEnd& end = job.end(rank);
  EXPECT_EQ(end.signal, 0) << name << "\n" << job.describe();
  EXPECT_EQ(end.find("leaks"), nullptr) << name << "\n" << job.describe();
  const Line* failed = end.find("failed");
  if (failed == nullptr) {
    EXPECT_TRUE(!must && end.status == 0) << name << ": rank " << rank << " was not told\n" << job.describe();
    ++tally->done;
    return;
  }
  bool named = false;
  for (const char* cause : {"rank ", "ranks ", "swale.lock", "has opened the directory after"})
    named |= failed->text.find(cause) != std::string::npos;
  EXPECT_TRUE(named && failed->text.find("internal") == std::string::npos) << name << ": " << failed->text;
  ++tally->refused;
  const std::lock_guard lock(tally->mutex);
  ++tally->codes[failed->text.substr(7, failed->text.find(' ', 7) - 7)];
}

int command(const std::string& words) {
  const int status = std::system(fmt::format("{} {} >/dev/null 2>&1", SWALE_COMMAND, words).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int64_t epochs_of(const std::string& path) {
  swale_reader* reader = nullptr;
  if (swale_reader_open(path.c_str(), nullptr, &reader) != SWALE_OK) return -1;
  const int64_t count = swale_reader_epoch_count(reader);
  swale_reader_close(reader);
  return count;
}

void expect_whole(const std::string& name, const std::string& path, int64_t epochs) {
  EXPECT_EQ(epochs_of(path), epochs) << name;
  for (const std::string& problem : check_job_files(path, epochs)) ADD_FAILURE() << name << ": " << problem;
}

void stop_all(Launcher* job) {
  for (int rank = 0; rank < job->size(); ++rank) job->send_signal(rank, SIGSTOP);
  const auto stopped = [&](int rank) {
    std::ifstream file(fmt::format("/proc/{}/stat", job->pid(rank)));
    std::string number, name, state;
    file >> number >> name >> state;
    return state == "T";
  };
  for (int rank = 0; rank < job->size(); ++rank) {
    while (!job->end(rank).ended && !stopped(rank) && job->now() < kPatience) job->watch(Seconds(0.001));
  }
}

void remove_tree(const std::string& path) {
  std::error_code error;
  for (int attempt = 0; attempt < 100 && fs::exists(path); ++attempt) fs::remove_all(path, error);
}

void watch_at_random(Rng* rng, uint64_t microseconds_max, Launcher* job) {
  job->watch(Seconds(static_cast<double>(rng->below(microseconds_max)) / 1e6));
}

}  // namespace swale::faults
