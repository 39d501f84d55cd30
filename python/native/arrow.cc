#include "arrow.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <cstring>

namespace swale::python {
namespace {

// The text of an integer behind "+w:".
int64_t list_count(const char* format) {
  return std::strncmp(format, "+w:", 3) == 0 ? std::strtoll(format + 3, nullptr, 10) : 0;
}

size_t number_bytes(char format) {
  switch (format) {
    case 'c':
    case 'C':
      return 1;
    case 's':
    case 'S':
      return 2;
    case 'i':
    case 'I':
    case 'f':
      return 4;
    default:
      return 8;
  }
}

int32_t last_offset(const ArrowArray& column) {
  int32_t end = 0;
  if (column.length != 0) {
    std::memcpy(&end,
                static_cast<const char*>(column.buffers[1]) + static_cast<size_t>(column.length) * sizeof end,
                sizeof end);
  }
  return end;
}

// ---- Shares of structs that somebody owns ----

struct SchemaShare {
  SharedSchema owner;
  std::vector<ArrowSchema> storage;
  std::vector<ArrowSchema*> children;
};
struct ArrayShare {
  SharedArray owner;
  std::vector<ArrowArray> storage;
  std::vector<ArrowArray*> children;
};

template <class Struct, class Share>
void release_share(Struct* of) {
  const std::unique_ptr<Share> share(static_cast<Share*>(of->private_data));
  for (Struct* child : share->children) {
    if (child->release != nullptr) child->release(child);
  }
  of->release = nullptr;
}

// A copy of `from` that keeps its owner alive.
template <class Struct, class Share, class Owner>
void share(const Struct& from, const Owner& owner, Struct* to) {
  auto made = std::make_unique<Share>();
  made->owner = owner;
  made->storage.assign(static_cast<size_t>(from.n_children), Struct{});
  for (Struct& child : made->storage) made->children.push_back(&child);
  *to = from;
  to->children = from.n_children == 0 ? nullptr : made->children.data();
  to->private_data = made.release();
  to->release = &release_share<Struct, Share>;
  for (int64_t i = 0; i < from.n_children; ++i)
    share<Struct, Share, Owner>(*from.children[i], owner, to->children[i]);
}

void share_schema(const SharedSchema& owner, ArrowSchema* to) {
  share<ArrowSchema, SchemaShare, SharedSchema>(*owner->get(), owner, to);
}

// ---- Batches as a stream ----

struct BatchesState {
  SharedSchema schema;
  std::vector<SharedArray> arrays;
  size_t next = 0;
};

template <class Body>
int without_exceptions(Body&& body) noexcept {
  try {
    body();
    return 0;
  } catch (...) {
    return ENOMEM;
  }
}

int batches_schema(ArrowArrayStream* stream, ArrowSchema* out) {
  *out = {};
  return without_exceptions(
      [&] { share_schema(static_cast<BatchesState*>(stream->private_data)->schema, out); });
}

int batches_next(ArrowArrayStream* stream, ArrowArray* out) {
  auto* const state = static_cast<BatchesState*>(stream->private_data);
  *out = {};
  if (state->next == state->arrays.size()) return 0;
  return without_exceptions([&] {
    const SharedArray& array = state->arrays[state->next];
    share<ArrowArray, ArrayShare, SharedArray>(*array->get(), array, out);
    ++state->next;
  });
}

const char* batches_error(ArrowArrayStream*) { return "no memory left"; }

void batches_release(ArrowArrayStream* stream) {
  delete static_cast<BatchesState*>(stream->private_data);
  stream->release = nullptr;
}

// ---- Capsules ----

template <class Struct>
void destroy_capsule(PyObject* capsule) {
  const char* const name = PyCapsule_GetName(capsule);
  auto* const held = static_cast<Struct*>(PyCapsule_GetPointer(capsule, name));
  if (held == nullptr) {
    PyErr_Clear();
    return;
  }
  if (held->release != nullptr) held->release(held);
  delete held;
}

template <class Struct>
nb::object capsule_of(const char* name, std::unique_ptr<Struct> held) {
  PyObject* const capsule = PyCapsule_New(held.get(), name, &destroy_capsule<Struct>);
  if (capsule == nullptr) {
    if (held->release != nullptr) held->release(held.get());
    throw nb::python_error();
  }
  static_cast<void>(held.release());
  return nb::steal(capsule);
}

// ---- A query that another library reads on ----

// Its release frees the stream first, then what the stream's progress function uses.
struct ExportedQuery {
  std::unique_ptr<Stream::Interrupt> interrupt;
  ArrowArrayStream stream;
};
ArrowArrayStream* inner(ArrowArrayStream* stream) {
  return &static_cast<ExportedQuery*>(stream->private_data)->stream;
}
int exported_schema(ArrowArrayStream* stream, ArrowSchema* out) {
  return inner(stream)->get_schema(inner(stream), out);
}
int exported_next(ArrowArrayStream* stream, ArrowArray* out) {
  return inner(stream)->get_next(inner(stream), out);
}
const char* exported_error(ArrowArrayStream* stream) { return inner(stream)->get_last_error(inner(stream)); }
void exported_release(ArrowArrayStream* stream) {
  inner(stream)->release(inner(stream));
  delete static_cast<ExportedQuery*>(stream->private_data);
  stream->release = nullptr;
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto* const buffer = nb::inst_ptr<Buffer>(self);
  return PyBuffer_FillInfo(view, self, const_cast<void*>(buffer->data),
                           static_cast<Py_ssize_t>(buffer->bytes), 1, flags);
}
PyType_Slot buffer_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)}, {0, nullptr}};

}  // namespace

