// The numbers of a metadata store's files, as fields that a test can forge. Formats:
// docs/formats/metadata.md, meta-shard.md. Of things that come in rows (blocks, records, groups) the first
// ones and the last one.
//
// A field of a format is a row of a table in meta_fields.cc: a format that changes changes its rows.
//
// Threads: free functions. Errors: a file that does not have its format has no fields; tests expect some.
#pragma once

#include <string>

#include "tests/forged/forged_field.h"

namespace swale::forged {

// All that the file of a store has, by its name.
Fields fields_of_store_file(const std::string& path, const Content& content);

// Numbers of 16 hexadecimal digits in the texts of a sealed document; imd_fields.h has the decimal ones.
Fields hex_fields(const Content& content);

// Single bytes of what is coded: the first `first`, and others at equal distances up to `end`.
void add_bytes(Fields* fields, const std::string& what, const Content& content, size_t begin, size_t end,
               size_t first, const Reseal& reseal);

}  // namespace swale::forged
