// What is left of a job lives on beside the next one: its ranks were orphaned, stopped and woken, or lost
// their directory or its lock (issue 11, A1, A8 and A10). SWALE_FAULT_ROUNDS multiplies the cases (make
// test-long).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "base/rng.h"
#include "swale/swale.h"
#include "tests/faults/remains.h"

namespace swale::faults::remains_test {
namespace {

namespace fs = std::filesystem;

// A1. Rank 0 is killed while another rank computes; that one goes on when a later job has come, has committed
// and has gone.
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

// A1. The whole job stands still, its lease lapses or somebody removes its lock by force, and it goes on
// beside the later job or after it.
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

// A1. The whole job stands still while it opens the directory. It may go on as the third job if it had not
// got far, but what the later job was told of stays, and no epoch is of both.
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

// A10. The directories have the same numbers of jobs, generations and epochs, or the other one has had one
// job more: the number that rank 0 claims is taken there.
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
}  // namespace swale::faults::remains_test
