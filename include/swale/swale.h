/* Swale: a burst-buffer file system that lives inside a parallel job. The C interface.
 *
 * An indexed massive directory is a directory whose "files" are keys. While a job runs, every rank appends
 * values to keys; the directory partitions, sorts and indexes them on the way to storage. Afterwards any
 * process, alone and without knowing how many ranks wrote, asks for the values of a key at one epoch or at
 * all of them.
 *
 * Conventions
 *   Status      Every call that can fail returns an int: SWALE_OK (0) or one of the codes below. Output
 *               parameters are set only on success. swale_last_error() tells the failing call's thread what
 *               went wrong, where, and what to do about it. Its text is one line; control characters of names
 *               in it are escaped.
 *   Bytes       Keys and values are any bytes, given as pointer and length; the library copies what it keeps.
 *   Structs     Structs that the caller provides begin with struct_bytes. Set it to the struct's size before
 *               the call: "swale_epoch_info info; info.struct_bytes = sizeof info;". Later versions add
 *               members at the end. The library fills the members that both sides know and sets struct_bytes
 *               to how many bytes these are.
 *   Ownership   A handle belongs to the caller from the call that makes it to the call that closes it.
 *               Closing NULL is allowed and does nothing.
 *   Threads     Several threads may call swale_dir_append at once, and several threads may use one reader at
 *               once. All other calls on one handle are made by one thread at a time.
 *   Processes   A child made by fork has its parent's handles, and none of the threads that serve them. There
 *               every call on the handle of a job, a directory, a store or I/O servers is
 *               SWALE_INVALID_ARGUMENT at once, and closing frees nothing. Readers are not meant: open one in
 *               the child.
 *   Collective  All ranks of the job make the calls marked [collective], in the same order. Ranks that make
 *               different calls get SWALE_INVALID_ARGUMENT, which names both calls. When a rank dies or falls
 *               silent, the calls of the others fail. At the end of an epoch and at the close of a directory
 *               the ranks wait without limit for a rank that lives; option imd.collective_deadline_s sets a
 *               limit.
 *   Exceptions  None crosses this interface. The library does not abort, installs no signal handlers and runs
 *               no code at load time.
 *   Options     Strings of "section.name=value", separated by commas or spaces; unknown names are errors.
 *               Every option can also be set by the environment as SWALE_SECTION_NAME; the string wins.
 *               `swale config` and swale-options(7) list them.
 */
#ifndef SWALE_SWALE_H_
#define SWALE_SWALE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SWALE_VERSION_MAJOR 0 /* changes when callers must */
#define SWALE_VERSION_MINOR 1 /* new calls, old ones unchanged */
#define SWALE_VERSION_PATCH 0 /* neither */

/* Values are fixed for ever. */
enum swale_code {
  SWALE_OK = 0,
  SWALE_INVALID_ARGUMENT = 1,   /* the caller's mistake; nothing was done unless the call says otherwise */
  SWALE_NOT_FOUND = 2,          /* no such directory, key or epoch */
  SWALE_ALREADY_EXISTS = 3,     /* exclusive creation of something that exists */
  SWALE_CORRUPTION = 4,         /* damaged bytes on disk or on the wire; never wrong data instead */
  SWALE_IO_ERROR = 5,           /* the operating system refused or failed */
  SWALE_NO_SPACE = 6,           /* disk or quota full */
  SWALE_RESOURCE_EXHAUSTED = 7, /* a memory budget or a stated limit */
  SWALE_UNAVAILABLE = 8,        /* a peer is gone or unreachable; the message names it */
  SWALE_DEADLINE_EXCEEDED = 9,  /* waited as long as promised; the message says for what */
  SWALE_BUSY = 10,              /* another writer holds the directory */
  SWALE_UNSUPPORTED = 11,       /* a newer format, or something this build lacks */
  SWALE_ABORTED = 12,           /* abandoned because of an earlier failure, here or on another rank */
  SWALE_INTERNAL = 13           /* a mistake of ours: please report it */
};

