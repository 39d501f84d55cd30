// Swale for C++: thin owners of the handles of swale.h. Header only; needs C++17 and the C library's symbols
// alone. The metadata store, the tiered write buffer and the I/O servers have headers of their own:
// swale_meta.hpp, swale_tier.hpp, swale_iond.hpp.
//
//   swale::Job job;                                            // one rank, or as the launcher says
//   swale::Directory dir(job, "out/particles", SWALE_CREATE);
//   dir.append("atom-17", bytes);
//   dir.epoch_end(step, time);
//   dir.close();
//   ...
//   swale::Reader reader("out/particles");
//   for (const swale::Value& value : reader.get("atom-17")) use(value.epoch, value.bytes);
//
// Errors: every call that fails throws swale::Error, with the code and the message of the C interface.
// Destructors report
//   nothing: call close() where its status matters, that is for every Directory and Job.
// Threads and collective calls: as the functions of swale.h that they wrap.
// Bytes are std::string_view: any bytes, not text.
#ifndef SWALE_SWALE_HPP_
#define SWALE_SWALE_HPP_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "swale/swale.h"

namespace swale {

// A failed call: its swale_code, and the text of swale_last_error.
class Error : public std::runtime_error {
 public:
  // `code`: a swale_code; `message`: what went wrong, where, and what to do.
  Error(int code, const std::string& message)
      : std::runtime_error(std::string(swale_code_name(code)) + ": " + message), code_(code) {}
  // The swale_code.
  int code() const noexcept { return code_; }

 private:
  int code_;
};

namespace detail {

inline void check(int code) {
  if (code != SWALE_OK) throw Error(code, swale_last_error());
}

inline std::string_view bytes_of(const void* data, std::size_t bytes) {
  return {static_cast<const char*>(data), bytes};
}

// Carries an exception of a function object past the C library.
template <class Fn>
struct Carrier {
  Fn& fn;
  std::exception_ptr thrown = nullptr;