Buffer Batch::data(size_t column) const {
  const ArrowArray& found = *array->get()->children[column];
  const char* const format = schema->get()->children[column]->format;
  if (const int64_t count = list_count(format); count != 0) {
    const char* const item = schema->get()->children[column]->children[0]->format;
    return {array, found.children[0]->buffers[1],
            static_cast<size_t>(found.length * count) * number_bytes(item[0])};
  }
  if (format[0] == 'u' || format[0] == 'z')
    return {array, found.buffers[2], static_cast<size_t>(last_offset(found))};
  return {array, found.buffers[1], static_cast<size_t>(found.length) * number_bytes(format[0])};
}

Buffer Batch::offsets(size_t column) const {
  const ArrowArray& found = *array->get()->children[column];
  return {array, found.buffers[1], (static_cast<size_t>(found.length) + 1) * sizeof(int32_t)};
}

Buffer Batch::validity(size_t column) const {
  const ArrowArray& found = *array->get()->children[column];
  return {array, found.buffers[0],
          found.buffers[0] == nullptr ? 0 : (static_cast<size_t>(found.length) + 7) / 8};
}

Stream::Stream(const ArrowArrayStream& taken, std::unique_ptr<Interrupt> interrupt)
    : query_(std::make_unique<Query>(taken)) {
  query_->interrupt = std::move(interrupt);
}

Stream::~Stream() { close(); }

// The thread that waits for a batch calls this, without the GIL.
int Stream::progress(void* context, uint64_t, uint64_t) {
  // Only the main thread handles signals; another one might wait here for the GIL, and its holder for this
  // thread.
  if (!is_main_thread()) return 0;
  auto* const interrupt = static_cast<Interrupt*>(context);
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return 0;
  interrupt->arrived = true;
  if (interrupt->exported) {
    // Another library reads the stream, and would lose the exception. It comes again when that library has
    // returned.
    PyErr_Clear();
    PyErr_SetInterrupt();
  }
  return 1;
}

void Stream::expect_open() const {
  if (busy_) raise_value("another thread is reading this stream");
  if (!query_) raise_value("the stream is closed: ask for a new one");
}

SharedSchema Stream::schema() {
  if (schema_) return schema_;
  expect_open();
  auto made = std::make_shared<Owned<ArrowSchema>>();
  ArrowArrayStream* const stream = query_->stream.get();
  if (stream->get_schema(stream, made->get()) != 0) Failure::of_stream(stream).raise();
  return schema_ = made;
}