/* How calls that open something open it; added together. Each call says which it takes. */
enum swale_open_flags {
  SWALE_CREATE = 1,     /* make it if it does not exist */
  SWALE_EXCLUSIVE = 2,  /* with CREATE: SWALE_ALREADY_EXISTS if it exists; of several makers one succeeds */
  SWALE_READ_ONLY = 4,  /* alone: change nothing on storage */
  SWALE_ACCEPT_LOSS = 8 /* give up acknowledged bytes that are lost, and go on with older ones */
};

/* The attributes of a file: of a metadata store, of a tiered write buffer, or of I/O servers. */
typedef struct swale_attributes {
  size_t struct_bytes; /* sizeof(swale_attributes), set by the caller */
  uint64_t size;       /* in bytes */
  uint64_t generation; /* grows with each truncate; 0: not counted here */
  uint32_t mode;       /* permission bits; as it was created, where no call sets them */
  uint32_t sealed;     /* 1: it is immutable */
  int64_t created_ns;  /* since 1970; 0: the file system does not know */
  int64_t modified_ns; /* of the last change of its bytes or size */
} swale_attributes;

#define SWALE_KEY_BYTES_MAX 255          /* of one key */
#define SWALE_VALUE_BYTES_MAX 1073741824 /* of one value: 1 GiB */
/* In place of an epoch's number: all epochs. */
#define SWALE_ALL_EPOCHS (-1)

/* The library's version, "0.1.0". Never fails; static storage. */
const char* swale_version(void);

/* The name of a code, "corruption". Never fails; static storage. */
const char* swale_code_name(int code);

/* The message of this thread's last failed call; "" if none failed. Valid until the thread's next Swale
 * call. */
const char* swale_last_error(void);

/* ---- Job: the processes that write together ------------------------------------------------------------ */

/* A process's membership in the job. */
typedef struct swale_job swale_job;

/* How the library reaches the caller's communicator, when there is one. swale_mpi.h makes one from an
 * MPI_Comm. The function returns 0 on success; it is called only inside [collective] calls, on the calling
 * thread. */
typedef struct swale_comm {
  size_t struct_bytes; /* sizeof(swale_comm) */
  int rank;            /* of this process, 0 <= rank < size */
  int size;            /* the number of ranks */
  void* context;       /* handed to the function */
  /* Every rank gives `bytes` bytes (the same number on all ranks) and receives size * bytes, in rank
   * order. */
  int (*allgather)(void* context, const void* send, void* receive, size_t bytes);
} swale_comm;

/* [collective] Joins the job. `comm` may be NULL: then rank, size and peers come from the launcher's
 * environment (Open MPI, MPICH, Slurm) and a rendezvous directory (option job.rendezvous); without a
 * launcher this is a job of one rank, which needs no network. `options` may be NULL. Close *job with
 * swale_job_close. */
int swale_job_open(const swale_comm* comm, const char* options, swale_job** job);

/* This process's rank. */
int swale_job_rank(const swale_job* job);
/* The number of ranks. */
int swale_job_size(const swale_job* job);

/* [collective] Leaves the job: waits for the peers within the deadline, then frees the handle in any case.
 * Close the directories opened with this job first. */
int swale_job_close(swale_job* job);

/* ---- Counters: what a directory, a reader, a store, a buffer or I/O servers have done, and how they stand
 * ----- */

/* Counters, by name: of swale_dir_stats, swale_reader_epoch_stats, swale_reader_stats, swale_meta_stats,
 * swale_tier_stats and swale_iond_stats. */
typedef struct swale_stats swale_stats;

/* One counter, merged over ranks. */
typedef struct swale_stat {
  size_t struct_bytes; /* sizeof(swale_stat), set by the caller */
  const char* name; /* "append.wait"; keeps its meaning in all versions; lives as long as the swale_stats */
  const char* unit; /* "ns", "bytes", "ppm" (a share, in millionths), "ps" (a byte), "" for a count */
  const char* help; /* what it counts, for people; "" if this version does not know */
  uint64_t sum;     /* over all ranks; without meaning for a high-water mark ("..._max") */
  uint64_t min;     /* the least of a rank */
  uint64_t max;     /* the greatest of a rank */
  int min_rank;     /* the lowest rank that had the least */
  int max_rank;     /* the lowest rank that had the greatest */
} swale_stat;

