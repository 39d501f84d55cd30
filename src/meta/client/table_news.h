// TableNews: what a rank has heard that makes the tables of runs in its handles old. Gets by such a table ask
// nobody, so a relocation, and the removal of a sealed file, are told to every rank before their callers are
// answered.
//
//   before = news.heard();  answer = open by name;  age = news.age(before, id)
//   later: the table is used while news.is(age, id)
//
// Files share 1,024 counts: the removal of one makes the tables of a thousandth of all others old, whose gets
// then ask servers until their files are opened again. A thousand removals cost as much as one relocation,
// and 8 KiB a rank are enough.
//
// Invariant: removal_heard counts for all files before it counts for one. So who reads the one count and
// finds that of all unchanged since before its question has a count that the removal is still to raise.
// Threads: any. Errors: none.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "meta/index/types.h"

namespace swale::meta {

class TableNews {
 public:
  void relocation_heard() { ++all_; }
  // A file without an id: it may be any.
  void removal_heard(const FileId& file) {
    if (file.none()) return relocation_heard();
    ++removals_;
    ++counts_[slot(file)];
  }

  struct Heard {
    uint64_t all = 0, removals = 0;
  };
  Heard heard() const { return {all_, removals_}; }
  static constexpr uint64_t kOld = ~uint64_t{0};
  // Of a table of runs of `file` that was asked for after `before` was heard.
  uint64_t age(const Heard& before, const FileId& file) const {
    const uint64_t count = counts_[slot(file)];
    return removals_ == before.removals ? before.all + count : kOld;
  }
  bool is(uint64_t age, const FileId& file) const { return age == all_ + counts_[slot(file)]; }

 private:
  static size_t slot(const FileId& file) { return (file.low ^ file.high * 0x9e3779b97f4a7c15) % 1024; }

  std::atomic<uint64_t> all_{0}, removals_{0};
  std::array<std::atomic<uint64_t>, 1024> counts_{};
};

}  // namespace swale::meta
