#include "tests/faults/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "base/testing/test_shared_memory.h"

namespace swale::faults {
namespace {

constexpr int kTurnMilliseconds = 5;
constexpr size_t kLoggedBytesMax = size_t{8} << 10;

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

// The test's own environment, with `changes` over it.
std::vector<std::string> merged_environment(const std::vector<std::string>& changes) {
  std::vector<std::string> result = changes;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=') + 1);
    if (std::none_of(changes.begin(), changes.end(),
                     [&](const std::string& of) { return of.rfind(name, 0) == 0; }))
      result.push_back(text);
  }
  return result;
}

}  // namespace

const Line* RankEnd::find(const std::string& prefix) const {
  const auto found = std::find_if(lines.begin(), lines.end(),
                                  [&](const Line& line) { return line.text.rfind(prefix, 0) == 0; });
  return found == lines.end() ? nullptr : &*found;
}

Launcher::Launcher(const LaunchParams& params) : ranks_(static_cast<size_t>(params.size)) {
  for (int rank = 0; rank < params.size; ++rank) start(params, rank);
}

Launcher::~Launcher() {
  for (Rank& rank : ranks_) {
    if (!rank.end.ended && rank.pid > 0) {
      ::kill(rank.pid, SIGKILL);
      ::waitpid(rank.pid, nullptr, 0);
    }
    ::close(rank.output);
    ::close(rank.input);
  }
  expect_no_sanitizer_reports();
  for (Rank& rank : ranks_) ::close(rank.errors);
}

void Launcher::start(const LaunchParams& params, int number) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  std::vector<std::string> words;
  if (!params.before.empty()) words = params.before[static_cast<size_t>(number)];
  words.push_back(params.program);
  words.insert(words.end(), params.arguments.begin(), params.arguments.end());
  words.push_back(number == params.held ? params.hold : params.held_argument);
  std::vector<std::string> changes = params.environment;
  if (params.by_tcp) {
    changes.push_back("UCX_TLS=tcp,self");
    changes.push_back(fmt::format("SWALE_JOB_NODE=place-{}", number % 2));
  }
  if (params.by_tls) {
    changes.push_back("SWALE_JOB_TRANSPORT=tls");
    changes.push_back(fmt::format("SWALE_JOB_NODE=place-{}", number % 2));
  }
  changes.push_back("SWALE_JOB_RANK=" + std::to_string(number));
  changes.push_back("SWALE_JOB_SIZE=" + std::to_string(params.size));
  changes.push_back("SWALE_JOB_ID=" + params.job_id);
  changes.push_back("SWALE_JOB_RENDEZVOUS=" + params.rendezvous);
  std::vector<std::string> environment = merged_environment(changes);
  int output[2], input[2];
  rank.errors = ::memfd_create("stderr", MFD_CLOEXEC);
  if (::pipe2(output, O_CLOEXEC) != 0 || ::pipe2(input, O_CLOEXEC) != 0 || rank.errors < 0)
    throw std::runtime_error("no pipes");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, rank.errors, STDERR_FILENO);
  const int failed = ::posix_spawn(&rank.pid, words.front().c_str(), &actions, nullptr,
                                   pointers(words).data(), pointers(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(input[0]);
  ::close(output[1]);
  test::note_shared_memory_of(rank.pid);
  rank.input = input[1];
  rank.output = output[0];
  ::fcntl(rank.output, F_SETFL, O_NONBLOCK);
  if (failed != 0) throw std::runtime_error("cannot start " + params.program);
}

// The machine may stop the test and its ranks for a while: of the time between two turns no more than this is
// counted.
Seconds Launcher::now() const {
  constexpr Seconds kTurnMax(0.5);
  return counted_ + std::min<Seconds>(kTurnMax, std::chrono::steady_clock::now() - turned_);
}

void Launcher::read_output(Rank& rank) {
  char buffer[4096];
  for (ssize_t count; (count = ::read(rank.output, buffer, sizeof buffer)) > 0;)
    rank.partial.append(buffer, static_cast<size_t>(count));
  for (size_t stop; (stop = rank.partial.find('\n')) != std::string::npos; rank.partial.erase(0, stop + 1))
    rank.end.lines.push_back({rank.partial.substr(0, stop), now()});
}

void Launcher::turn() {
  counted_ = now();
  turned_ = std::chrono::steady_clock::now();
  std::vector<pollfd> outputs;
  for (const Rank& rank : ranks_) {
    if (!rank.end.ended) outputs.push_back({rank.output, POLLIN, 0});
  }
  ::poll(outputs.data(), outputs.size(), kTurnMilliseconds);
  for (Rank& rank : ranks_) {
    if (rank.end.ended) continue;
    int status = 0;
    const bool ended = ::waitpid(rank.pid, &status, WNOHANG) == rank.pid;
    read_output(rank);
    if (!ended) continue;
    rank.end.ended = true;
    rank.end.time = now();
    rank.end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    rank.end.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
}

bool Launcher::wait_for_line(int rank, const std::string& prefix, Seconds deadline) {
  const RankEnd& end = ranks_[static_cast<size_t>(rank)].end;
  for (const Seconds until = now() + deadline; end.find(prefix) == nullptr; turn()) {
    if (now() > until || end.ended) return false;
  }
  return true;
}

bool Launcher::wait_for_ends(Seconds deadline, int except) {
  const Seconds until = now() + deadline;
  for (;;) {
    bool all = true;
    for (int rank = 0; rank < size(); ++rank) all = all && (rank == except || end(rank).ended);
    if (all) return true;
    if (now() > until) return false;
    turn();
  }
}

void Launcher::watch(Seconds duration) {
  for (const Seconds until = now() + duration; now() < until;) turn();
}

void Launcher::send_signal(int rank, int signal) {
  if (end(rank).ended) return;
  test::note_shared_memory_of(pid(rank));
  ::kill(pid(rank), signal);
}

void Launcher::go_on(int rank) {
  if (::write(ranks_[static_cast<size_t>(rank)].input, "g", 1) != 1)
    throw std::runtime_error("nobody listens");
}

// What the library and UCX logged is for people; the test judges what the calls say.
std::string Launcher::logged(const Rank& rank, size_t bytes_max) {
  std::string text(bytes_max, '\0');
  const off_t end = ::lseek(rank.errors, 0, SEEK_END);
  const off_t from = std::max<off_t>(0, end - static_cast<off_t>(text.size()));
  const ssize_t count = ::pread(rank.errors, text.data(), text.size(), from);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, count)));
  return text;
}

// A report changes the exit status, if at all, to one that a survivor may have for other reasons.
void Launcher::expect_no_sanitizer_reports() const {
  constexpr size_t kAll = size_t{1} << 20;
  for (int rank = 0; rank < size(); ++rank) {
    const std::string text = logged(ranks_[static_cast<size_t>(rank)], kAll);
    const bool reported =
        text.find("Sanitizer: ") != std::string::npos || text.find(": runtime error: ") != std::string::npos;
    EXPECT_FALSE(reported) << "rank " << rank << ":\n" << text;
  }
}

std::string Launcher::describe() const {
  std::string text;
  for (int rank = 0; rank < size(); ++rank) {
    const RankEnd& of = end(rank);
    text += fmt::format("rank {}: {} signal {} status {} at {:.2f} s\n", rank, of.ended ? "ended" : "runs",
                        of.signal, of.status, of.time.count());
    for (const Line& line : of.lines) text += fmt::format("  {:.2f} {}\n", line.time.count(), line.text);
    text += logged(ranks_[static_cast<size_t>(rank)], kLoggedBytesMax);
  }
  return text;
}

}  // namespace swale::faults
