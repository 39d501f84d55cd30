// What is left of a job lives on beside the next one: its ranks were orphaned, stopped and woken, or lost their directory
// or its lock (issue 11, A1, A8 and A10). SWALE_FAULT_ROUNDS multiplies the cases (make test-long).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>

#include "base/rng.h"
#include "swale/swale.h"
#include "tests/faults/job_files.h"
#include "tests/faults/launcher.h"

namespace swale::faults {
namespace {

namespace fs = std::filesystem;

constexpr Seconds kPatience(120);  // for what must happen: hanging is a failure, being slow is not

// A job's epochs are told from another's by their records.
constexpr uint64_t kOldRecords = 900;
constexpr uint64_t kLaterRecords = 700;
constexpr int kLaterEpochs = 2;

uint64_t rounds() {
  const char* factor = std::getenv("SWALE_FAULT_ROUNDS");
  return factor != nullptr ? std::strtoull(factor, nullptr, 10) : 1;
}

// Where the jobs of a case write: on /tmp, or in memory.
class Place {
 public:
  explicit Place(uint64_t seed) : root_(files_.scratch()) {
    const std::string memory = "/dev/shm";
    if (seed % 2 == 0 || !fs::is_directory(memory)) return;
    root_ = memory + "/" + fs::path(files_.scratch()).filename().string();
    fs::create_directory(root_);
  }
  ~Place() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  std::string path() const { return root_ + "/directory"; }
  std::string other_path() const { return root_ + "/other"; }

  LaunchParams old_job(int size, int epochs) const { return job(size, epochs, kOldRecords, "old"); }
  LaunchParams later_job(int size) const { return job(size, kLaterEpochs, kLaterRecords, "later"); }

 private:
  // A scheduler gives the next job another id; the rendezvous directory is of the job, too.
  LaunchParams job(int size, int epochs, uint64_t records, const std::string& id) const {
    LaunchParams params = files_.job(size, epochs, records);
    params.arguments[0] = path();
    params.job_id = id;
    params.rendezvous = files_.scratch() + "/meet-" + id;
    return params;
  }

  JobFiles files_;
  std::string root_;
};

// What is wrong: check_job_files, and whose each epoch is. The old job's come first, at least those which it was told of;
// then exactly those of the later job, if there was one.
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

struct Tally {
  std::atomic<int> cases{0}, refused{0}, done{0}, old_epochs{0}, later_epochs{0};
  std::mutex mutex;
  std::map<std::string, int> codes;  // of the refused, by the first words