/* How many counters there are. */
size_t swale_stats_count(const swale_stats* stats);
/* Counter `index` (0 <= index < count). */
int swale_stats_at(const swale_stats* stats, size_t index, swale_stat* stat);
/* The counter of that name; SWALE_NOT_FOUND if there is none. */
int swale_stats_find(const swale_stats* stats, const char* name, swale_stat* stat);
/* All of them as one JSON object, with the members that `swale stats --json` and `swale tier stats --json`
 * print: "ranks", and "stats", which has for each name an object with "unit", "sum", "min", "min_rank", "max"
 * and "max_rank". NULL if memory is short. The text lives as long as the swale_stats. One thread at a time.
 * */
const char* swale_stats_json(swale_stats* stats);
/* How many ranks were merged. */
int swale_stats_ranks(const swale_stats* stats);
/* Frees the counters; NULL is allowed. */
void swale_stats_free(swale_stats* stats);

/* ---- Indexed massive directory: writing ---------------------------------------------------------------- */

/* A massive directory, open for writing. */
typedef struct swale_dir swale_dir;

/* [collective] Opens the massive directory at `path` (on storage that all ranks see) for appending epochs.
 * With SWALE_CREATE it also makes the directories above `path` that do not exist. An existing directory keeps
 * its epochs; the job may have another number of ranks than the jobs that wrote them. One job writes at a
 * time: SWALE_BUSY names the other. All ranks return the same status. SWALE_INVALID_ARGUMENT names flags or
 * options that differ between ranks but must be equal.
 *
 * Some options are fixed when the directory is made; a later call that gives them must give the same
 * value. "imd.schema" says what a value consists of, and "imd.extrema" which of its numbers are indexed
 * for swale_reader_top: "imd.schema=id:u8;velocity:f4x3:m/s;energy:f8,imd.extrema=energy". Every value
 * then has the length of all fields together (there: 28 bytes). If it is a C struct with padding, the
 * schema says where and how many bytes: "type:i4;_:4;energy:f8". A schema that ends with ";_:*" allows
 * values of any length. "imd.key=u64", "i64", "text" or "bytes" is the type of keys: tools show and accept
 * keys in this form. "imd.compression=lz4" or "zstd" compresses blocks that shrink. "imd.index" is for
 * comparisons only.
 *
 * "imd.resume_after=STEP" goes back to a checkpoint: the first epoch with a greater step and all epochs
 * after it are dropped for good, atomically, before anything else is written. They stay dropped even if
 * opening fails afterwards. An unfinished epoch that `swale repair` recovered has no step: it stays if an
 * epoch behind it stays, else it is dropped. SWALE_INVALID_ARGUMENT if any other epoch that would stay has
 * no known step (`swale repair` found it in the logs). */
int swale_dir_open(swale_job* job, const char* path, int flags, const char* options, swale_dir** dir);

/* Returns which of `partitions` partitions (one for each rank) a key belongs to: 0 <= result < partitions.
 * The result must depend only on the arguments. Threads that append or query call it, also several at
 * once. */
typedef uint32_t (*swale_partition_fn)(void* context, const void* key, size_t key_bytes, uint32_t partitions);

/* [collective] As swale_dir_open, but records go to the rank that `fn` names instead of the hash of the
 * key. "imd.partitioner=NAME" in the options names the function (1 to 64 letters, digits, _ . - :); the
 * name is kept with the job's epochs. Change the name when you change what the function does. All ranks
 * must give the same function and name; `fn` and `context` must live until the directory is closed. If
 * `fn` returns `partitions` or more, the append fails with SWALE_INVALID_ARGUMENT and changes nothing.
 * Later jobs may use another function, or none. */
int swale_dir_open_partitioned(swale_job* job, const char* path, int flags, const char* options,
                               swale_partition_fn fn, void* context, swale_dir** dir);

/* Appends a value to a key in the open epoch. Keys have 1 to SWALE_KEY_BYTES_MAX bytes, values 0 to
 * SWALE_VALUE_BYTES_MAX. Several values of one key in one epoch stay a list in each writer's order. The
 * call blocks while the pipeline is full, but not longer than its peers are silent (option
 * net.silence_deadline_s). A record is durable when swale_dir_epoch_end has returned SWALE_OK on this
 * rank, not before. The call itself writes a value of more than 16,384 bytes to storage, straight from
 * `value`; only a pointer to the value travels. SWALE_INVALID_ARGUMENT changes nothing, and the caller may
 * go on: a size beyond the limits, or a value whose length is not that of the directory's schema;
 * swale_last_error then says both lengths. After any other failure every later call fails with
 * SWALE_ABORTED and the first cause. */
