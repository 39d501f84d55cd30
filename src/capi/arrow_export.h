// Batches and columns as the structs of the Arrow C data interface. An exported array shares the batch's
// memory with its columns; each may be released by itself, in any order and by any thread, as the interface
// demands.
//
// Threads: free functions. Errors: std::bad_alloc; nothing is left behind then.
#pragma once

#include <span>
#include <string>

#include "capi/boundary.h"
#include "query/columns.h"

namespace swale::capi {

// The Arrow type of a number, and of a column: "g", "+w:3".
const char* arrow_format(run::FieldType type);
std::string arrow_format(const query::Column& column);

// A struct with the columns as its children.
void export_schema(std::span<const query::Column> columns, ArrowSchema* out);
void export_batch(std::span<const query::Column> columns, query::Batch batch, ArrowArray* out);

}  // namespace swale::capi
