// ProgressBar: a line on the terminal of stderr, rewritten after each per mille of progress, removed at the
// end.
// Threads: one at a time.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string_view>

#include "base/plain_text.h"
#include "base/status.h"

namespace swale::tools {

class ProgressBar {
 public:
  ~ProgressBar() {
    if (shown_ >= 0) fmt::print(stderr, "\r{:{}}\r", "", kColumns + 40);
  }

  // stderr is a terminal; beside_output: and the output does not go to a terminal.
  static bool wanted() { return ::isatty(STDERR_FILENO) == 1; }
  static bool wanted_beside_output() { return wanted() && ::isatty(STDOUT_FILENO) == 0; }

  // `total` is shown as a multiple of `unit_size`.
  void update(uint64_t done, uint64_t total, std::string_view unit, uint64_t unit_size = 1) {
    if (total < unit_size) return;  // too quick to show
    const double share = static_cast<double>(done) / static_cast<double>(total);
    const int permille = static_cast<int>(share * 1000);
    if (permille == shown_) return;
    shown_ = permille;
    const int columns = static_cast<int>(share * kColumns);
    fmt::print(stderr, "\r[{:=<{}}{:{}}] {:5.1f} % of {} {}", "", columns, "", kColumns - columns,
               share * 100, total / unit_size, plain_text(unit));
    std::fflush(stderr);
  }

  // Shows progress without a known total.
  void count(uint64_t done, std::string_view unit, uint64_t unit_size = 1) {
    const auto units = static_cast<int>(done / unit_size);
    if (units == shown_) return;
    shown_ = units;
    fmt::print(stderr, "\r{} {}", units, plain_text(unit));
    std::fflush(stderr);
  }

 private:
  static constexpr int kColumns = 40;
  int shown_ = -1;
};

}  // namespace swale::tools
