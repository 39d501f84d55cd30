// Launcher: starts the ranks of one job of a program, kills or stops one of them at a moment of the test's
// choosing, and says how each ended. mpirun is no use for this: it kills the whole job when a rank dies.
//
// Every rank's standard output is read line by line and kept with the time; a test waits for lines (the
// stages of fault_writer). Ranks that end are reaped at once. Nobody hangs: a wait that meets its deadline
// answers false, and the destructor kills what is left. A rank whose standard error has a sanitizer's report
// fails the test, whatever else was expected of it (in the destructor).
// Threads: none; one Launcher is used by one thread, several may be used by several.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace swale::faults {

using Seconds = std::chrono::duration<double>;

struct LaunchParams {
  int size = 1;
  std::string program;
  std::vector<std::string> arguments;
  std::string held_argument = "none";  // the last argument of all ranks but `held`
  int held = -1;                       // this rank's last argument is `hold`
  std::string hold;
  std::string job_id;
  std::string rendezvous;
  std::vector<std::string> environment;  // NAME=value, over the test's own
  bool by_tls = false;                   // the ranks are told that they are on two nodes, and to talk by TLS
  // and by nothing else: the ranks are told that they are on two nodes, as one node has no TCP
  bool by_tcp = false;
  std::vector<std::vector<std::string>> before = {};  // of each rank: words before the program, that start it
};

struct Line {
  std::string text;
  Seconds time;  // since the start of the job
};

struct RankEnd {
  bool ended = false;
  int signal = 0;  // that killed it
  int status = -1;
  Seconds time{0};
  std::vector<Line> lines;

  // The first line that begins with `prefix`, or null.
  const Line* find(const std::string& prefix) const;
};

class Launcher {
 public:
  explicit Launcher(const LaunchParams& params);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // False if the deadline (from now) came first, or the rank ended without saying so.
  bool wait_for_line(int rank, const std::string& prefix, Seconds deadline);
  // Until every rank but `except` has ended.
  bool wait_for_ends(Seconds deadline, int except = -1);
  // Reads and reaps for so long.
  void watch(Seconds duration);
  void send_signal(int rank, int signal);
  void go_on(int rank);  // past its hold

  pid_t pid(int rank) const { return ranks_[static_cast<size_t>(rank)].pid; }
  const RankEnd& end(int rank) const { return ranks_[static_cast<size_t>(rank)].end; }
  int size() const { return static_cast<int>(ranks_.size()); }
  Seconds now() const;           // since the start, as far as the test itself ran
  std::string describe() const;  // of all ranks, for a failed test

 private:
  struct Rank {
    pid_t pid = -1;
    int output = -1;
    int input = -1;
    int errors = -1;
    std::string partial;
    RankEnd end;
  };

  void start(const LaunchParams& params, int rank);
  void turn();  // reads what there is, reaps who has ended, at most a few milliseconds
  void read_output(Rank& rank);
  static std::string logged(const Rank& rank, size_t bytes_max);
  void expect_no_sanitizer_reports() const;

  Seconds counted_{0};  // until turned_
  std::chrono::steady_clock::time_point turned_ = std::chrono::steady_clock::now();
  std::vector<Rank> ranks_;
};

}  // namespace swale::faults
