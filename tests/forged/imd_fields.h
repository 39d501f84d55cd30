// The numbers of a massive directory's files, as fields that a test can forge. Formats: docs/formats. Of
// things that come in rows (blocks, slices, pieces, entries) the first ones and the last one: each kind, and
// both ends.
//
// Threads: free functions. Errors: a file that does not have its format has no fields; tests expect some.
#pragma once

#include <string>

#include "base/numbers.h"
#include "tests/forged/forged_field.h"

namespace swale::forged {

// All that the file of a directory has, by the end of its name.
Fields fields_of_file(const std::string& path, const Content& content);

Fields data_log_fields(const Content& content, PartitionNumber partition);
Fields index_log_fields(const Content& content, PartitionNumber partition);
Fields value_log_fields(const Content& content, PartitionNumber writer);
Fields value_page_fields(const Content& content, PartitionNumber writer);
Fields table_fields(const Content& content);
Fields epoch_log_fields(const Content& content);
Fields summary_fields(const Content& content);
// A JSON document, or lines of JSON, whose objects end with a seal: all numbers outside of texts.
Fields document_fields(const Content& content);

}  // namespace swale::forged
