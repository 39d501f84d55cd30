// What programs share that are a node of a job, write in rounds until they are killed, and are started again
// to check: notes of what was committed.
//
// Threads: one.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>

#include "tests/faults/rank_program.h"

namespace swale::fs {

using faults::expect;
using faults::say;
using faults::stop;
using faults::take;

// Of a file and a node: the last round that was committed, and the last that was begun.
struct Noted {
  uint64_t committed = 0, begun = 0;
};
inline std::map<net::Rank, Noted> read_notes(const std::string& path) {
  std::map<net::Rank, Noted> noted;
  std::ifstream in(path);
  std::string kind;
  net::Rank file = 0;
  for (uint64_t round = 0; in >> kind >> file >> round;)
    (kind == "=" ? noted[file].committed : noted[file].begun) = round;
  return noted;
}

class RoundNotes {
 public:
  explicit RoundNotes(const std::string& path)
      : file_(::open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600)) {}
  // '?': is about to be committed; '=': is committed.
  void add(char kind, net::Rank file, uint64_t round) const {
    const std::string line = fmt::format("{} {} {}\n", kind, file, round);
    if (::write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      stop("failed", "the notes cannot be written");
  }

 private:
  const int file_;
};

}  // namespace swale::fs
