/* Swale: many records at once, for languages and libraries that work with columns. The C interface;
 * swale.h has its conventions.
 *
 * A query gives its records as a stream of record batches in Apache Arrow's C data interface, which
 * pyarrow, DuckDB, polars, pandas, R and many others read without a copy. Nothing of Arrow is needed to
 * use or to build this: its C data and C stream interfaces are a few structs, which are declared here as
 * their specification publishes them.
 */
#ifndef SWALE_SWALE_ARROW_H_
#define SWALE_SWALE_ARROW_H_

#include "swale/swale.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The structs of the Arrow C data interface, as published for inclusion ----------------------------- */

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};

#endif /* ARROW_C_DATA_INTERFACE */

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};

#endif /* ARROW_C_STREAM_INTERFACE */

/* ---- Reading columns ----------------------------------------------------------------------------------- */

/* Says that a query shall end. */
typedef struct swale_cancel swale_cancel;
/* Makes one. It can be given to any number of queries. */
int swale_cancel_make(swale_cancel** cancel);
/* Cancels its queries: their streams end with an error within a tenth of a second. Any thread may call it,
 * at any time. */
void swale_cancel_now(swale_cancel* cancel);
/* Frees it; NULL is allowed. Its queries go on, and can no longer be cancelled by it. */
void swale_cancel_free(swale_cancel* cancel);

/* Called some ten times a second by the thread that waits for a batch. `done` of `total` records have been
 * read (of `total` keys, if the query names keys). Returning anything but 0 cancels the query. */
typedef int (*swale_progress_fn)(void* context, uint64_t done, uint64_t total);

/* What to read. Set all members to zero, then struct_bytes and what you want: "swale_query q = {0};
 * q.struct_bytes = sizeof q;" asks for everything. Needed only during the call of swale_reader_stream. */
typedef struct swale_query {
  size_t struct_bytes;        /* sizeof(swale_query) */
  const int64_t* epochs;      /* their numbers, in the order in which to read them; NULL: all */
  size_t epoch_count;         /* how many */
  const void* const* keys;    /* only records of these keys; NULL: all records */
  const size_t* key_bytes;    /* the length of each */
  size_t key_count;           /* how many */
  const char* const* columns; /* their names; NULL: all */
  size_t column_count;        /* how many */
  const char* where;          /* a condition, as of `swale scan --where`; NULL: none */
  uint64_t batch_rows;        /* at most so many rows in a batch; 0: 65,536 */
  uint32_t threads;           /* that read and compute; 0: one for each processor that this process may use */
  uint32_t reserved;          /* 0 */
  swale_cancel* cancel;       /* or NULL */
  swale_progress_fn progress; /* or NULL */
  void* progress_context;     /* handed to the function */
  uint32_t part;              /* of a divided query, from 0 */
  uint32_t parts;             /* how many there are; 0: the query is not divided */
} swale_query;

/* Starts a query and sets *stream, which the caller releases (stream->release(stream)) at any time, also
 * after the reader was closed. The stream's calls are made by one thread at a time; any thread may release
 * it. Refreshing the reader does not change the query.
 *
 * Columns: "epoch" and "step" (int64), "time" (float64), "key", then the fields of the schema by name. A
 * key is uint64, int64 or utf8 if the directory says so (imd.key), else binary. An array of numbers is a
 * fixed-size list. A field that is called like one of our columns is "[name]". Without schema there is one
 * more column, "value" (binary); it can always be asked for. Null is: the step of an epoch that `swale
 * repair` found, a field that a value is too short for, and a key whose length is not that of a number. A
 * field's unit is in its metadata as "unit".
 *
 * Rows: all records, in storage order, epoch after epoch. With keys: in the order of the keys, and for
 * each by epoch; keys without a value have no row. The order does not depend on the number of threads.
 *
 * Parts: every row is in one part, which depends on the query and `parts` alone, so that processes or tasks
 * may share a query. A part has whole runs of each epoch, as of swale_reader_scan_part; with keys, a range of
 * these. Some parts may be empty.
 *
 * Errors: SWALE_INVALID_ARGUMENT for an unknown column or a wrong condition, SWALE_NOT_FOUND for an epoch.
 * Failures while reading are the stream's: get_next returns an errno, get_last_error the text,
 * swale_stream_error the rest. All rows before the failure have been given by then. SWALE_ABORTED:
 * cancelled, or an epoch was dropped meanwhile.
 *
 * Memory: some 10 batches a thread, and a chunk of 4 MiB. */
int swale_reader_stream(swale_reader* reader, const swale_query* query, struct ArrowArrayStream* stream);

/* The records of swale_reader_top, which has the arguments, as a stream of at most one batch with all
 * columns, the best first. The search is over when the call returns. */
int swale_reader_top_stream(swale_reader* reader, const char* field, int64_t epoch, size_t k, int end,
                            struct ArrowArrayStream* stream);

/* ---- Writing arrays ------------------------------------------------------------------------------------ */

/* Appends `count` records of equal lengths to the open epoch: key i is the `key_bytes` bytes at `keys` + i
 * * `key_stride`, value i the `value_bytes` bytes at `values` + i * `value_stride`. A stride may be
 * negative or 0. As as many calls of swale_dir_append. *appended (may be NULL) is the number of records
 * that were appended, also if the call fails: after SWALE_INVALID_ARGUMENT the caller may go on behind
 * them. */
int swale_dir_append_many(swale_dir* dir, const void* keys, size_t key_bytes, ptrdiff_t key_stride,
                          const void* values, size_t value_bytes, ptrdiff_t value_stride, size_t count,
                          size_t* appended);

/* Appends the rows of a record batch, in their order, to the open epoch. Columns have the names and types
 * that swale_reader_stream gives: "key", and all fields of the directory, or "value" without a schema;
 * "epoch", "step" and "time" are passed over. Their order is free; text and bytes may have offsets of 64
 * bits, or a fixed size; other types are refused. A null field is one that the value is too short for: fields
 * after it are null, too, and the schema lets values have any length. Neither `schema` nor `batch` is
 * released. *appended as for swale_dir_append_many. */
int swale_dir_append_arrow(swale_dir* dir, const struct ArrowSchema* schema, const struct ArrowArray* batch,
                           size_t* appended);

/* ---- What failed, for programs ------------------------------------------------------------------------- */

/* The places that a failure's message names. */
typedef struct swale_error_info {
  size_t struct_bytes; /* sizeof(swale_error_info), set by the caller */
  int code;            /* a swale_code; SWALE_OK if no call failed */
  const char* message; /* of swale_last_error, or of the stream */
  const char* file;    /* the damaged or unreadable file; "" if the message names none */
  int64_t offset;      /* in that file; -1: unknown */
  int64_t epoch;       /* its number; -1: unknown */
  int64_t partition;   /* its number; -1: unknown */
} swale_error_info;

/* About this thread's last failed call. The texts live until the thread's next Swale call. */
int swale_last_error_info(swale_error_info* info);
/* About the last failed call of a stream of swale_reader_stream. The texts live until the stream's next call.
 * SWALE_INVALID_ARGUMENT if the stream is another library's, or was released. */
int swale_stream_error(const struct ArrowArrayStream* stream, swale_error_info* info);

#ifdef __cplusplus
}
#endif

#endif /* SWALE_SWALE_ARROW_H_ */