int swale_dir_append(swale_dir* dir, const void* key, size_t key_bytes, const void* value,
                     size_t value_bytes);

/* [collective] Ends the open epoch and commits it: either all ranks return SWALE_OK, the epoch is durable
 * and readers see it whole, or all ranks return a failure and readers see none of it. There is one
 * exception: if rank 0 dies, or its storage fails, after it has made the epoch visible and before it has
 * told the others, they return a failure although the whole epoch exists; a reader opened afterwards sees
 * it. `step` and `time` are the simulation's and are kept with the epoch. All ranks must give the same
 * step and the same bits of `time` (NaN is the same as the same NaN, 0.0 is not the same as -0.0);
 * otherwise all get SWALE_INVALID_ARGUMENT, the epoch is dropped, and the directory can only be closed. A
 * step that is not greater than the last epoch's (the last one's that is known) is SWALE_INVALID_ARGUMENT:
 * most often a restart has forgotten imd.resume_after. The epoch then stays open, and you may end it with
 * another step. Option imd.steps=any allows steps to repeat. */
int swale_dir_epoch_end(swale_dir* dir, int64_t step, double time);

/* [collective] The first half of swale_dir_epoch_end, so that sorting, writing and the commit continue while
 * the application computes. Records that are appended after this call belong to the next epoch, and may be
 * appended at once. Ending the next epoch before swale_dir_epoch_end_wait is SWALE_INVALID_ARGUMENT. */
int swale_dir_epoch_end_begin(swale_dir* dir, int64_t step, double time);
/* [collective] The second half: waits, and returns the status as swale_dir_epoch_end does. The epoch is
 * durable when it has returned SWALE_OK. If no end has begun, it returns SWALE_OK at once. */
int swale_dir_epoch_end_wait(swale_dir* dir);

/* Attributes are JSON objects that users give to a directory and to its epochs: units, a box, which field is
 * the position. Programs that export or plot need them; Swale itself takes nothing from them. The names that
 * its Python package knows: docs/guide/python.md. */
enum swale_described {
  SWALE_DESCRIBED_DIRECTORY = 0, /* one document, for all epochs until another one replaces it */
  SWALE_DESCRIBED_EPOCH = 1      /* a document of one epoch */
};
/* An attribute document has at most so many bytes, and is nested at most 31 deep. */
#define SWALE_ATTRIBUTES_BYTES_MAX 65536
/* [collective] Gives the directory, or the open epoch (`what` is a swale_described), the JSON object `json`,
 * "{}" to take an earlier one away. It is committed with the open epoch, and dropped with it
 * (imd.resume_after); without another epoch end it is lost. Within one epoch the last call counts. All ranks
 * must give the same bytes. SWALE_INVALID_ARGUMENT changes nothing, and the caller may go on: no JSON object,
 * too large, or ranks that differ. Unlike the end of an epoch it is a call of the job: one thread at a time
 * makes those, for all its directories. */
int swale_dir_set_attributes(swale_dir* dir, int what, const char* json);

/* Stops sorting and writing on this rank until swale_dir_resume, so that the application has all cores
 * while it computes. Records of other ranks are received all the time. Sorting and writing resume by
 * themselves when an append, or a record of another rank, finds the buffers full, and in
 * swale_dir_epoch_end and swale_dir_epoch_end_wait. */
int swale_dir_pause(swale_dir* dir);
/* Ends swale_dir_pause: this rank sorts and writes again. Without a pause it does nothing. */
int swale_dir_resume(swale_dir* dir);

/* This rank's counters since the directory was opened, the open epoch included. The names are those of
 * swale_reader_epoch_stats and some more ("memory: ..." says how the memory is divided). Any thread may
 * call this. It takes the lock of the pipeline for a moment, so do not call it for every record. */
int swale_dir_stats(swale_dir* dir, swale_stats** stats);

/* [collective] Closes the directory and frees the handle in any case. Records appended after the last
 * epoch end are dropped; the call then returns SWALE_ABORTED and says how many. */
