// swale._native.Reader: a massive directory that is open for reading. swale/_directory.py has what users see.
//
// Threads: several Python threads may make any call at once. A call that has begun when close() is called
// ends regularly. In a child made by fork every call raises: another thread of the parent may have held a
// lock.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "arrow.h"
#include "bindings.h"
#include "failure.h"
#include "key.h"

namespace swale::python {
namespace {

// What a row of a trajectory begins with: its epoch's number, step and time.
struct RowHead {
  int64_t epoch;
  int64_t step;
  double time;
};

struct Epoch {
  int64_t step;
  double time;
  uint64_t records;
};

struct FreeValues {
  void operator()(swale_values* values) const { swale_values_free(values); }
};
using Values = std::unique_ptr<swale_values, FreeValues>;

struct FreeCounters {
  void operator()(swale_stats* stats) const { swale_stats_free(stats); }
};
using Counters = std::unique_ptr<swale_stats, FreeCounters>;

// Keys that a callback gathers.
struct Keys {
  Signals signals;
  std::string bytes;
  std::vector<size_t> ends;

  static int add(void* context, const void* key, size_t key_bytes) {
    auto* const keys = static_cast<Keys*>(context);
    try {
      keys->bytes.append(static_cast<const char*>(key), key_bytes);
      keys->ends.push_back(keys->bytes.size());
    } catch (const std::bad_alloc&) {
      keys->out_of_memory = true;
      return 1;
    }
    return keys->signals.arrived() ? 1 : 0;
  }
  bool out_of_memory = false;
};

class Reader {
 public:
  Reader(nb::bytes path_bytes, const std::string& options) {
    const std::string path(path_bytes.c_str(), path_bytes.size());
    swale_reader* opened = nullptr;
    call([&] { return swale_reader_open(path.c_str(), options.c_str(), &opened); });
    handle_ = {opened, [](swale_reader* reader) { swale_reader_close(reader); }};
    key_type_ = key_type_named(swale_reader_key_type(opened));
    learn_epochs();
  }

  void close() {
    const std::shared_ptr<swale_reader> closing = std::move(handle_);
    const nb::gil_scoped_release without;
  }
  bool closed() const { return !handle_; }

  int refresh() {
    const auto reader = handle();
    int changed = 0;
    call([&] { return swale_reader_refresh(reader.get(), &changed); });
    learn_epochs();
    return changed;
  }
  size_t epoch_count() const { return epochs_.size(); }
  nb::tuple epoch(size_t number) const {
    const Epoch& found = epochs_.at(number);
    const nb::object step = found.step == INT64_MIN ? nb::none() : nb::object(nb::int_(found.step));
    return nb::make_tuple(number, step, found.time, found.records);
  }
  std::string schema() { return swale_reader_schema(handle().get()); }
  std::string key_type() { return swale_reader_key_type(handle().get()); }

  // JSON. `of_epoch`: the epoch's own; else the directory's as of it (-1: the last one).
  std::string attributes(bool of_epoch, int64_t epoch) {
    const auto reader = handle();
    std::string json(SWALE_ATTRIBUTES_BYTES_MAX + 1, '\0');
    size_t needed = 0;
    const int what = of_epoch ? SWALE_DESCRIBED_EPOCH : SWALE_DESCRIBED_DIRECTORY;
    call([&] {
      return swale_reader_attributes(reader.get(), what, epoch, json.data(), json.size(), &needed);
    });
    json.resize(needed - 1);
    return json;
  }

  // The key's values as rows of RowHead and `value_bytes` bytes; None: there is no such key.
  nb::object rows(nb::handle key, int64_t epoch, size_t value_bytes) {
    const Values values = get(key, epoch);
    if (!values) return nb::none();
    const size_t count = swale_values_count(values.get());
    const size_t row_bytes = sizeof(RowHead) + value_bytes;
    nb::object rows =
        nb::steal(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(count * row_bytes)));
    if (!rows.is_valid()) throw nb::python_error();
    char* out = PyByteArray_AsString(rows.ptr());
    for (size_t i = 0; i < count; ++i, out += row_bytes) {
      int64_t at = 0;
      const void* value = nullptr;
      size_t bytes = 0;
      check(swale_values_at(values.get(), i, &at, &value, &bytes));
      if (bytes < value_bytes) {
        raise_value("the value of epoch " + std::to_string(at) + " has " + std::to_string(bytes) +
                    " of the " + std::to_string(value_bytes) +
                    " bytes of all fields: ask with get_many([key]), whose columns show what is missing");
      }
      const RowHead head = head_of(at);
      std::memcpy(out, &head, sizeof head);
      std::memcpy(out + sizeof head, value, value_bytes);
    }
    return rows;
  }

