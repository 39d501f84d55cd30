// RandomCalls: random file operations on a file system under test and on a plain directory, as fsx and
// fsstress do: every answer, every byte that is read and every attribute must be the same.
//
// Names are few, so that calls meet: files in two directories and their parent, with hard links, symlinks,
// renames of all of them, and handles that outlive their names. Holes need not be the same, only be holes.
// Threads: one. Source: fsx (Apple; xfstests), the idea.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "fs/testing/file_calls.h"

namespace swale::fs {

class RandomCalls {
 public:
  RandomCalls(FileCalls& tested, FileCalls& plain, uint64_t seed)
      : tested_(tested), plain_(plain), rng_(seed) {}

  // Makes `count` calls. "" if all answers were the same; else the first that was not.
  std::string run(uint64_t count);
  // Compares everything by name.
  std::string compare_trees();
  void close_all();
  // Gives all files the same time: after a kill, which may leave others (tier/store/store.h).
  void even_times();

  uint64_t calls() const { return calls_; }
  std::string summary() const;  // how often each call was made, and how often it succeeded

 private:
  struct Pair {
    int tested;
    int plain;
    int flags;
  };
  struct Count {
    uint64_t made = 0;
    uint64_t succeeded = 0;
  };

  void step();
  void step_handle(Pair& pair);
  void step_names();
  void open_one();
  void read_one(const Pair& pair, bool mapped);
  void write_one(const Pair& pair, bool mapped);
  void allocate_one(const Pair& pair);
  void seek_one(const Pair& pair);
  void copy_one(const Pair& to);
  void look_at(const std::string& path);
  void compare_states(const std::string& what, const struct stat& tested, const struct stat& plain);
  std::vector<std::string> files();  // regular ones, by the plain directory
  void compare_directory(const std::string& path);
  void compare_content(const std::string& path);
  std::string file_name();
  std::string directory_name();
  std::string random_bytes(size_t length);
  std::string name_of(const Pair& pair);
  uint64_t size_of(const Pair& pair);

  // Notes a call's two answers. True: both succeeded.
  bool same(const std::string& what, int tested, int plain);
  void differ(const std::string& what);
  template <class Call>
  bool both(const std::string& what, const Call& call) {
    return same(what, call(tested_), call(plain_));
  }

  FileCalls& tested_;
  FileCalls& plain_;
  Rng rng_;
  std::vector<Pair> open_;
  uint64_t calls_ = 0;
  std::string problem_;
  std::deque<std::string> recent_;       // the last calls, for whoever looks for the cause
  std::map<std::string, Count> counts_;  // by the first word
};

}  // namespace swale::fs