int swale_dir_close(swale_dir* dir);

/* ---- Reading: one process, nothing needed but the path ------------------------------------------------- */

/* A massive directory, open for reading. */
typedef struct swale_reader swale_reader;
/* The values that a query found. */
typedef struct swale_values swale_values;

/* Opens the directory at `path` as of its last committed epoch. `options` may be NULL. A job may be
 * writing to it. */
int swale_reader_open(const char* path, const char* options, swale_reader** reader);
/* Closes the reader. Its swale_values stay valid until they are freed. */
void swale_reader_close(swale_reader* reader);

/* Tells the reader the function of the partitioner `name`: in epochs that were written with it, queries
 * then ask one partition instead of all. Results are the same without it, only slower. The reader tries
 * `fn` with some keys of the directory: SWALE_INVALID_ARGUMENT if it is certainly not the writer's
 * function. `fn` must live until the reader is closed. In such epochs swale_reader_get_many saves less. */
int swale_reader_set_partitioner(swale_reader* reader, const char* name, swale_partition_fn fn,
                                 void* context);

/* What swale_reader_refresh found; added together. */
enum swale_refresh {
  SWALE_REFRESH_ADDED = 1, /* epochs were committed since */
  /* known epochs were dropped (imd.resume_after); other epochs may have their numbers now */
  SWALE_REFRESH_DROPPED = 2
};
/* Makes epochs visible that were committed since the reader was opened or refreshed. Cheap: reads the
 * newest manifest and the epoch log (256 bytes per epoch); later queries read the new index entries of the
 * partitions that they ask. Other threads may run queries at the same time: a query finishes with the
 * epochs that it began with. *changed (may be NULL) is 0 or a sum of swale_refresh. After a failure the
 * reader works as before. */
int swale_reader_refresh(swale_reader* reader, int* changed);

/* Epochs are numbered from 0 in the order in which they were committed. */
typedef struct swale_epoch_info {
  size_t struct_bytes; /* sizeof(swale_epoch_info), set by the caller */
  int64_t epoch;       /* its number */
  int64_t step;        /* as given to swale_dir_epoch_end; INT64_MIN: unknown (`swale repair`) */
  double time;         /* as given to swale_dir_epoch_end; NaN: unknown */
  uint64_t records;    /* over all ranks */
} swale_epoch_info;
/* The number of committed epochs when the reader was opened or refreshed. */
int64_t swale_reader_epoch_count(const swale_reader* reader);
/* Information about one epoch; SWALE_NOT_FOUND beyond the last. */
int swale_reader_epoch_info(const swale_reader* reader, int64_t epoch, swale_epoch_info* info);

/* The attributes that swale_dir_set_attributes gave, "{}" if there are none: an epoch's own, or the
 * directory's as of this epoch (SWALE_ALL_EPOCHS: as of the last one). Reads them from storage. Writes at
 * most `json_bytes` bytes with the final NUL to `json`; *needed (may be NULL) is set to how many it takes,
 * also if the call fails with SWALE_INVALID_ARGUMENT because they do not fit. SWALE_ATTRIBUTES_BYTES_MAX + 1
 * always suffice. */
int swale_reader_attributes(swale_reader* reader, int what, int64_t epoch, char* json, size_t json_bytes,
                            size_t* needed);

/* What the epoch cost its writers, over all ranks: records, bytes, time and waits of each stage,
 * high-water marks. SWALE_NOT_FOUND if nothing was kept: an older Swale wrote the epoch, or the machine
 * went down soon after it. */
int swale_reader_epoch_stats(swale_reader* reader, int64_t epoch, swale_stats** stats);

/* The values of a key, in one epoch or (SWALE_ALL_EPOCHS) in all: its trajectory, ordered by epoch.
 * SWALE_NOT_FOUND if the key has no value in this range; an empty value is a value of length 0. Verifies
 * the checksums of everything that it reads. */
int swale_reader_get(swale_reader* reader, const void* key, size_t key_bytes, int64_t epoch,
                     swale_values** values);

/* The number of values found. */
size_t swale_values_count(const swale_values* values);
/* Value `index` (0 <= index < count) and its epoch. The bytes live as long as the swale_values. */
int swale_values_at(const swale_values* values, size_t index, int64_t* epoch, const void** value,
                    size_t* value_bytes);
