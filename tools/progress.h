// ProgressBar: a line on the terminal behind stderr, rewritten whenever another per mille is done, gone at the end.
// Threads: one at a time.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string_view>

#include "base/status.h"

namespace swale::tools {

class ProgressBar {
 public:
  ~ProgressBar() {
    if (shown_ >= 0) fmt::print(stderr, "\r{:{}}\r", "", kColumns + 40);
  }

  // Only people look, and only if the output does not run through the same terminal.
  static bool wanted() { return ::isatty(STDERR_FILENO) == 1; }
  static bool wanted_beside_output() { return wanted() && ::isatty(STDOUT_FILENO) == 0; }

  // `total` is shown as a multiple of `unit_size`.
  void update(uint64_t done, uint64_t total, std::string_view unit, uint64_t unit_size = 1) {
    if (total < unit_size) return;  // done before anybody looks
    const double share = static_cast<double>(done) / static_cast<double>(total);
    const int permille = static_cast<int>(share * 1000);
    if (permille == shown_) return;
    shown_ = permille;
    const int columns = static_cast<int>(share * kColumns);
    fmt::print(stderr, "\r[{:=<{}}{:{}}] {:5.1f} % of {} {}", "", columns, "", kColumns - columns,
               share * 100, total / unit_size, unit);
    std::fflush(stderr);
  }

  // Of what nobody knows the total.
  void count(uint64_t done, std::string_view unit, uint64_t unit_size = 1) {
    const auto units = static_cast<int>(done / unit_size);
    if (units == shown_) return;
    shown_ = units;
    fmt::print(stderr, "\r{} {}", units, unit);
    std::fflush(stderr);
  }

 private:
  static constexpr int kColumns = 40;
  int shown_ = -1;
};

}  // namespace swale::tools