  template <class... Args>
  int carry(Args... args) {
    try {
      return fn(args...) ? 0 : 1;
    } catch (...) {
      thrown = std::current_exception();
      return 1;
    }
  }
  void finish(int code) const {
    if (thrown) std::rethrow_exception(thrown);
    check(code);
  }
};

template <class Fn>
struct Callback : Carrier<Fn> {
  static int call(void* context, std::int64_t epoch, const void* key, std::size_t key_bytes,
                  const void* value, std::size_t value_bytes) {
    return static_cast<Callback*>(context)->carry(epoch, bytes_of(key, key_bytes),
                                                  bytes_of(value, value_bytes));
  }
};

template <class Fn>
struct KeyCallback : Carrier<Fn> {
  static int call(void* context, const void* key, std::size_t key_bytes) {
    return static_cast<KeyCallback*>(context)->carry(bytes_of(key, key_bytes));
  }
};

// Carries lines of text.
template <class Fn>
struct TextCallback : Carrier<Fn> {
  static int call(void* context, const char* text) {
    return static_cast<TextCallback*>(context)->carry(text);
  }
};

// What a call fills in.
template <class Call>
swale_attributes attributes_by(const Call& call) {
  swale_attributes attributes = {};
  attributes.struct_bytes = sizeof attributes;
  check(call(&attributes));
  return attributes;
}

}  // namespace detail

// The library's version, "0.1.0".
inline std::string version() { return swale_version(); }

// Membership in a job: swale_job_open and its relatives.
class Job {
 public:
  // [collective] Rank, size and peers from the launcher's environment.
  explicit Job(const std::string& options = {}) {
    detail::check(swale_job_open(nullptr, options.c_str(), &handle_));
  }
  // [collective] Over the caller's communicator: swale_comm_from_mpi (swale_mpi.h) makes one.
  explicit Job(const swale_comm& comm, const std::string& options = {}) {
    detail::check(swale_job_open(&comm, options.c_str(), &handle_));
  }
  // The moved-from object owns nothing.
  Job(Job&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  // Swaps.
  Job& operator=(Job&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Job() { swale_job_close(handle_); }

  // This process's rank.
  int rank() const { return swale_job_rank(handle_); }
  // The number of ranks.
  int size() const { return swale_job_size(handle_); }
  // [collective] Leaves the job.
  void close() { detail::check(swale_job_close(std::exchange(handle_, nullptr))); }
  // Still owned by this object.
  swale_job* handle() const { return handle_; }

 private:
  swale_job* handle_ = nullptr;
};

// A counter, merged over ranks: swale_stat.
struct Stat {
  std::string name;       // "append.wait"
  std::string unit;       // "ns", "bytes" or ""
  std::uint64_t sum = 0;  // over all ranks
  std::uint64_t min = 0;  // of a rank
  std::uint64_t max = 0;  // of a rank
  int min_rank = 0;       // the rank with the least
  int max_rank = 0;       // the rank with the greatest
};

namespace detail {

inline std::vector<Stat> take_stats(swale_stats* found) {
  struct Owner {
    swale_stats* handle;
    ~Owner() { swale_stats_free(handle); }
  };
  const Owner owner{found};
  std::vector<Stat> stats;
  for (std::size_t i = 0; i < swale_stats_count(found); ++i) {
    swale_stat stat;
    stat.struct_bytes = sizeof stat;
    check(swale_stats_at(found, i, &stat));
    stats.push_back({stat.name, stat.unit, stat.sum, stat.min, stat.max, stat.min_rank, stat.max_rank});
  }
  return stats;
}

}  // namespace detail

// The sum of the counter of that name; throws SWALE_NOT_FOUND if there is none.
inline std::uint64_t sum_of(const std::vector<Stat>& stats, std::string_view name) {
  for (const Stat& stat : stats) {
    if (stat.name == name) return stat.sum;
  }
  throw Error(SWALE_NOT_FOUND, "no counter is called \"" + std::string(name) + "\"");
}

// A massive directory open for writing. The Job must stay open until it is closed.
class Directory {
 public:
  // [collective] `flags`: swale_dir_flags.
  Directory(Job& job, const std::string& path, int flags = 0, const std::string& options = {}) {
    detail::check(swale_dir_open(job.handle(), path.c_str(), flags, options.c_str(), &handle_));
  }
  // [collective] Records go to the rank that `fn` names; the options have imd.partitioner=NAME.
  Directory(Job& job, const std::string& path, int flags, const std::string& options, swale_partition_fn fn,
            void* context) {
    detail::check(swale_dir_open_partitioned(job.handle(), path.c_str(), flags, options.c_str(), fn, context,
                                             &handle_));
  }
  // The moved-from object owns nothing.
  Directory(Directory&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  // Swaps.
  Directory& operator=(Directory&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Directory() { swale_dir_close(handle_); }

  // Appends a value to a key of the open epoch; by any number of threads.
  void append(std::string_view key, std::string_view value) {
    detail::check(swale_dir_append(handle_, key.data(), key.size(), value.data(), value.size()));
  }
  // [collective] Commits the open epoch: durable and visible when it returns.
  void epoch_end(std::int64_t step, double time) { detail::check(swale_dir_epoch_end(handle_, step, time)); }
  // [collective] Begins to commit the open epoch; records appended from now on belong to the next one.
  void epoch_end_begin(std::int64_t step, double time) {
    detail::check(swale_dir_epoch_end_begin(handle_, step, time));
  }
  // [collective] Waits until the epoch is committed: durable and visible when it returns.
  void epoch_end_wait() { detail::check(swale_dir_epoch_end_wait(handle_)); }
  // [collective] Gives the directory or the open epoch (`what` is a swale_described) a JSON object; committed
  // with the open epoch.
  void set_attributes(int what, const std::string& json) {
    detail::check(swale_dir_set_attributes(handle_, what, json.c_str()));
  }
  // No sorting and writing on this rank until resume(), unless a buffer is full.
  void pause() { detail::check(swale_dir_pause(handle_)); }
  // Sorts and writes again.
  void resume() { detail::check(swale_dir_resume(handle_)); }
  // This rank's counters since the directory was opened.
  std::vector<Stat> stats() const {
    swale_stats* found = nullptr;
    detail::check(swale_dir_stats(handle_, &found));
    return detail::take_stats(found);
  }
  // [collective] Throws SWALE_ABORTED if records after the last epoch end were dropped.
  void close() { detail::check(swale_dir_close(std::exchange(handle_, nullptr))); }
  // Still owned by this object.
  swale_dir* handle() const { return handle_; }

 private:
  swale_dir* handle_ = nullptr;
};

// One value of a key.
struct Value {
  std::int64_t epoch = 0;  // in which it was appended
  std::string bytes;       // as it was given
};

// One of the best records of an epoch.
struct TopRecord {
  std::string key;      // of the record
  std::string value;    // the whole value
  std::string field;    // the number as stored in the value, little-endian
  double number = 0.0;  // the same; rounded if it is an integer above 2^53
};
// The result of Reader::top.
struct Top {
  std::vector<TopRecord> records;  // the best first
  swale_top_stats stats = {};      // what the query cost, and what it left out
};

// A massive directory open for reading, as of its last committed epoch.
class Reader {
 public:
  // Needs nothing but the path.
  explicit Reader(const std::string& path, const std::string& options = {}) {
    detail::check(swale_reader_open(path.c_str(), options.c_str(), &handle_));
  }
  // The moved-from object owns nothing.
  Reader(Reader&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  // Swaps.
  Reader& operator=(Reader&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Reader() { swale_reader_close(handle_); }

  // Queries ask one partition of epochs that were written with this partitioner.
  void set_partitioner(const std::string& name, swale_partition_fn fn, void* context = nullptr) {
    detail::check(swale_reader_set_partitioner(handle_, name.c_str(), fn, context));
  }
  // Makes newly committed epochs visible; returns 0 or a sum of swale_refresh.
  int refresh() {
    int changed = 0;
    detail::check(swale_reader_refresh(handle_, &changed));
    return changed;
  }
  // Epochs are numbered from 0 to epoch_count() - 1.
  std::int64_t epoch_count() const { return swale_reader_epoch_count(handle_); }
  // Step, time and number of records of an epoch.
  swale_epoch_info epoch_info(std::int64_t epoch) const {
    swale_epoch_info info;
    info.struct_bytes = sizeof info;
    detail::check(swale_reader_epoch_info(handle_, epoch, &info));
    return info;
  }

  // What the epoch cost its writers, over all ranks.
  std::vector<Stat> epoch_stats(std::int64_t epoch) const {
    swale_stats* found = nullptr;
    detail::check(swale_reader_epoch_stats(handle_, epoch, &found));
    return detail::take_stats(found);
  }

  // The key's values in one epoch or in all, ordered by epoch. Empty: there is no such key. (An empty value
  // is one value without bytes.)
  std::vector<Value> get(std::string_view key, std::int64_t epoch = SWALE_ALL_EPOCHS) const {
    swale_values* found = nullptr;
    const int code = swale_reader_get(handle_, key.data(), key.size(), epoch, &found);
    if (code == SWALE_NOT_FOUND && (epoch == SWALE_ALL_EPOCHS || epoch < epoch_count())) return {};
    detail::check(code);
    const Values owner{found};
    std::vector<Value> values(swale_values_count(found));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const void* data = nullptr;
      std::size_t bytes = 0;
      detail::check(swale_values_at(found, i, &values[i].epoch, &data, &bytes));
      values[i].bytes.assign(static_cast<const char*>(data), bytes);
    }
    return values;
  }

  // bool fn(int64_t epoch, string_view key, string_view value) for every value of every key, in no particular
  // order; false stops. Returns the number of keys that have a value. An exception of fn is passed on.
  template <class Fn>
  std::size_t get_many(const std::vector<std::string>& keys, std::int64_t epoch, Fn&& fn) const {
    std::vector<const void*> data;
    std::vector<std::size_t> bytes;
    for (const std::string& key : keys) {
      data.push_back(key.data());
      bytes.push_back(key.size());
    }
    std::size_t found = 0;
    detail::Callback<Fn> callback{{fn}};
    callback.finish(swale_reader_get_many(handle_, data.data(), bytes.data(), keys.size(), epoch,
                                          callback.call, &callback, &found));
    return found;
  }

  // bool fn(int64_t epoch, string_view key, string_view value) for every record; false stops. Passes on fn's
  // exceptions.
  template <class Fn>
  void scan(std::int64_t epoch, Fn&& fn) const {
    detail::Callback<Fn> callback{{fn}};
    callback.finish(swale_reader_scan(handle_, epoch, callback.call, &callback));
  }

  // The same for the records of one part (0 <= part < parts): each is in exactly one. May be called by
  // several threads at once, each with a part and an fn of its own.
  template <class Fn>
  void scan_part(std::int64_t epoch, std::uint32_t part, std::uint32_t parts, Fn&& fn) const {
    detail::Callback<Fn> callback{{fn}};
    callback.finish(swale_reader_scan_part(handle_, epoch, part, parts, callback.call, &callback));
  }

  // bool fn(string_view key) for every distinct key of one epoch; false stops. Passes on fn's exceptions.
  template <class Fn>
  void keys(std::int64_t epoch, Fn&& fn) const {
    detail::KeyCallback<Fn> callback{{fn}};
    callback.finish(swale_reader_keys(handle_, epoch, callback.call, &callback));
  }

  // bool fn(string_view key) for n distinct keys of one epoch, drawn at random; false stops. Passes on fn's
  // exceptions.
  template <class Fn>
  void sample(std::int64_t epoch, std::size_t n, std::uint64_t seed, Fn&& fn) const {
    detail::KeyCallback<Fn> callback{{fn}};
    callback.finish(swale_reader_sample(handle_, epoch, n, seed, callback.call, &callback));
  }

  // The schema that the directory was made with; empty if none.
  std::string schema() const { return swale_reader_schema(handle_); }
  // The JSON object that the directory (as of an epoch, or of the last one) or an epoch was given; "{}" if
  // none.
  std::string attributes(int what, std::int64_t epoch = SWALE_ALL_EPOCHS) const {
    std::string json(SWALE_ATTRIBUTES_BYTES_MAX + 1, '\0');
    std::size_t needed = 0;
    detail::check(swale_reader_attributes(handle_, what, epoch, json.data(), json.size(), &needed));
    json.resize(needed - 1);
    return json;
  }
  // The type of keys that the directory was made with: "u64", "i64", "text" or "bytes"; empty if none.
  std::string key_type() const { return swale_reader_key_type(handle_); }
  // The k records of one epoch with the largest or smallest (SWALE_TOP_...) numbers in a field, the best
  // first.
  Top top(const std::string& field, std::int64_t epoch, std::size_t k, int end = SWALE_TOP_LARGEST) const {
    swale_top* found = nullptr;
    detail::check(swale_reader_top(handle_, field.c_str(), epoch, k, end, &found));
    const TopHandle owner{found};
    Top top;
    top.stats.struct_bytes = sizeof top.stats;
    detail::check(swale_top_get_stats(found, &top.stats));
    for (std::size_t i = 0; i < swale_top_count(found); ++i) {
      swale_top_record record;
      record.struct_bytes = sizeof record;
      detail::check(swale_top_at(found, i, &record));
      top.records.push_back({std::string(detail::bytes_of(record.key, record.key_bytes)),
                             std::string(detail::bytes_of(record.value, record.value_bytes)),
                             std::string(detail::bytes_of(record.field, record.field_bytes)), record.number});
    }
    return top;
  }

  // Reads the index of these epochs into the cache of the process, as far as it fits; returns how many bytes
  // of it they take.
  std::uint64_t warm(const std::vector<std::int64_t>& epochs = {SWALE_ALL_EPOCHS}) const {
    std::uint64_t bytes = 0;
    detail::check(swale_reader_warm(handle_, epochs.data(), epochs.size(), &bytes));
    return bytes;
  }

  // The number of records in one epoch or in all; reads no data.
  std::uint64_t count(std::int64_t epoch = SWALE_ALL_EPOCHS) const {
    std::uint64_t records = 0;
    detail::check(swale_reader_count(handle_, epoch, &records));
    return records;
  }
  // The requests to storage since the reader was opened.
  std::vector<Stat> stats() const {
    swale_stats* found = nullptr;
    detail::check(swale_reader_stats(handle_, &found));
    return detail::take_stats(found);
  }
  // Still owned by this object.
  swale_reader* handle() const { return handle_; }

 private:
  struct Values {
    swale_values* handle;
    ~Values() { swale_values_free(handle); }
  };
  struct TopHandle {
    swale_top* handle;
    ~TopHandle() { swale_top_free(handle); }
  };

  swale_reader* handle_ = nullptr;
};

}  // namespace swale

#endif  // SWALE_SWALE_HPP_
