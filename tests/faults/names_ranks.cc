// names_ranks DIR write|check NOTES HELD: one node of a job with a tree, for names_ranks_test.cc. The place
// in the job is in SWALE_JOB_*; HELD is ignored.
//
// write: makes, renames and removes names of its own in a directory of all nodes, until it is killed. It
// notes in NOTES.rank what it is about to do ("?") and what was answered ("="). Prints "made N" after every
// tenth answer, and "gone: ..." when a server does not answer.
// check: rank 0 compares the tree with the notes of all ranks. Prints "wrong: ...", or "done".
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "base/rng.h"
#include "io/posix_device.h"
#include "meta/store/job_names.h"
#include "net/fabric/tls_fabric.h"
#include "tests/faults/rank_program.h"

namespace swale::meta {
namespace {

constexpr uint64_t kNames = 12;  // of each node

using faults::say;
using faults::stop;
using faults::take;

// "+name": it is there; "-name": it is not; "~name": it is as it was.
class Notes {
 public:
  explicit Notes(const std::string& path)
      : file_(::open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600)) {}
  void add(char kind, const std::string& changes) {
    const std::string line = fmt::format("{}{}\n", kind, changes);
    if (::write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      stop("failed", "the notes cannot be written");
  }

 private:
  const int file_;
};

void write_until_killed(NamesClient& client, net::Rank rank, const std::string& notes_path) {
  const Result<Named> made = client.make_directory(kRootDirectory, "d", {});
  if (!made.ok() && made.status().posix_error() != EEXIST) stop("failed", made.status().to_string());
  const FileId d = take(client.walk("d")).file;
  Notes notes(fmt::format("{}.{}", notes_path, rank));
  Rng rng(static_cast<uint64_t>(rank) + 1);
  for (uint64_t answered = 0;;) {
    const auto name = [&] { return fmt::format("{}-{}", rank, rng.below(kNames)); };
    const std::string one = name(), other = name();
    const uint64_t kind = rng.below(3);
    const std::string changes = kind == 0   ? "+" + one
                                : kind == 1 ? "-" + one
                                            : fmt::format("-{} +{}", one, other);
    if (one == other) continue;
    notes.add('?', changes);
    Status status;
    if (kind == 0) {
      const Result<Opened> opened = client.create(d, one, {.mode = 0600}, false);
      if (opened.ok()) status = client.release(opened->file);
      if (!opened.ok()) status = opened.status();
    } else if (kind == 1) {
      status = client.unlink(d, one, 1).status();
    } else {
      status = client.rename(d, one, d, other, 0, 1);
    }
    const int error = status.posix_error();
    if (error == EIO) {
      say("gone: " + status.to_string());
      continue;
    }
    if (error != 0 && (error != ENOENT || kind == 0)) stop("wrong", status.to_string());
    notes.add('=', error == 0 ? changes : kind == 1 ? "-" + one : fmt::format("-{} ~{}", one, other));
    if (++answered % 10 == 0) say(fmt::format("made {}", answered));
  }
}

struct Expected {
  bool there = false;
  bool open = false;  // a change was under way: both are right
};

// What must be true after the notes of one rank.
std::map<std::string, Expected> read_notes(const std::string& path) {
  std::map<std::string, Expected> names;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    for (size_t at = 1; at < line.size();) {
      const size_t end = std::min(line.find(' ', at), line.size());
      Expected& expected = names[line.substr(at + 1, end - at - 1)];
      expected.open = line[0] == '?';
      if (line[0] == '=' && line[at] != '~') expected.there = line[at] == '+';
      at = end + 1;
    }
  }
  return names;
}

void check(NamesClient& client, net::Rank ranks, const std::string& notes_path) {
  const FileId d = take(client.walk("d")).file;
  uint64_t there = 0, answered = 0;
  for (net::Rank rank = 0; rank < ranks; ++rank) {
    for (const auto& [name, expected] : read_notes(fmt::format("{}.{}", notes_path, rank))) {
      const Result<Named> found = client.look_up(d, name);
      if (!found.ok() && found.status().posix_error() != ENOENT) stop("failed", found.status().to_string());
      there += found.ok();
      answered += !expected.open;
      if (!expected.open && found.ok() != expected.there)
        stop("wrong", fmt::format("{} is {}there", name, found.ok() ? "" : "not "));
    }
  }
  uint64_t listed = 0;
  for (ListCursor cursor; !cursor.end();) listed += take(client.list(d, &cursor, 7)).size();
  if (listed != there) stop("wrong", fmt::format("{} names are listed, {} are there", listed, there));
  if (answered == 0) stop("wrong", "nothing was answered");
  say(fmt::format("checked {} names, {} there", answered, there));
}

int run(char** argv) {
  net::register_fabric(net::tls_fabric());
  const auto job = faults::open_job();
  io::PosixDevice device;
  JobNamesOptions tree;
  tree.deadline = seconds(20);
  const auto names = take(JobNames::open(*job, device, fmt::format("{}/{}", argv[1], job->rank()), tree));
  if (std::string(argv[2]) == "write") write_until_killed(names->client(), job->rank(), argv[3]);
  if (job->rank() == 0) check(names->client(), job->size(), argv[3]);
  const Status closed = names->close();
  if (!closed.ok()) stop("failed", closed.to_string());
  if (const Status parted = job->close(); !parted.ok()) stop("failed", parted.to_string());
  say("done");
  return 0;
}

}  // namespace
}  // namespace swale::meta

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  return swale::meta::run(argv);
}
