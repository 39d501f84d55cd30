#include "tests/faults/reader_calls.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/posix_device.h"
#include "swale/swale_arrow.h"
#include "tests/faults/failing_new.h"

namespace swale::faults {
namespace {

constexpr size_t kLargeBytes = 20'000;
constexpr size_t kHugeBytes = 300'000;  // read in two steps
constexpr size_t kTextBytes = size_t{16} << 20;

std::string value_of(uint64_t number, size_t bytes) {
  std::string value(std::max<size_t>(bytes, 16), 'v');
  const double x = static_cast<double>(number * 7919 % 1000) / 8;
  std::memcpy(value.data(), &x, 8);
  std::memcpy(value.data() + 8, &number, 8);
  for (size_t i = 16; i < value.size(); ++i) value[i] = static_cast<char>('a' + (number + i / 64) % 26);
  return value;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void put_content(const std::string& path, const std::string& content) {
  std::ofstream(path + ".new", std::ios::binary) << content;
  std::filesystem::rename(path + ".new", path);
}

// What callbacks write down, without an allocation.
struct Notes {
  std::string text;
  int stop_after = -1;
  Notes() { text.reserve(kTextBytes); }
  int add(int64_t epoch, const void* key, size_t key_bytes, const void* value, size_t value_bytes) {
    const FailingNew::Pause pause;
    text.append(std::to_string(epoch)).append(" ");
    text.append(static_cast<const char*>(key), key_bytes).append(" ");
    text.append(static_cast<const char*>(value), value_bytes).append("\n");
    return stop_after > 0 && --stop_after == 0 ? 1 : 0;
  }
  static int record(void* notes, int64_t epoch, const void* key, size_t key_bytes, const void* value,
                    size_t value_bytes) {
    return static_cast<Notes*>(notes)->add(epoch, key, key_bytes, value, value_bytes);
  }
  static int one_key(void* notes, const void* key, size_t key_bytes) {
    return static_cast<Notes*>(notes)->add(0, key, key_bytes, "", 0);
  }
  // The order of a batch is not promised.
  Answer answer(int code, bool sorted = false) {
    if (code != SWALE_OK) return {code, ""};
    if (sorted) {
      std::vector<std::string> lines;
      std::stringstream all(text);
      for (std::string line; std::getline(all, line);) lines.push_back(line);
      std::sort(lines.begin(), lines.end());
      text.clear();
      for (const std::string& line : lines) text += line + "\n";
    }
    return {code, text};
  }
};

ReaderCall get_call(const std::string& name, uint64_t number, int64_t epoch) {
  return {name, [=](const ReaderSample& sample, swale_reader* reader, const Around& around) -> Answer {
            const std::string key = sample.key(number);
            swale_values* values = nullptr;
            const int code =
                around([&] { return swale_reader_get(reader, key.data(), key.size(), epoch, &values); });
            if (code != SWALE_OK && values != nullptr) return {-1, "values were set by a call that failed"};
            if (code != SWALE_OK) return {code, ""};
            Answer answer{code, ""};
            for (size_t i = 0; i < swale_values_count(values); ++i) {
              int64_t at = -1;
              const void* value = nullptr;
              size_t bytes = 0;
              if (swale_values_at(values, i, &at, &value, &bytes) != SWALE_OK) return {-1, "swale_values_at"};
              answer.text += fmt::format("{} ", at);
              answer.text.append(static_cast<const char*>(value), bytes).append("\n");
            }
            swale_values_free(values);
            return answer;
          }};
}

// Keys as swale_reader_get_many takes them.
struct KeyList {
  std::vector<std::string> keys;
  std::vector<const void*> pointers;
  std::vector<size_t> sizes;

  KeyList(const ReaderSample& sample, uint64_t end, uint64_t step) {
    for (uint64_t i = 0; i < end; i += step) keys.push_back(sample.key(i));
    for (const std::string& key : keys) {
      pointers.push_back(key.data());
      sizes.push_back(key.size());
    }
  }
  int get(swale_reader* reader, int64_t epoch, Notes* notes, size_t* found) const {
    return swale_reader_get_many(reader, pointers.data(), sizes.data(), keys.size(), epoch, &Notes::record,
                                 notes, found);
  }
};

// Of every third key, or of all.
ReaderCall get_many_call(const std::string& name, uint64_t step, int64_t epoch) {
  return {name, [=](const ReaderSample& sample, swale_reader* reader, const Around& around) -> Answer {
            const KeyList keys(sample, sample.keys() + 5, step);
            Notes notes;
            size_t found = 0;
            const int code = around([&] { return keys.get(reader, epoch, &notes, &found); });
            Answer answer = notes.answer(code, true);
            if (code == SWALE_OK) answer.text += fmt::format("{} found", found);
            return answer;
          }};
}

Answer ask_file(const ReaderSample& sample, swale_reader* reader, const Around& around) {
  const std::string key = sample.key(1);
  std::vector<char> bytes(2'000'000);
  size_t got = 0;
  const int code = around([&] {
    swale_subfile* file = nullptr;
    int result = swale_subfile_open_read(reader, key.c_str(), &file);
    if (result != SWALE_OK) return result;
    size_t part = 1;
    while (result == SWALE_OK && part > 0 && got < bytes.size()) {
      result =
          swale_subfile_read(file, bytes.data() + got, std::min<size_t>(100'000, bytes.size() - got), &part);
      if (result == SWALE_OK) got += part;
    }
    const int closed = swale_subfile_close(file);
    return result != SWALE_OK ? result : closed;
  });
  return {code, code == SWALE_OK ? std::string(bytes.data(), got) : ""};
}

Answer ask_top(swale_reader* reader, const char* field, int end, const Around& around) {
  swale_top* top = nullptr;
  const int code = around([&] { return swale_reader_top(reader, field, 2, 9, end, &top); });
  if (code != SWALE_OK) return {code, ""};
  Answer answer{code, ""};
  for (size_t i = 0; i < swale_top_count(top); ++i) {
    swale_top_record record;
    record.struct_bytes = sizeof record;
    if (swale_top_at(top, i, &record) != SWALE_OK) return {-1, "swale_top_at"};
    answer.text += fmt::format("{} ", record.number);
    answer.text.append(static_cast<const char*>(record.key), record.key_bytes).append(" ");
    answer.text.append(static_cast<const char*>(record.value), record.value_bytes).append("\n");
  }
  swale_top_free(top);
  return answer;
}

Answer ask_stats(swale_reader* reader, const Around& around) {
  swale_stats* stats = nullptr;
  const int code = around([&] { return swale_reader_epoch_stats(reader, 1, &stats); });
  if (code != SWALE_OK) return {code, ""};
  Answer answer{code, ""};
  for (size_t i = 0; i < swale_stats_count(stats); ++i) {
    swale_stat stat;
    stat.struct_bytes = sizeof stat;
    if (swale_stats_at(stats, i, &stat) != SWALE_OK) return {-1, "swale_stats_at"};
    answer.text += fmt::format("{} {}\n", stat.name, stat.sum);
  }
  swale_stats_free(stats);
  return answer;
}

// The rows of a stream, as text. A failure of the stream is told as one of a call.
int read_stream(ArrowArrayStream* stream, Notes* notes) {
  int result = SWALE_OK;
  for (bool more = true; more && result == SWALE_OK;) {
    ArrowArray array = {};
    if (stream->get_next(stream, &array) != 0) {
      swale_error_info info = {};
      info.struct_bytes = sizeof info;
      if (swale_stream_error(stream, &info) != SWALE_OK) return -1;
      result = info.code;
      if (*info.message == '\0') result = -1;
    }
    more = array.release != nullptr;
    if (!more) break;
    const FailingNew::Pause pause;
    const auto* const epochs = static_cast<const int64_t*>(array.children[0]->buffers[1]);
    const ArrowArray& keys = *array.children[1];
    const auto* const ends = static_cast<const int32_t*>(keys.buffers[1]);
    for (int64_t row = 0; row < array.length; ++row) {
      const auto* const key = static_cast<const char*>(keys.buffers[2]) + ends[row];
      notes->text += fmt::format("{} ", epochs[row]);
      notes->text.append(key, static_cast<size_t>(ends[row + 1] - ends[row])).append("\n");
    }
    array.release(&array);
  }
  stream->release(stream);
  return result;
}

// Of records that meet a condition, or of keys.
ReaderCall stream_call(const std::string& name, const char* where, uint64_t keys_step) {
  return {name, [=](const ReaderSample& sample, swale_reader* reader, const Around& around) -> Answer {
            const KeyList keys(sample, sample.keys(), keys_step);
            const char* const columns[] = {"epoch", "key", "x", "value"};
            swale_query query = {};
            query.struct_bytes = sizeof query;
            query.columns = columns;
            query.column_count = 4;
            query.where = where;
            query.threads = 1;
            query.batch_rows = 100;
            if (where == nullptr) {
              query.keys = keys.pointers.data();
              query.key_bytes = keys.sizes.data();
              query.key_count = keys.keys.size();
            }
            Notes notes;
            return notes.answer(around([&] {
                                  ArrowArrayStream stream = {};
                                  const int code = swale_reader_stream(reader, &query, &stream);
                                  return code != SWALE_OK ? code : read_stream(&stream, &notes);
                                }),
                                true);
          }};
}

// A call that gives records or keys to notes.
ReaderCall walk_call(const std::string& name, int (*walk)(swale_reader* reader, Notes* notes)) {
  return {name, [=](const ReaderSample&, swale_reader* reader, const Around& around) {
            Notes notes;
            return notes.answer(around([&] { return walk(reader, &notes); }));
          }};
}

}  // namespace

ReaderSample::ReaderSample(uint64_t records_per_rank)
    : path_(fmt::format("{}/swale-reader-{}", std::filesystem::temp_directory_path().string(), getpid())),
      keys_(records_per_rank * kRanks / 2) {
  std::filesystem::remove_all(path_);
  io::PosixDevice device;
  std::mutex mutex;
  imd::run_ranks(kRanks, [&](net::Job& job) {
    imd::WriterOptions options;
    options.memory_bytes = 6 * kMiB;
    options.ways = 2;
    options.schema = *run::Schema::parse("x:f8;id:u8;_:*", "x");
    auto writer = imd::Writer::open(job, device, path_, imd::Writer::Create::kIfMissing, options);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      for (uint64_t i = 0; i < records_per_rank; ++i) {
        const uint64_t number = i * kRanks + static_cast<uint64_t>(job.rank());
        const std::string name = key(number % keys_);
        const size_t bytes = number == 1 ? kHugeBytes : number % 37 == 5 ? kLargeBytes : 20 + number % 60;
        const std::string value = value_of(number + static_cast<uint64_t>(epoch) * 1'000'000, bytes);
        ASSERT_TRUE((*writer)->append(name, value).ok());
        const std::lock_guard lock(mutex);
        written[{epoch, name}].push_back(value);
      }
      const Status status = (*writer)->epoch_end(epoch, static_cast<double>(epoch));
      ASSERT_TRUE(status.ok()) << status.to_string();
      if (job.rank() == 0 && epoch == 1) before_ = documents();
    }
    ASSERT_TRUE((*writer)->close().ok());
  });
  for (auto& [place, values] : written) std::sort(values.begin(), values.end());
  now_ = documents();
}

// What says which epochs there are.
std::map<std::string, std::string> ReaderSample::documents() const {
  std::map<std::string, std::string> contents;
  for (const char* name : {"swale.json", "jobs/0001/manifest.json", "jobs/0001/epochs"})
    contents[name] = content_of(path_ + "/" + name);
  return contents;
}

void ReaderSample::put(const std::map<std::string, std::string>& documents) const {
  for (const auto& [name, content] : documents) put_content(path_ + "/" + name, content);
}

ReaderSample::~ReaderSample() { std::filesystem::remove_all(path_); }
void ReaderSample::go_back() const { put(before_); }
void ReaderSample::go_on() const { put(now_); }

const std::vector<ReaderCall>& reader_calls() {
  using Sample = const ReaderSample&;
  static const std::vector<ReaderCall> calls = {
      get_call("get", 7, SWALE_ALL_EPOCHS),
      get_call("get of one epoch", 12, 2),
      get_call("get of a large value", 5, 1),
      get_call("get of a huge value", 1, SWALE_ALL_EPOCHS),
      get_call("get of no key", 1'000'000, SWALE_ALL_EPOCHS),
      get_many_call("get_many", 17, SWALE_ALL_EPOCHS),
      get_many_call("get_many of all keys", 1, 1),
      {"get_many that is stopped",
       [](Sample sample, swale_reader* reader, const Around& around) -> Answer {
         const KeyList keys(sample, 30, 1);
         Notes notes;
         notes.stop_after = 4;
         const int code = around([&] { return keys.get(reader, SWALE_ALL_EPOCHS, &notes, nullptr); });
         return {code, code == SWALE_OK ? std::to_string(notes.stop_after) : ""};
       }},
      {"openat_read, read, close", ask_file},
      walk_call("scan", [](swale_reader* reader,
                           Notes* notes) { return swale_reader_scan(reader, 1, &Notes::record, notes); }),
      walk_call("scan_part",
                [](swale_reader* reader, Notes* notes) {
                  return swale_reader_scan_part(reader, 2, 1, 5, &Notes::record, notes);
                }),
      walk_call("keys", [](swale_reader* reader,
                           Notes* notes) { return swale_reader_keys(reader, 3, &Notes::one_key, notes); }),
      walk_call("sample",
                [](swale_reader* reader, Notes* notes) {
                  return swale_reader_sample(reader, 3, 2, 5, &Notes::one_key, notes);
                }),
      walk_call("sample by scan",
                [](swale_reader* reader, Notes* notes) {
                  return swale_reader_sample(reader, 3, 100'000, 5, &Notes::one_key, notes);
                }),
      {"top", [](Sample, swale_reader* reader,
                 const Around& around) { return ask_top(reader, "x", SWALE_TOP_LARGEST, around); }},
      {"top by scan", [](Sample, swale_reader* reader,
                         const Around& around) { return ask_top(reader, "id", SWALE_TOP_SMALLEST, around); }},
      stream_call("stream of a scan", "id % 3 == 0 && x >= 1", 1),
      stream_call("stream of keys", nullptr, 17),
      {"epoch_stats",
       [](Sample, swale_reader* reader, const Around& around) { return ask_stats(reader, around); }},
      {"epoch_info",
       [](Sample, swale_reader* reader, const Around& around) -> Answer {
         swale_epoch_info info{};
         info.struct_bytes = sizeof info;
         const int code = around([&] { return swale_reader_epoch_info(reader, 1, &info); });
         return {code, fmt::format("{} {} {}", info.step, info.time, info.records)};
       }},
      {"count",
       [](Sample, swale_reader* reader, const Around& around) -> Answer {
         uint64_t records = 0;
         const int code = around([&] { return swale_reader_count(reader, SWALE_ALL_EPOCHS, &records); });
         return {code, std::to_string(records)};
       }},
      {"warm",
       [](Sample, swale_reader* reader, const Around& around) -> Answer {
         const int64_t epochs[] = {1, SWALE_ALL_EPOCHS};
         return {around([&] { return swale_reader_warm(reader, epochs, 2, nullptr); }), ""};
       }},
      {"an epoch that is not there",
       [](Sample, swale_reader* reader, const Around& around) -> Answer {
         Notes notes;
         return {around([&] { return swale_reader_scan(reader, 99, &Notes::record, &notes); }), ""};
       }},
  };
  return calls;
}

}  // namespace swale::faults