  std::string text() {
    std::string said;
    for (const auto& [code, count] : codes) said += fmt::format(", {} × \"{}\"", count, code);
    return fmt::format("{} cases; {} old ranks told, {} had finished; {} old and {} later epochs read back{}",
                       cases.load(), refused.load(), done.load(), old_epochs.load(), later_epochs.load(),
                       said);
  }
};

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

// A rank that was told ends by itself, with a code and a cause: a peer, the lock, or who has the directory now. `must`: it
// cannot have finished.
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

// -1: cannot be opened.
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

// Until all stand still: a thread within a system call goes on to its end.
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

// A1. Rank 0 is killed while another rank computes; that one goes on when a later job has come, has committed and has gone.
TEST(Remains, ASurvivorOfAKilledJobDoesNoHarmToTheNextOne) {
  Tally tally;
  const char* holds[] = {"append 1", "end 1", "ended 1", "closing"};
  in_parallel(6 * rounds(), [&](size_t i) {
    const int later_size = 1 + static_cast<int>(i % 3);
    const char* hold = holds[i % 4];
    const int size = 2 + static_cast<int>(i / 3 % 2);
    const std::string name = fmt::format("{} ranks, held at \"{}\", then {} ranks", size, hold, later_size);
    const Place place(i);
    LaunchParams params = place.old_job(size, 2);
    params.held = size - 1;
    params.hold = hold;
    Launcher old(params);
    ASSERT_TRUE(old.wait_for_line(size - 1, hold, kPatience)) << name << "\n" << old.describe();
    old.send_signal(0, SIGKILL);
    const Seconds killed = old.now();
    while (!old.end(0).ended && old.now() - killed < kPatience) old.watch(Seconds(0.001));
    Launcher later(place.later_job(later_size));
    ASSERT_NO_FATAL_FAILURE(expect_done(name, &later));
    expect_epochs(name + ", before it goes on", place.path(), old, &later, nullptr);
    old.go_on(size - 1);
    ASSERT_TRUE(old.wait_for_ends(kPatience)) << name << ": the survivor hangs\n" << old.describe();
    for (int rank = 1; rank < size; ++rank) {
      // Rank 0 may have got so far that the others need nothing more from it.
      expect_told(name, old, rank, i % 4 < 2, &tally);
    }
    expect_epochs(name, place.path(), old, &later, &tally);
    ++tally.cases;
  });
  fmt::print("survivors: {}\n", tally.text());
}

// A1. The whole job stands still, its lease lapses or somebody removes its lock by force, and it goes on beside the later
// job or after it.
TEST(Remains, AJobThatWakesAfterItsDirectoryWasTakenOverIsRefused) {
  Tally tally;
  std::atomic<int> lapsed{0}, forced{0}, beside{0};
  in_parallel(8 * rounds(), [&](size_t i) {
    Rng rng(i + 1);
    const int size = 2 + static_cast<int>(rng.below(2));
    const int later_size = 1 + static_cast<int>(rng.below(3));
    const bool within_end = i % 2 == 0;
    const bool wakes_beside = i % 4 >= 2;
    const std::string name = fmt::format("seed {}: {} ranks, then {}", i + 1, size, later_size);
    const Place place(i / 2);
    LaunchParams params = place.old_job(size, 100);
    params.environment.push_back("SWALE_IMD_LOCK_LEASE_S=1");
    Launcher old(params);
    ASSERT_TRUE(old.wait_for_line(0, within_end ? "end 2" : "open", kPatience)) << old.describe();
    watch_at_random(&rng, within_end ? 10'000 : 100'000, &old);
    stop_all(&old);

    LaunchParams later_params = place.later_job(later_size);
    const bool by_lease = i % 4 == 1;
    if (by_lease) {
      LaunchParams hasty = later_params;
      hasty.environment.push_back("SWALE_IMD_LOCK_WAIT_S=0");
      Launcher refused(hasty);
      ASSERT_TRUE(refused.wait_for_ends(kPatience)) << refused.describe();
      EXPECT_NE(refused.end(0).find("failed busy"), nullptr) << name << "\n" << refused.describe();
      ++lapsed;
    } else {
      EXPECT_EQ(command(fmt::format("unlock --force {}", place.path())), 0) << name;
      ++forced;
    }
    if (wakes_beside) {
      later_params.held = later_size - 1;
      later_params.hold = rng.below(2) == 0 ? "joined" : "append 1";
    }
    Launcher later(later_params);
    if (wakes_beside) {
      ASSERT_TRUE(later.wait_for_line(later_size - 1, later_params.hold, kPatience)) << later.describe();
      if (later_params.hold == "joined") later.go_on(later_size - 1);
      watch_at_random(&rng, 30'000, &later);
    } else {
      ASSERT_NO_FATAL_FAILURE(expect_done(name, &later));
      expect_epochs(name + ", before it wakes", place.path(), old, &later, nullptr);
    }
    for (int rank = 0; rank < size; ++rank) old.send_signal(rank, SIGCONT);
    ASSERT_TRUE(old.wait_for_ends(kPatience)) << name << ": the old job hangs\n" << old.describe();
    if (wakes_beside) {
      if (later_params.hold != "joined") later.go_on(later_size - 1);
      ASSERT_NO_FATAL_FAILURE(expect_done(name, &later));
      ++beside;
    }
    for (int rank = 0; rank < size; ++rank) expect_told(name, old, rank, false, &tally);
    expect_epochs(name, place.path(), old, &later, &tally);
    ++tally.cases;
  });
  EXPECT_GT(tally.refused.load(), 0);
  fmt::print("woken: {}; taken over by lease {}, by force {}; {} woke beside a living later job\n",
             tally.text(), lapsed.load(), forced.load(), beside.load());
}

// A1. The whole job stands still while it opens the directory. It may go on as the third job if it had not got far, but what
// the later job was told of stays, and no epoch is of both.
TEST(Remains, AJobThatWakesWithinItsOpeningKeepsWhatTheNextOneWrote) {
  Tally tally;
  in_parallel(6 * rounds(), [&](size_t i) {
    Rng rng(i + 1);
    const int size = 1 + static_cast<int>(rng.below(3));
    const std::string name = fmt::format("seed {}: {} ranks", i + 1, size);
    const Place place(i);
    Launcher first(place.later_job(1 + static_cast<int>(rng.below(3))));
    ASSERT_NO_FATAL_FAILURE(expect_done(name, &first));
    LaunchParams params = place.old_job(size, 3);
    params.environment.push_back("SWALE_IMD_LOCK_LEASE_S=1");  // unlock watches for half of it
    Launcher old(params);
    ASSERT_TRUE(old.wait_for_line(0, "joined", kPatience)) << old.describe();
    watch_at_random(&rng, 25'000, &old);
    stop_all(&old);
    EXPECT_EQ(command(fmt::format("unlock --force {}", place.path())), 0) << name;
    Launcher later(place.later_job(1 + static_cast<int>(rng.below(3))));
    ASSERT_NO_FATAL_FAILURE(expect_done(name, &later));
    for (int rank = 0; rank < size; ++rank) old.send_signal(rank, SIGCONT);
    ASSERT_TRUE(old.wait_for_ends(kPatience)) << name << ": hangs\n" << old.describe();
    for (int rank = 0; rank < size; ++rank) expect_told(name, old, rank, false, &tally);
    const int64_t of_old = promised_epochs(old);
    const int64_t epochs = epochs_of(place.path());
    EXPECT_TRUE(epochs - of_old == 2 * kLaterEpochs || epochs - of_old == 2 * kLaterEpochs + 1)
        << name << ": " << epochs << " epochs\n"
        << old.describe();
    for (const std::string& problem : check_job_files(place.path(), epochs))
      ADD_FAILURE() << name << ": " << problem << "\n" << old.describe();
    tally.old_epochs += static_cast<int>(of_old);
    tally.later_epochs += 2 * kLaterEpochs;
    ++tally.cases;
  });
  fmt::print("woken while opening: {}\n", tally.text());
}

// A8. A job goes on in the directory that it has opened, wherever that is now; its path is another job's.
TEST(Remains, AJobWhoseDirectoryWasMovedGoesOnThere) {
  Tally tally;
  in_parallel(4 * rounds(), [&](size_t i) {
    Rng rng(i + 1);
    const bool held = i % 2 == 0;
    const int size = 2 + static_cast<int>(i / 2 % 2);
    const std::string name = fmt::format("seed {}: {} ranks", i + 1, size);
    const Place place(i);
    LaunchParams params = place.old_job(size, held ? 3 : 60);
    if (held) {
      params.held = size - 1;
      params.hold = "append 1";
    }
    Launcher old(params);
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_TRUE(old.wait_for_line(rank, "open", kPatience)) << old.describe();
    }
    if (held) {
      ASSERT_TRUE(old.wait_for_line(size - 1, "append 1", kPatience)) << old.describe();
    } else {
      watch_at_random(&rng, 50'000, &old);
    }
    fs::rename(place.path(), place.other_path());
    Launcher later(place.later_job(1 + static_cast<int>(rng.below(3))));
    ASSERT_NO_FATAL_FAILURE(expect_done(name, &later));
    if (held) old.go_on(size - 1);
    ASSERT_TRUE(old.wait_for_ends(kPatience)) << name << ": hangs\n" << old.describe();
    for (int rank = 0; rank < size; ++rank) expect_told(name, old, rank, false, &tally);
    expect_epochs(name + ", moved", place.other_path(), old, nullptr, &tally);
    expect_whole(name + ", the new directory", place.path(), kLaterEpochs);
    tally.later_epochs += kLaterEpochs;
    ++tally.cases;
  });
  fmt::print("moved: {}\n", tally.text());
}

TEST(Remains, AJobWhoseDirectoryWasDeletedIsTold) {
  Tally tally;
  const char* holds[] = {"append 1", "end 1", "ended 1"};
  in_parallel(4 * rounds(), [&](size_t i) {
    const int size = 1 + static_cast<int>(i % 3);
    const bool made_anew = i % 2 == 1;
    const std::string name = fmt::format("{} ranks, held at \"{}\"", size, holds[i % 3]);
    const Place place(i / 2);
    LaunchParams params = place.old_job(size, 3);
    params.held = size - 1;
    params.hold = holds[i % 3];
    Launcher old(params);
    ASSERT_TRUE(old.wait_for_line(size - 1, params.hold, kPatience)) << old.describe();
    old.watch(Seconds(0.2));  // the others come to the epoch's end and write no more
    remove_tree(place.path());
    ASSERT_FALSE(fs::exists(place.path())) << name;
    std::unique_ptr<Launcher> later;
    if (made_anew) {
      later = std::make_unique<Launcher>(place.later_job(2));
      ASSERT_NO_FATAL_FAILURE(expect_done(name, later.get()));
    }
    old.go_on(size - 1);
    ASSERT_TRUE(old.wait_for_ends(kPatience)) << name << ": hangs\n" << old.describe();
    for (int rank = 0; rank < size; ++rank) {
      expect_told(name, old, rank, true, &tally);
      const char* next = i % 3 == 2 ? "ended 2" : "ended 1";
      EXPECT_EQ(old.end(rank).find(next), nullptr) << name << "\n" << old.describe();
    }
    if (made_anew) {
      expect_whole(name + ", the new directory", place.path(), kLaterEpochs);
      tally.later_epochs += kLaterEpochs;
    } else {
      EXPECT_FALSE(fs::exists(place.path())) << name;
    }
    ++tally.cases;
  });
  fmt::print("deleted: {}\n", tally.text());
}

// A8. Somebody deletes the lock of a job that is alive.
TEST(Remains, AJobWhoseLockWasDeletedIsRefusedWhenAnotherHasCome) {
  Tally tally;
  const char* holds[] = {"append 1", "end 1", "ended 1"};
  in_parallel(6 * rounds(), [&](size_t i) {
    const int size = 2 + static_cast<int>(i % 2);
    const int later_size = 1 + static_cast<int>(i % 3);
    const bool beside = i / 3 % 2 == 1;
    const std::string name = fmt::format("{} ranks, held at \"{}\", then {}{}", size, holds[i % 3],
                                         later_size, beside ? ", beside" : "");
    const Place place(i);
    LaunchParams params = place.old_job(size, 3);
    params.held = size - 1;
    params.hold = holds[i % 3];
    Launcher old(params);
    ASSERT_TRUE(old.wait_for_line(size - 1, params.hold, kPatience)) << old.describe();
    EXPECT_TRUE(fs::remove(place.path() + "/swale.lock")) << name;
    LaunchParams later_params = place.later_job(later_size);
    if (beside) {
      later_params.held = 0;
      later_params.hold = "append 1";
    }
    Launcher later(later_params);
    if (beside) {
      ASSERT_TRUE(later.wait_for_line(0, "append 1", kPatience)) << later.describe();
    } else {
      ASSERT_NO_FATAL_FAILURE(expect_done(name, &later));
    }
    old.go_on(size - 1);
    ASSERT_TRUE(old.wait_for_ends(kPatience)) << name << ": hangs\n" << old.describe();
    if (beside) {
      later.go_on(0);
      ASSERT_NO_FATAL_FAILURE(expect_done(name, &later));
    }
    for (int rank = 0; rank < size; ++rank) expect_told(name, old, rank, true, &tally);
    expect_epochs(name, place.path(), old, &later, &tally);
    ++tally.cases;
  });
  fmt::print("lock deleted: {}\n", tally.text());
}

// A10. The directories have the same numbers of jobs, generations and epochs, or the other one has had one job more: the
// number that rank 0 claims is taken there.
TEST(Remains, RanksThatGiveDifferentDirectoriesAreRefused) {
  std::atomic<int> refused{0};
  in_parallel(4 * rounds(), [&](size_t i) {
    const int size = 2 + static_cast<int>(i % 2);
    const int other = i % 4 == 3 ? 0 : size - 1;  // the rank that gives the other path
    const bool one_more = i % 4 >= 2;
    const std::string name = fmt::format("rank {} of {}{}", other, size, one_more ? ", one job more" : "");
    const Place place(i);
    const auto run_job = [&](const std::string& path) {
      LaunchParams params = place.later_job(2);
      params.arguments[0] = path;
      Launcher job(params);
      expect_done(name, &job);
    };
    run_job(place.path());
    run_job(place.other_path());
    if (one_more) run_job(place.other_path());

    LaunchParams differing = place.later_job(size);
    differing.before.resize(static_cast<size_t>(size));
    differing.before[static_cast<size_t>(other)] = {
        "/bin/sh", "-c", fmt::format("shift; exec \"$0\" {} \"$@\"", place.other_path())};
    Launcher job(differing);
    ASSERT_TRUE(job.wait_for_ends(kPatience)) << name << ": hangs\n" << job.describe();
    // Rank 0's directory counts.
    const std::string told = other == 0 ? fmt::format("rank 1: {}: is not", place.path())
                                        : fmt::format("rank {}: {}: is not", other, place.other_path());
    for (int rank = 0; rank < size; ++rank) {
      const Line* failed = job.end(rank).find("failed invalid argument");
      ASSERT_NE(failed, nullptr) << name << "\n" << job.describe();
      EXPECT_NE(job.end(rank).status, 0) << name;
      EXPECT_NE(failed->text.find(told), std::string::npos) << name << ": " << failed->text;
      ++refused;
    }
    int64_t epochs = kLaterEpochs;
    for (const std::string& path : {place.path(), place.other_path()}) {
      expect_whole(name, path, epochs);
      run_job(path);
      expect_whole(name + ", after another job", path, epochs + kLaterEpochs);
      if (one_more) epochs += kLaterEpochs;
    }
  });
  fmt::print("different directories: {} ranks refused\n", refused.load());
}

// Canaries: what the comparison must notice.
TEST(RemainsCanary, ADamagedEpochAndAnotherJobsEpochAreNoticed) {
  const Place place(0);
  Launcher old(place.old_job(2, 2));
  ASSERT_NO_FATAL_FAILURE(expect_done("old", &old));
  Launcher later(place.later_job(1));
  ASSERT_NO_FATAL_FAILURE(expect_done("later", &later));
  EXPECT_TRUE(check_epochs(place.path(), old, &later).empty());
  EXPECT_FALSE(check_epochs(place.path(), later, &old).empty());
  EXPECT_FALSE(check_epochs(place.path(), old, nullptr).empty());
  int damaged = 0;
  for (const auto& entry : fs::recursive_directory_iterator(place.path())) {
    if (entry.path().filename() != "part-000001.j0001.data") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file.write("overwritten by a survivor", 25);
    ++damaged;
  }
  EXPECT_EQ(damaged, 1);
  EXPECT_FALSE(check_epochs(place.path(), old, &later).empty());
}

}  // namespace
}  // namespace swale::faults