std::optional<Batch> Stream::next() {
  const SharedSchema known = schema();
  expect_open();
  auto array = std::make_shared<Owned<ArrowArray>>();
  ArrowArrayStream* const stream = query_->stream.get();
  std::optional<Failure> failure;
  busy_ = true;
  {
    const nb::gil_scoped_release without;
    if (stream->get_next(stream, array->get()) != 0) failure = Failure::of_stream(stream);
  }
  busy_ = false;
  if (query_->interrupt && query_->interrupt->arrived && PyErr_Occurred() != nullptr)
    throw nb::python_error();
  if (failure) failure->raise();
  if (array->get()->release == nullptr) return std::nullopt;
  return Batch{known, std::move(array)};
}

void Stream::close() {
  if (!query_ || busy_) return;
  const std::unique_ptr<Query> ended = std::move(query_);
  const nb::gil_scoped_release without;  // it waits for the query's threads
  Owned<ArrowArrayStream> stream(ended->stream.give());
}

nb::object Stream::capsule() {
  expect_open();
  auto exported = std::make_unique<ExportedQuery>();
  auto outer = std::make_unique<ArrowArrayStream>();
  exported->interrupt = std::move(query_->interrupt);
  if (exported->interrupt) exported->interrupt->exported = true;
  exported->stream = query_->stream.give();
  query_.reset();
  *outer = {&exported_schema, &exported_next, &exported_error, &exported_release, exported.release()};
  return capsule_of("arrow_array_stream", std::move(outer));
}

nb::list columns_of(const SharedSchema& schema) {
  nb::list columns;
  for (int64_t i = 0; i < schema->get()->n_children; ++i) {
    const ArrowSchema& column = *schema->get()->children[i];
    const int64_t count = list_count(column.format);
    std::string unit;
    if (column.metadata !=
        nullptr) {  // one pair: its count, length and text of "unit", length and text of the unit
      int32_t bytes = 0;
      const char* const at = column.metadata + sizeof(int32_t) + sizeof(int32_t) + std::strlen("unit");
      std::memcpy(&bytes, at, sizeof bytes);
      unit.assign(at + sizeof bytes, static_cast<size_t>(bytes));
    }
    columns.append(nb::make_tuple(column.name, count != 0 ? column.children[0]->format : column.format, count,
                                  unit, (column.flags & ARROW_FLAG_NULLABLE) != 0));
  }
  return columns;
}

nb::object stream_capsule(const SharedSchema& schema, const std::vector<Batch>& batches) {
  auto state = std::make_unique<BatchesState>();
  state->schema = schema;
  for (const Batch& batch : batches) state->arrays.push_back(batch.array);
  auto stream = std::make_unique<ArrowArrayStream>();
  *stream = {&batches_schema, &batches_next, &batches_error, &batches_release, state.release()};
  return capsule_of("arrow_array_stream", std::move(stream));
}

nb::object schema_capsule(const SharedSchema& schema) {
  auto copy = std::make_unique<ArrowSchema>();
  *copy = {};
  share_schema(schema, copy.get());
  return capsule_of("arrow_schema", std::move(copy));
}

void bind_arrow(nb::module_& module) {
  nb::class_<Buffer>(module, "Buffer", nb::type_slots(buffer_slots)).def("__len__", [](const Buffer& buffer) {
    return buffer.bytes;
  });
  nb::class_<Owned<ArrowSchema>>(module, "Schema");
  nb::class_<Batch>(module, "Batch")
      .def_prop_ro("rows", &Batch::rows)
      .def("nulls", &Batch::nulls)
      .def("data", &Batch::data)
      .def("offsets", &Batch::offsets)
      .def("validity", &Batch::validity);
  nb::class_<Stream>(module, "Stream")
      .def("columns", [](Stream& stream) { return columns_of(stream.schema()); })
      .def("schema", &Stream::schema)
      .def("next", &Stream::next)
      .def("close", &Stream::close)
      .def("capsule", &Stream::capsule);
  module.def("stream_capsule", &stream_capsule);
  module.def("schema_capsule", &schema_capsule);
}

}  // namespace swale::python
