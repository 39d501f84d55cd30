// Columns of a series: the values of a key written along its epochs, so that codecs find what changes slowly.
//
//   rows, one value after the other ─► numbers become differences from the epoch before ─► columns
//
// The series of a compressed directory have columns wherever all of their values have one size; the length of
// a series stays the same. Which values of a series are numbers is not asked: a float that moves slowly is a
// sign, an exponent and upper bits that stay, so the difference of its bits is a small integer.
// Format: docs/formats/clusters.md, "Columns". Reasons: docs/design/clusters.md.
// Threads: free functions. Errors: any bytes may be given; those that are no series of columns are refused.
// Memory: kSeriesBytesMax bytes on the stack, never the heap.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace swale::imd {

// How a pass writes the series of a cluster.
enum class SeriesLayout : uint8_t { kRows, kColumns };

// Writes a series of rows as columns, in place. One with a single value, or with values of several sizes or
// of none, stays as it is. Requires a series as put_series writes it, of at most kSeriesBytesMax bytes.
void make_columns(MutableBytes series);

// The same series as rows, in `out`, which is at least as long. Empty: these bytes are no series of columns.
Bytes make_rows(Bytes series, MutableBytes out);

}  // namespace swale::imd