/* Frees the values and their bytes; NULL is allowed. */
void swale_values_free(swale_values* values);

/* Called once per record; `key` and `value` live only during the call. Returning anything but 0 stops the
 * walk, which then returns SWALE_OK. */
typedef int (*swale_record_fn)(void* context, int64_t epoch, const void* key, size_t key_bytes,
                               const void* value, size_t value_bytes);

/* Many keys at once: cheaper than asking one by one, because index slices and blocks are read once. `keys`
 * and `key_bytes` have `count` entries. `fn` is called for every value found, in no particular order. A
 * missing key is no error; *found (may be NULL) is the number of keys that had at least one value. */
int swale_reader_get_many(swale_reader* reader, const void* const* keys, const size_t* key_bytes,
                          size_t count, int64_t epoch, swale_record_fn fn, void* context, size_t* found);

/* Every record of one epoch or of all, in storage order. */
int swale_reader_scan(swale_reader* reader, int64_t epoch, swale_record_fn fn, void* context);

/* Part `part` (0 <= part < parts) of the same scan, for threads or processes that divide it. Every record
 * is in exactly one of the `parts` (1 to 2^20) parts; which one depends only on its epoch and on `parts`.
 * All parts have about the same size in every epoch. The unit of division is a run of about 10 MiB, so
 * with little data some parts may be empty. If there are as many parts as the epoch's job had ranks, part
 * p is what rank p stored. Partitions of very different size (swale_dir_open_partitioned) make unequal
 * parts: ask for more parts than threads, and let each thread take the next. Any number of threads may
 * share one reader, or processes may open one each. SWALE_INVALID_ARGUMENT for a part that does not exist. */
int swale_reader_scan_part(swale_reader* reader, int64_t epoch, uint32_t part, uint32_t parts,
                           swale_record_fn fn, void* context);

/* Called once per key; `key` lives only during the call. Returning anything but 0 stops the walk. */
typedef int (*swale_key_fn)(void* context, const void* key, size_t key_bytes);

/* The distinct keys of one epoch (not SWALE_ALL_EPOCHS), each once, in storage order. Reads the epoch as a
 * scan does, and needs memory for the keys of one partition. */
int swale_reader_keys(swale_reader* reader, int64_t epoch, swale_key_fn fn, void* context);

/* min(n, distinct keys) distinct keys of one epoch (not SWALE_ALL_EPOCHS), drawn at random: all keys are
 * equally likely, however many records they have. The same `seed` gives the same keys. n is at most 2^20.
 * Reads about 10 KB per key, or the epoch if that is less. Meant for tests of queries. */
int swale_reader_sample(swale_reader* reader, int64_t epoch, size_t n, uint64_t seed, swale_key_fn fn,
                        void* context);

/* Reads the index of `count` epochs (one may be SWALE_ALL_EPOCHS) into the cache that all readers of this
 * process share (option imd.cache), the first ones first, until no more fits; nothing else leaves the cache.
 * A query of these epochs then reads no more than the blocks of its values. *bytes (may be NULL) is how much
 * of the cache they take. Any thread may call it, at any time. SWALE_INVALID_ARGUMENT with imd.cache=0. */
int swale_reader_warm(swale_reader* reader, const int64_t* epochs, size_t count, uint64_t* bytes);

/* The number of records in one epoch or in all; reads no data. */
int swale_reader_count(swale_reader* reader, int64_t epoch, uint64_t* records);

/* The schema that the directory was made with (option imd.schema), "" if none. Valid while the reader is
 * open. */
const char* swale_reader_schema(const swale_reader* reader);

/* The type of keys that the directory was made with (option imd.key): "u64", "i64", "text" or "bytes"; ""
 * if none. Valid for ever. */
const char* swale_reader_key_type(const swale_reader* reader);

/* The records with the largest or smallest numbers in a field. */
typedef struct swale_top swale_top;

/* Which end swale_reader_top asks for. */
enum swale_top_end { SWALE_TOP_LARGEST = 0, SWALE_TOP_SMALLEST = 1 };

