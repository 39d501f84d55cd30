// Owners of Arrow's structs, and what Python sees of them: Batch (rows of a table), Buffer (the memory of a
// column), Stream (a query on its way).
//
// Threads: a Stream is asked by one thread at a time: a second one gets an error. Batches do not change.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "failure.h"

namespace swale::python {

// An ArrowSchema, ArrowArray or ArrowArrayStream that is released with its owner.
template <class Struct>
class Owned {
 public:
  Owned() = default;
  explicit Owned(const Struct& taken) : held_(taken) {}
  ~Owned() {
    if (held_.release != nullptr) held_.release(&held_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  Struct* get() { return &held_; }
  // The caller releases it.
  Struct give() {
    const Struct given = held_;
    held_.release = nullptr;
    return given;
  }

 private:
  Struct held_ = {};
};
using SharedSchema = std::shared_ptr<Owned<ArrowSchema>>;
using SharedArray = std::shared_ptr<Owned<ArrowArray>>;

// Bytes of a column; an object with Python's buffer protocol, read-only.
struct Buffer {
  SharedArray owner;
  const void* data = nullptr;
  size_t bytes = 0;
};

struct Batch {
  SharedSchema schema;
  SharedArray array;

  int64_t rows() const { return array->get()->length; }
  int64_t nulls(size_t column) const { return array->get()->children[column]->null_count; }
  // The numbers, or the text or bytes of all rows.
  Buffer data(size_t column) const;
  // Text and bytes: int32, one more than there are rows.
  Buffer offsets(size_t column) const;
  // One bit a row; empty if no row is null.
  Buffer validity(size_t column) const;
};

class Stream {
 public:
  // What the progress function of a query needs; it lives until the query has ended.
  struct Interrupt {
    bool arrived = false;
    bool exported = false;
  };
  static int progress(void* context, uint64_t done, uint64_t total);

  // `interrupt` was given to the query as its context; may be null.
  Stream(const ArrowArrayStream& taken, std::unique_ptr<Interrupt> interrupt);
  ~Stream();

  SharedSchema schema();
  // None at the end.
  std::optional<Batch> next();
  void close();
  // An "arrow_array_stream" capsule, which takes the query over: this stream is closed then.
  nb::object capsule();

 private:
  struct Query {
    std::unique_ptr<Interrupt> interrupt;  // outlives the stream
    Owned<ArrowArrayStream> stream;
    explicit Query(const ArrowArrayStream& taken) : stream(taken) {}
  };
  void expect_open() const;

  std::unique_ptr<Query> query_;  // null: closed
  SharedSchema schema_;
  bool busy_ = false;
};

// (name, Arrow format, elements of an array or 0, unit, nullable) of each column.
nb::list columns_of(const SharedSchema& schema);
// Capsules of batches with this schema; they share the batches' memory.
nb::object stream_capsule(const SharedSchema& schema, const std::vector<Batch>& batches);
nb::object schema_capsule(const SharedSchema& schema);

void bind_arrow(nb::module_& module);

}  // namespace swale::python
