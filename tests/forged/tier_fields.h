// The numbers of a tiered write buffer's files, as fields that a test can forge. Formats:
// docs/formats/tier-log.md, tier-trace.md. Of things that come in rows (segments, records, blocks) the first
// ones and the last one.
//
// A field of a format is a row of a table in tier_fields.cc: a format that changes changes its rows.
//
// Threads: free functions. Errors: a file that does not have its format has no fields; tests expect some.
#pragma once

#include <string>

#include "tests/forged/forged_field.h"

namespace swale::forged {

// The log, whose segments have this size. Both copies of a header, and of a record's header, are forged
// alike, and each alone.
Fields tier_log_fields(const Content& content, uint64_t segment_bytes, uint64_t log_id);
Fields tier_seal_fields(const Content& content);
// Queued records, wherever in the file they begin.
Fields tier_queue_fields(const Content& content, uint64_t log_id);
// The mark: lines of words and numbers, decimal ones and of 16 hexadecimal digits. It has no checksum.
Fields tier_mark_fields(const Content& content);
// The list of losses, a sealed document.
Fields tier_losses_fields(const Content& content);
Fields tier_trace_fields(const Content& content);

}  // namespace swale::forged
