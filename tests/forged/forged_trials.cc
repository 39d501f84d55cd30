#include "tests/forged/forged_trials.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

namespace swale::forged {
namespace {

constexpr double kSecondsMax = 30;       // of one forged number; sanitizers and valgrind are slow
constexpr long kKilobytesMax = 600'000;  // more than before; sanitizers keep what was freed

long peak_kilobytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

uint64_t number_of(const char* variable, uint64_t otherwise) {
  const char* const wanted = std::getenv(variable);
  return wanted == nullptr ? otherwise : std::strtoull(wanted, nullptr, 10);
}

}  // namespace

ForgedTrials::ForgedTrials(uint64_t share)
    : share_(std::max<uint64_t>(number_of("SWALE_FORGED_SHARE", share), 1)),
      seed_(number_of("SWALE_FORGED_SEED", 0) % share_),
      only_(std::getenv("SWALE_FORGED_ONLY")),
      show_(std::getenv("SWALE_FORGED_SHOW") != nullptr),
      kilobytes_before_(peak_kilobytes()) {
  if (share_ > 1) fmt::print("SWALE_FORGED_SHARE={} SWALE_FORGED_SEED={}\n", share_, seed_);
}

bool ForgedTrials::takes(const std::string& what) {
  const uint64_t number = numbers_++;
  if (only_ == nullptr ? number % share_ != seed_ : what.find(only_) == std::string::npos) return false;
  if (show_) fmt::print(stderr, "{}\n", what);
  return true;
}

std::string ForgedTrials::trace(const std::string& what) {
  return fmt::format("{}\nrepeat it with SWALE_FORGED_ONLY='{}'", what, what);
}

void ForgedTrials::begin() { began_ = processor_seconds(); }

void ForgedTrials::end() const {
  EXPECT_LT(processor_seconds() - began_, kSecondsMax);
  EXPECT_LT(peak_kilobytes() - kilobytes_before_, kKilobytesMax);
}

}  // namespace swale::forged