  // The key's values as a list of (epoch, step, time, bytes); None: there is no such key.
  nb::object values(nb::handle key, int64_t epoch) {
    const Values found = get(key, epoch);
    if (!found) return nb::none();
    nb::list list;
    for (size_t i = 0; i < swale_values_count(found.get()); ++i) {
      int64_t at = 0;
      const void* value = nullptr;
      size_t bytes = 0;
      check(swale_values_at(found.get(), i, &at, &value, &bytes));
      const RowHead head = head_of(at);
      list.append(nb::make_tuple(at, head.step, head.time, nb::bytes(value, bytes)));
    }
    return list;
  }
  bool contains(nb::handle key) { return static_cast<bool>(get(key, SWALE_ALL_EPOCHS)); }

  // `keys`: None, or (the bytes of all keys, the end of each; no ends: each has 8).
  std::unique_ptr<Stream> stream(const std::optional<std::vector<int64_t>>& epochs,
                                 const std::optional<std::pair<nb::bytes, std::vector<size_t>>>& keys,
                                 const std::optional<std::vector<std::string>>& columns,
                                 const std::optional<std::string>& where, uint64_t batch_rows,
                                 uint32_t threads, uint32_t part, uint32_t parts) {
    const auto reader = handle();
    swale_query query = {};
    query.struct_bytes = sizeof query;
    static const int64_t kNoEpoch = 0;  // a pointer to no epochs is not the NULL that means all
    if (epochs) {
      query.epochs = epochs->empty() ? &kNoEpoch : epochs->data();
      query.epoch_count = epochs->size();
    }
    std::vector<const void*> key_data = {nullptr};
    std::vector<size_t> key_bytes = {0};
    if (keys) {
      size_t begin = 0;
      key_data.clear();
      key_bytes.clear();
      const auto add = [&](size_t end) {
        key_data.push_back(static_cast<const char*>(keys->first.data()) + begin);
        key_bytes.push_back(end - begin);
        begin = end;
      };
      for (const size_t end : keys->second) add(end);
      if (keys->second.empty()) {
        while (begin + sizeof(uint64_t) <= keys->first.size()) add(begin + sizeof(uint64_t));
      }
      query.key_count = key_data.size();
      key_data.push_back(nullptr);  // so that data() is not NULL, which means all
      query.keys = key_data.data();
      query.key_bytes = key_bytes.data();
    }
    std::vector<const char*> names = {};
    if (columns) {
      for (const std::string& name : *columns) names.push_back(name.c_str());
      query.column_count = names.size();
      names.push_back(nullptr);
      query.columns = names.data();
    }
    query.where = where ? where->c_str() : nullptr;
    query.batch_rows = batch_rows;
    query.threads = threads;
    query.part = part;
    query.parts = parts;
    auto interrupt = std::make_unique<Stream::Interrupt>();
    query.progress = &Stream::progress;
    query.progress_context = interrupt.get();
    ArrowArrayStream made = {};
    call([&] { return swale_reader_stream(reader.get(), &query, &made); });
    return std::make_unique<Stream>(made, std::move(interrupt));
  }

  std::unique_ptr<Stream> top(const std::string& field, int64_t epoch, size_t k, bool smallest) {
    const auto reader = handle();
    ArrowArrayStream made = {};
    const int end = smallest ? SWALE_TOP_SMALLEST : SWALE_TOP_LARGEST;
    call([&] { return swale_reader_top_stream(reader.get(), field.c_str(), epoch, k, end, &made); });
    return std::make_unique<Stream>(made, nullptr);
  }

  uint64_t warm(const std::vector<int64_t>& epochs) {
    const auto reader = handle();
    uint64_t bytes = 0;
    call([&] { return swale_reader_warm(reader.get(), epochs.data(), epochs.size(), &bytes); });
    return bytes;
  }

  nb::object keys(int64_t epoch) {
    const auto reader = handle();
    Keys found;
    call([&] { return swale_reader_keys(reader.get(), epoch, &Keys::add, &found); });
    return keys_object(found);
  }
  nb::object sample(int64_t epoch, size_t n, uint64_t seed) {
    const auto reader = handle();
    Keys found;
    call([&] { return swale_reader_sample(reader.get(), epoch, n, seed, &Keys::add, &found); });
    return keys_object(found);
  }

  // (the bytes of all keys, the end of each)
  std::pair<nb::bytes, std::vector<size_t>> encode(nb::iterable keys) const {
    std::string bytes;
    std::vector<size_t> ends;
    for (const nb::handle key : keys) {
      bytes += encode_key(key, key_type_);
      ends.push_back(bytes.size());
    }
    return {nb::bytes(bytes.data(), bytes.size()), std::move(ends)};
  }

  nb::dict stats() {
    const auto reader = handle();
    swale_stats* found = nullptr;
    call([&] { return swale_reader_stats(reader.get(), &found); });
    const Counters owner(found);
    nb::dict stats;
    for (size_t i = 0; i < swale_stats_count(found); ++i) {
      swale_stat stat = {};
      stat.struct_bytes = sizeof stat;
      check(swale_stats_at(found, i, &stat));
      stats[stat.name] = stat.sum;
    }
    return stats;
  }

