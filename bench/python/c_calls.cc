// The C calls that the Python package's are compared with (python.py): one line of JSON for each mode.
//   get       --dir D --seed S --gets N            swale_reader_get of N random keys, all epochs, warm
//   get_many  --dir D --seed S --gets N            the same keys by swale_reader_get_many with a callback
//   append    --dir D --keys K --epochs E          K x E records of 8 + 40 bytes, one swale_dir_append each
//   memcpy    --mib M                              the rate of a copy that fits in no cache
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/arguments.h"
#include "bench/measure.h"
#include "bench/swale_call.h"

namespace swale::bench {
namespace {

constexpr size_t kValueBytes = 40;

std::vector<uint64_t> random_keys(uint64_t seed, uint64_t count, uint64_t keys) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> chosen(count);
  for (uint64_t& key : chosen) key = random() % keys;
  return chosen;
}

struct Opened {
  explicit Opened(const std::string& path) { check(swale_reader_open(path.c_str(), nullptr, &reader)); }
  ~Opened() { swale_reader_close(reader); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  swale_reader* reader = nullptr;
};

void get(Arguments& arguments) {
  const Opened opened(arguments.text("dir"));
  const auto keys =
      random_keys(arguments.number("seed", 1), arguments.number("gets", 1'000), arguments.number("keys", 1));
  arguments.expect_no_more();
  uint64_t sum = 0;
  double wall_s = 0;
  for (const bool counts : {false, true}) {  // the first time warms
    const Stopwatch watch;
    for (const uint64_t key : keys) {
      swale_values* values = nullptr;
      check(swale_reader_get(opened.reader, &key, sizeof key, SWALE_ALL_EPOCHS, &values));
      sum += swale_values_count(values);
      swale_values_free(values);
    }
    if (counts) wall_s = watch.wall_s();
  }
  report_as("python_c_calls", "get",
            {{"us", 1e6 * wall_s / static_cast<double>(keys.size())}, {"values", sum}});
}

int take(void* context, int64_t /*epoch*/, const void* /*key*/, size_t /*key_bytes*/, const void* value,
         size_t value_bytes) {
  auto* const out = static_cast<std::string*>(context);
  out->append(static_cast<const char*>(value), value_bytes);
  return 0;
}

void get_many(Arguments& arguments) {
  const Opened opened(arguments.text("dir"));
  const auto keys =
      random_keys(arguments.number("seed", 1), arguments.number("gets", 1'000), arguments.number("keys", 1));
  arguments.expect_no_more();
  std::vector<const void*> pointers;
  for (const uint64_t& key : keys) pointers.push_back(&key);
  const std::vector<size_t> lengths(keys.size(), sizeof(uint64_t));
  double wall_s = 0;
  size_t found = 0;
  for (const bool counts : {false, true}) {
    std::string out;
    const Stopwatch watch;
    check(swale_reader_get_many(opened.reader, pointers.data(), lengths.data(), keys.size(), SWALE_ALL_EPOCHS,
                                &take, &out, &found));
    if (counts) wall_s = watch.wall_s();
  }
  report_as("python_c_calls", "get_many",
            {{"keys_per_s", static_cast<double>(keys.size()) / wall_s}, {"found", found}});
}

void append(Arguments& arguments) {
  const std::string path = arguments.text("dir");
  const uint64_t keys = arguments.number("keys", 1'000);
  const uint64_t epochs = arguments.number("epochs", 1);
  const std::string options = arguments.text("options", "");
  arguments.expect_no_more();
  swale_job* job = nullptr;
  swale_dir* dir = nullptr;
  std::vector<char> values(keys * kValueBytes);
  std::mt19937_64 random(1);
  for (size_t at = 0; at + sizeof(uint64_t) <= values.size(); at += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(&values[at], &word, sizeof word);
  }
  check(swale_job_open(nullptr, nullptr, &job));
  check(swale_dir_open(job, path.c_str(), SWALE_CREATE | SWALE_EXCLUSIVE, options.c_str(), &dir));
  const Stopwatch watch;
  for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
    for (uint64_t key = 0; key < keys; ++key)
      check(swale_dir_append(dir, &key, sizeof key, &values[key * kValueBytes], kValueBytes));
    check(swale_dir_epoch_end(dir, static_cast<int64_t>(epoch), 0));
  }
  check(swale_dir_close(dir));
  const double cpu_s = watch.cpu().total_s();
  check(swale_job_close(job));
  report_as("python_c_calls", "append", {{"cpu_ns", 1e9 * cpu_s / static_cast<double>(keys * epochs)}});
}

void copy(Arguments& arguments) {
  const size_t bytes = arguments.number("mib", 256) << 20;
  arguments.expect_no_more();
  const std::vector<char> from(bytes, 'a');
  std::vector<char> to(bytes, 'b');
  double best_s = 1e9;
  for (int i = 0; i < 7; ++i) {
    const Stopwatch watch;
    std::memcpy(to.data(), from.data(), bytes);
    best_s = std::min(best_s, watch.wall_s());
  }
  report_as("python_c_calls", "memcpy",
            {{"bytes_per_s", static_cast<double>(bytes) / best_s}, {"check", to[bytes / 2]}});
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  swale::bench::Arguments arguments(argc, argv);
  static constexpr const char* kModes[] = {"get", "get_many", "append", "memcpy"};
  void (*const run[])(swale::bench::Arguments&) = {swale::bench::get, swale::bench::get_many,
                                                   swale::bench::append, swale::bench::copy};
  run[arguments.choice("mode", kModes)](arguments);
}
