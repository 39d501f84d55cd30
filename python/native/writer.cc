// swale._native.Writer: a massive directory that is open for writing, with the job that it belongs to.
// swale/_writer.py has what users see.
//
// Threads: several Python threads may append at once; the other calls are made by one at a time. close()
// while another call runs raises.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "bindings.h"
#include "comm.h"
#include "failure.h"
#include "key.h"

namespace swale::python {
namespace {

constexpr size_t kRecordsPerLook = 65'536;  // between two looks for Ctrl-C

// The memory of an array of one dimension.
class Memory {
 public:
  Memory(nb::handle object, const char* what) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_STRIDED_RO) != 0) throw nb::python_error();
    if (view_.ndim != 1) {
      const int dimensions = view_.ndim;
      PyBuffer_Release(&view_);
      raise_value(std::string(what) + ": expected an array of one dimension, got " +
                  std::to_string(dimensions));
    }
  }
  ~Memory() { PyBuffer_Release(&view_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  const char* data() const { return static_cast<const char*>(view_.buf); }
  size_t count() const { return static_cast<size_t>(view_.shape[0]); }
  size_t item_bytes() const { return static_cast<size_t>(view_.itemsize); }
  ptrdiff_t stride() const { return view_.strides[0]; }

 private:
  Py_buffer view_ = {};
};

class Writer {
 public:
  Writer(nb::bytes path_bytes, const std::string& options, const std::string& key_type, bool create,
         bool exclusive, nb::object allgather, int rank, int size)
      : key_type_(key_type_named(key_type)), comm_(std::move(allgather), rank, size) {
    const std::string path(path_bytes.c_str(), path_bytes.size());
    const int flags = (create ? SWALE_CREATE : 0) | (exclusive ? SWALE_EXCLUSIVE : 0);
    collective([&] { return swale_job_open(comm_.get(), nullptr, &job_); });
    try {
      collective([&] { return swale_dir_open(job_, path.c_str(), flags, options.c_str(), &dir_); });
    } catch (...) {
      const nb::gil_scoped_release without;
      swale_job_close(job_);
      throw;
    }
  }
  ~Writer() {
    if (dir_ == nullptr) return;
    const nb::gil_scoped_release without;
    swale_dir_close(dir_);
    swale_job_close(job_);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void append(nb::handle key, nb::bytes value) {
    const std::string bytes = encode_key(key, key_type_);
    const User user(this);
    call([&] { return swale_dir_append(dir_, bytes.data(), bytes.size(), value.data(), value.size()); });
  }

  // Both have one item for each record.
  void append_many(nb::handle keys, nb::handle values) {
    const User user(this);
    const Memory key(keys, "keys");
    const Memory value(values, "array");
    if (key.count() != value.count()) {
      raise_value(std::to_string(key.count()) + " keys and " + std::to_string(value.count()) +
                  " values: each record has one of both");
    }
    for (size_t done = 0; done < key.count();) {
      const size_t part = std::min(kRecordsPerLook, key.count() - done);
      const auto at = static_cast<ptrdiff_t>(done);
      call([&] {
        return swale_dir_append_many(dir_, key.data() + at * key.stride(), key.item_bytes(), key.stride(),
                                     value.data() + at * value.stride(), value.item_bytes(), value.stride(),
                                     part, nullptr);
      });
      done += part;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
  }

  // `capsule`: of an ArrowArrayStream, as __arrow_c_stream__ gives it. Returns how many records it had.
  uint64_t append_arrow(nb::handle capsule) {
    const User user(this);
    void* const held = PyCapsule_GetPointer(capsule.ptr(), "arrow_array_stream");
    auto* const stream = static_cast<ArrowArrayStream*>(held);
    if (stream == nullptr) throw nb::python_error();
    ArrowSchema schema = {};
    ask(stream, [&] { return stream->get_schema(stream, &schema); });
    const std::unique_ptr<ArrowSchema, Release> schema_owner(&schema);
    for (uint64_t appended = 0;;) {
      ArrowArray batch = {};
      ask(stream, [&] { return stream->get_next(stream, &batch); });
      if (batch.release == nullptr) return appended;
      const std::unique_ptr<ArrowArray, Release> batch_owner(&batch);
      ArrowArray part = batch;  // some of its rows
      for (int64_t done = 0; done < batch.length; done += part.length) {
        part.offset = batch.offset + done;
        part.length = std::min<int64_t>(kRecordsPerLook, batch.length - done);
        part.null_count = batch.null_count == 0 ? 0 : -1;
        call([&] { return swale_dir_append_arrow(dir_, &schema, &part, nullptr); });
        appended += static_cast<uint64_t>(part.length);
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
      }
    }
  }

  void set_attributes(bool of_epoch, const std::string& json) {
    const User user(this);
    const int what = of_epoch ? SWALE_DESCRIBED_EPOCH : SWALE_DESCRIBED_DIRECTORY;
    collective([&] { return swale_dir_set_attributes(dir_, what, json.c_str()); });
  }

  void epoch_end(int64_t step, double time) {
    const User user(this);
    collective([&] { return swale_dir_epoch_end(dir_, step, time); });
  }

  void close() {
    if (dir_ == nullptr) return;
    if (users_ != 0)
      raise_value("another thread still uses this directory: close it when its calls have ended");
    swale_dir* const dir = std::exchange(dir_, nullptr);
    swale_job* const job = std::exchange(job_, nullptr);
    std::optional<Failure> failure;
    {
      const nb::gil_scoped_release without;
      if (swale_dir_close(dir) != SWALE_OK) failure = Failure::of_this_thread();
      const int left = swale_job_close(job);
      if (left != SWALE_OK && !failure) failure = Failure::of_this_thread();
    }
    comm_.raise_if_raised();
    if (failure) failure->raise();
  }
  bool closed() const { return dir_ == nullptr; }

 private:
  // A call that runs. Counted under the GIL.
  class User {
   public:
    explicit User(Writer* writer) : writer_(writer) {
      if (writer->dir_ == nullptr) raise_value("the directory is closed: nothing can be appended any more");
      ++writer->users_;
    }
    ~User() { --writer_->users_; }
    User(const User&) = delete;
    User& operator=(const User&) = delete;

   private:
    Writer* writer_;
  };

  struct Release {
    template <class Struct>
    void operator()(Struct* held) const {
      if (held->release != nullptr) held->release(held);
    }
  };
  // A call of a stream that somebody else made, who takes the GIL where that needs it.
  template <class Body>
  static void ask(ArrowArrayStream* stream, Body&& body) {
    int failed = 0;
    {
      const nb::gil_scoped_release without;
      failed = body();
    }
    if (failed == 0) return;
    const char* const why = stream->get_last_error(stream);
    raise_value(std::string("the source of the rows failed: ") +
                (why != nullptr ? why : std::strerror(failed)));
  }

  // A call in which the library may ask the communicator.
  template <class Body>
  void collective(Body&& body) {
    try {
      call(std::forward<Body>(body));
    } catch (const nb::python_error&) {
      comm_.raise_if_raised();  // why the call failed
      throw;
    }
  }

  const KeyType key_type_;
  Comm comm_;
  swale_job* job_ = nullptr;
  swale_dir* dir_ = nullptr;
  int users_ = 0;
};

}  // namespace

void bind_writer(nb::module_& module) {
  nb::class_<Writer>(module, "Writer")
      .def(nb::init<nb::bytes, const std::string&, const std::string&, bool, bool, nb::object, int, int>(),
           nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg())
      .def("append", &Writer::append)
      .def("append_many", &Writer::append_many)
      .def("append_arrow", &Writer::append_arrow)
      .def("set_attributes", &Writer::set_attributes)
      .def("epoch_end", &Writer::epoch_end)
      .def("close", &Writer::close)
      .def_prop_ro("closed", &Writer::closed);
}

}  // namespace swale::python