  // JSON, as swale_stats_json describes it.
  std::string epoch_stats(int64_t epoch) {
    const auto reader = handle();
    swale_stats* found = nullptr;
    call([&] { return swale_reader_epoch_stats(reader.get(), epoch, &found); });
    const Counters owner(found);
    const char* const json = swale_stats_json(found);
    if (json == nullptr) throw std::bad_alloc();
    return json;
  }

 private:
  static void check(int code) {
    if (code != SWALE_OK) Failure::of_this_thread().raise();
  }

  std::shared_ptr<swale_reader> handle() const {
    if (!handle_) raise_value("the directory is closed: open it again with swale.open(path)");
    if (::getpid() != process_) {
      PyErr_SetString(
          PyExc_RuntimeError,
          "the directory was opened by the parent process, and threads do not survive a fork: open it in the "
          "child with swale.open(path)");
      throw nb::python_error();
    }
    return handle_;
  }

  void learn_epochs() {
    std::vector<Epoch> known;
    const int64_t count = swale_reader_epoch_count(handle_.get());
    for (int64_t epoch = 0; epoch < count; ++epoch) {
      swale_epoch_info info = {};
      info.struct_bytes = sizeof info;
      check(swale_reader_epoch_info(handle_.get(), epoch, &info));
      known.push_back({info.step, info.time, info.records});
    }
    epochs_ = std::move(known);
  }

  // Another thread may have refreshed the directory since the values were found.
  RowHead head_of(int64_t epoch) const {
    if (static_cast<size_t>(epoch) >= epochs_.size()) return {epoch, INT64_MIN, 0};
    const Epoch& known = epochs_[static_cast<size_t>(epoch)];
    return {epoch, known.step, known.time};
  }

  Values get(nb::handle key, int64_t epoch) {
    const auto reader = handle();
    const std::string bytes = encode_key(key, key_type_);
    swale_values* found = nullptr;
    std::optional<Failure> failure;
    {
      const nb::gil_scoped_release without;
      const int code = swale_reader_get(reader.get(), bytes.data(), bytes.size(), epoch, &found);
      if (code != SWALE_OK && code != SWALE_NOT_FOUND) failure = Failure::of_this_thread();
    }
    if (failure) failure->raise();
    return Values(found);
  }

  // Numbers as the 8 bytes of each, one after the other, if all keys have 8; else a list.
  nb::object keys_object(const Keys& found) const {
    found.signals.raise_if_arrived();
    if (found.out_of_memory) {
      PyErr_NoMemory();
      throw nb::python_error();
    }
    const bool numbers = key_type_ == KeyType::kU64 || key_type_ == KeyType::kI64;
    bool regular = numbers;
    for (size_t i = 0; i < found.ends.size() && regular; ++i)
      regular = found.ends[i] == (i + 1) * sizeof(uint64_t);
    if (regular) {
      nb::object bytes = nb::steal(
          PyByteArray_FromStringAndSize(found.bytes.data(), static_cast<Py_ssize_t>(found.bytes.size())));
      if (!bytes.is_valid()) throw nb::python_error();
      return bytes;
    }
    nb::list list;
    size_t begin = 0;
    for (const size_t end : found.ends) {
      list.append(decode_key(std::string_view(found.bytes).substr(begin, end - begin), key_type_));
      begin = end;
    }
    return list;
  }

  std::shared_ptr<swale_reader> handle_;
  KeyType key_type_ = KeyType::kNone;
  std::vector<Epoch> epochs_;
  const pid_t process_ = ::getpid();
};

}  // namespace

void bind_reader(nb::module_& module) {
  nb::class_<Reader>(module, "Reader")
      .def(nb::init<nb::bytes, const std::string&>())
      .def("close", &Reader::close)
      .def_prop_ro("closed", &Reader::closed)
      .def("refresh", &Reader::refresh)
      .def("epoch_count", &Reader::epoch_count)
      .def("epoch", &Reader::epoch)
      .def("schema", &Reader::schema)
      .def("key_type", &Reader::key_type)
      .def("attributes", &Reader::attributes)
      .def("rows", &Reader::rows)
      .def("values", &Reader::values)
      .def("contains", &Reader::contains)
      .def("stream", &Reader::stream, nb::arg("epochs").none(), nb::arg("keys").none(),
           nb::arg("columns").none(), nb::arg("where").none(), nb::arg("batch_rows"), nb::arg("threads"),
           nb::arg("part"), nb::arg("parts"))
      .def("top", &Reader::top)
      .def("warm", &Reader::warm)
      .def("keys", &Reader::keys)
      .def("sample", &Reader::sample)
      .def("encode", &Reader::encode)
      .def("stats", &Reader::stats)
      .def("epoch_stats", &Reader::epoch_stats);
}

}  // namespace swale::python
