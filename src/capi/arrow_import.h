// ArrowRows: the rows of a batch of the Arrow C data interface as keys and values of a directory.
//
// The batch has the columns that a query of the directory gives (query/columns.h), in any order: the key, and
// every field, or "value" without a schema. Columns epoch, step and time are passed over, so that what was
// read can be appended elsewhere. Types are those of the schema: nothing is converted. Text and bytes may
// have offsets of 32 or 64 bits, or a fixed size. A null field is one that the value is too short for.
//
// Threads: of one thread. The schema and the batch outlive the rows.
// Errors: kInvalidArgument that names the column, its type and the one that is wanted; or the row.
// Limits: trusts the lengths of the buffers, as everybody does who takes an ArrowArray.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "capi/boundary.h"
#include "query/columns.h"

namespace swale::capi {

class ArrowRows {
 public:
  static Result<ArrowRows> open(const run::Schema& schema, const ArrowSchema& columns,
                                const ArrowArray& batch);

  uint64_t count() const { return count_; }

  struct Row {
    Bytes key;
    Bytes value;  // until the next call of `row`
  };
  Result<Row> row(uint64_t index);

 private:
  // Where the bytes of each row are.
  struct Source {
    std::string name;
    const char* data = nullptr;
    const void* offsets = nullptr;  // null: all rows have `bytes` bytes
    bool wide = false;              // offsets have 64 bits
    uint64_t bytes = 0;
    const uint8_t* validity = nullptr;  // null: no row is null
    uint64_t first = 0;                 // the item of row 0
    uint32_t offset = 0;                // of a field, in the value

    bool is_null(uint64_t row) const {
      const uint64_t bit = first + row;
      return validity != nullptr && (validity[bit / 8] >> (bit % 8) & 1) == 0;
    }
    Bytes at(uint64_t row) const;
  };

  explicit ArrowRows(uint64_t count) : count_(count) {}
  // The source of a column of the directory; `parent` is the batch.
  static Result<Source> source_of(const query::Column& column, std::optional<run::KeyType> key_type,
                                  const ArrowSchema& told, const ArrowArray& array, const ArrowArray& parent);
  Result<Bytes> value_of(uint64_t row);

  uint64_t count_;
  bool any_length_ = false;
  Source key_;
  std::optional<Source> value_;  // without a schema
  std::vector<Source> fields_;   // by their offsets in the value
  std::vector<char> assembled_;  // padding is zero
};

}  // namespace swale::capi
