#include "tests/faults/job_files.h"

#include <dirent.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "swale/swale.h"

namespace swale::faults {
namespace {

constexpr size_t kProblemsMax = 5;
constexpr uint64_t kKeys = 1000;

struct Seen {
  std::set<std::tuple<uint64_t, uint64_t, uint64_t>> records;  // epoch, rank, number
  std::vector<std::string> problems;
  uint64_t large = 0;

  // As large_value in fault_writer.c made it.
  static bool right_large(const uint64_t (&fields)[5], const char* value, size_t value_bytes) {
    if (fields[4] != value_bytes || value_bytes % sizeof(uint64_t) != 0 || value_bytes <= (size_t{64} << 10))
      return false;
    for (uint64_t i = std::size(fields); i < value_bytes / sizeof i; ++i) {
      uint64_t word = 0;
      std::memcpy(&word, value + i * sizeof word, sizeof word);
      if (word != (fields[3] ^ fields[0] << 32 ^ fields[1]) + i * 0x9e3779b97f4a7c15) return false;
    }
    return true;
  }

  static int note(void* context, int64_t epoch, const void* key, size_t key_bytes, const void* value,
                  size_t value_bytes) {
    Seen& seen = *static_cast<Seen*>(context);
    uint64_t number_key = 0;
    uint64_t fields[5] = {};
    if (key_bytes == sizeof number_key && value_bytes >= sizeof fields) {
      std::memcpy(&number_key, key, sizeof number_key);
      std::memcpy(fields, value, sizeof fields);
    }
    const bool is_large = value_bytes > sizeof fields;
    seen.large += is_large ? 1 : 0;
    const bool right =
        fields[0] == static_cast<uint64_t>(epoch) && number_key == fields[2] % kKeys &&
        fields[3] == fields[2] * 0x9e3779b97f4a7c15 &&
        (is_large ? right_large(fields, static_cast<const char*>(value), value_bytes) : fields[4] == 7);
    if (!right) {
      seen.problems.push_back(fmt::format("epoch {}: a wrong record", epoch));
    } else if (!seen.records.emplace(fields[0], fields[1], fields[2]).second) {
      seen.problems.push_back(
          fmt::format("epoch {}: record {} of rank {} twice", epoch, fields[2], fields[1]));
    }
    return seen.problems.size() >= kProblemsMax ? 1 : 0;
  }
};

void check_epoch(swale_reader* reader, int64_t epoch, const JobContents& contents,
                 std::vector<std::string>* problems) {
  swale_epoch_info info;
  info.struct_bytes = sizeof info;
  Seen seen;
  if (swale_reader_epoch_info(reader, epoch, &info) != SWALE_OK ||
      swale_reader_scan(reader, epoch, Seen::note, &seen) != SWALE_OK) {
    problems->push_back(fmt::format("epoch {}: {}", epoch, swale_last_error()));
    return;
  }
  problems->insert(problems->end(), seen.problems.begin(), seen.problems.end());
  if (contents.repaired && info.step == INT64_MIN) return;
  const auto ranks = static_cast<uint64_t>(info.step);
  const auto records = static_cast<uint64_t>(info.time);
  if (seen.records.size() != ranks * records + contents.records_more)
    problems->push_back(fmt::format("epoch {}: {} records of {} ranks", epoch, seen.records.size(), ranks));
  if (seen.large != (contents.large ? ranks * ((records + 249) / 250) : 0))
    problems->push_back(fmt::format("epoch {}: {} large values of {} ranks", epoch, seen.large, ranks));
  for (uint64_t key = 0; key < std::min(kKeys, records); key += 97) {
    swale_values* values = nullptr;
    const int code = swale_reader_get(reader, &key, sizeof key, epoch, &values);
    const uint64_t expected = ranks * ((records - key + kKeys - 1) / kKeys);
    if (code != SWALE_OK || swale_values_count(values) != expected)
      problems->push_back(fmt::format("epoch {}: key {} has other than {} values", epoch, key, expected));
    swale_values_free(values);
  }
}

}  // namespace

JobFiles::JobFiles() {
  char path[] = "/tmp/swale-faults-XXXXXX";
  if (::mkdtemp(path) == nullptr) throw std::runtime_error("no scratch directory");
  scratch_ = path;
}

JobFiles::~JobFiles() {
  std::error_code ignored;
  std::filesystem::remove_all(scratch_, ignored);
}

LaunchParams JobFiles::job(int size, int epochs, uint64_t records) const {
  LaunchParams params;
  params.size = size;
  params.program = FAULT_WRITER;
  params.arguments = {path(), std::to_string(epochs), std::to_string(records)};
  params.job_id = "faults";
  params.rendezvous = scratch_ + "/meet";
  params.environment = {fmt::format("SWALE_JOB_JOIN_DEADLINE_S={}", kJoinDeadline.count()),
                        fmt::format("SWALE_NET_SILENCE_DEADLINE_S={}", kSilenceDeadline.count()),
                        "SWALE_NET_HEARTBEAT_INTERVAL_S=0.5",
                        fmt::format("SWALE_NET_CLOSE_DEADLINE_S={}", kCloseDeadline.count())};
  return params;
}

std::vector<std::string> check_job_files(const std::string& path, int64_t promised,
                                         const JobContents& contents) {
  swale_reader* reader = nullptr;
  if (const int code = swale_reader_open(path.c_str(), nullptr, &reader); code != SWALE_OK) {
    if (promised == 0 && code == SWALE_NOT_FOUND) return {};
    return {fmt::format("cannot be opened: {}", swale_last_error())};
  }
  std::vector<std::string> problems;
  const int64_t epochs = swale_reader_epoch_count(reader);
  if (epochs < promised) problems.push_back(fmt::format("{} epochs, but {} were promised", epochs, promised));
  for (int64_t epoch = 0; epoch < epochs; ++epoch) check_epoch(reader, epoch, contents, &problems);
  swale_reader_close(reader);
  const std::string command = fmt::format("{} verify {} >/dev/null 2>&1", SWALE_COMMAND, path);
  if (const int status = std::system(command.c_str()); status != 0)
    problems.push_back(fmt::format("swale verify ends with {}", WEXITSTATUS(status)));
  return problems;
}

int64_t promised_epochs(const Launcher& job) {
  int64_t promised = 0;
  for (int rank = 0; rank < job.size(); ++rank) {
    for (const Line& line : job.end(rank).lines) {
      if (line.text.rfind("ended ", 0) == 0)
        promised = std::max(promised, int64_t{std::stol(line.text.substr(6)) + 1});
    }
  }
  return promised;
}

void in_parallel(size_t count, const std::function<void(size_t)>& run) {
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (size_t at; (at = next++) < count;) run(at);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace swale::faults