/* The `k` (1 to 2^20) records of one epoch (not SWALE_ALL_EPOCHS) with the largest or smallest numbers in
 * `field`, the best first; equal numbers in the order of their keys' bytes, then as appended. `field` is a
 * name of the schema, or "name[i]" for an element of an array. For a field that is indexed (option
 * imd.extrema) this reads little more than k blocks; for others it reads the epoch. Ties with the k-th
 * record are broken in an unspecified but repeatable way. Records whose field is NaN, and values that are
 * too short for the field, are counted and never among the best. SWALE_INVALID_ARGUMENT, with the names
 * that exist, for a field that the schema does not have. */
int swale_reader_top(swale_reader* reader, const char* field, int64_t epoch, size_t k, int end,
                     swale_top** top);

/* One of these records. The pointers live as long as the swale_top. */
typedef struct swale_top_record {
  size_t struct_bytes; /* sizeof(swale_top_record), set by the caller */
  const void* key;     /* of the record */
  size_t key_bytes;    /* its length */
  const void* value;   /* the whole value */
  size_t value_bytes;  /* its length */
  const void* field;   /* the number as stored in the value, little-endian */
  size_t field_bytes;  /* 1, 2, 4 or 8 */
  double number;       /* the same; rounded if it is an integer above 2^53 */
} swale_top_record;
/* The number of records found: k, or fewer if there are no more. */
size_t swale_top_count(const swale_top* top);
/* Record `index` (0 <= index < count). */
int swale_top_at(const swale_top* top, size_t index, swale_top_record* record);

/* What the query cost, and which records it left out. */
typedef struct swale_top_stats {
  size_t struct_bytes;         /* sizeof(swale_top_stats), set by the caller */
  uint64_t nans;               /* records of the epoch whose field is NaN */
  uint64_t absent;             /* records of the epoch whose value is too short for the field */
  uint64_t bytes_read;         /* in all read requests together */
  uint64_t reads;              /* read requests issued */
  uint64_t blocks_read;        /* blocks of records that extrema named */
  uint64_t partitions_scanned; /* read whole, as they have no extrema; 0 for an indexed field */
} swale_top_stats;
/* The statistics of this result. */
int swale_top_get_stats(const swale_top* top, swale_top_stats* stats);
/* Frees the records; NULL is allowed. */
void swale_top_free(swale_top* top);

/* The reader's requests to storage since it was opened: "read.bytes" (in all read requests together),
 * "read.requests", "read.depth_max" (the longest chain of reads that waited for one another in one query),
 * "queries" (calls of get and get_many), "read.false_candidates" (blocks read for a key that they did not
 * contain), "cache.hits" and "cache.misses" (slices of the index, and blocks, that the cache had or lacked)
 * and "cache.bytes" (that the cache of the process holds now, for all readers). */
int swale_reader_stats(const swale_reader* reader, swale_stats** stats);

/* ---- Subfiles: a massive directory as the papers see it (deltafs-imd-2017, section 3) ------------------ */

/* One key of a massive directory, open as a file. */
typedef struct swale_subfile swale_subfile;

/* [collective] Makes an empty massive directory, in which no job has written yet, and the directories above
 * it that do not exist. SWALE_ALREADY_EXISTS if the path is taken. */
int swale_dir_make(swale_job* job, const char* path, const char* options);
/* Opens the subfile of a key for appending. Nothing is stored until the first write. */
int swale_subfile_open_write(swale_dir* dir, const char* name, swale_subfile** file);
/* Opens the subfile of a key for reading: the values of all epochs, one after the other. Values larger
 * than 16,384 bytes stay on storage until swale_subfile_read asks for their bytes. `reader` may be closed
 * before the subfile. */
int swale_subfile_open_read(swale_reader* reader, const char* name, swale_subfile** file);
/* Appends `bytes` bytes as one value. */
int swale_subfile_write(swale_subfile* file, const void* data, size_t bytes);
/* Reads the next bytes; *bytes_read is 0 at the end. After a failure the next call tries the same bytes
 * again. */
int swale_subfile_read(swale_subfile* file, void* data, size_t bytes, size_t* bytes_read);
/* Closes the subfile and frees the handle in any case. */
int swale_subfile_close(swale_subfile* file);

#ifdef __cplusplus
}
#endif

#endif /* SWALE_SWALE_H_ */
