/* Swale: the metadata store, where every byte of a shared file lives. The C interface.
 *
 * Processes of a job that write one shared file keep its bytes in logs of their own. The store knows the
 * log and address of every byte of the file: a put tells it, and a get asks it for any range of the file.
 * It also keeps the attributes of files. Its servers are threads in the job's processes; there is no
 * daemon.
 *
 * Conventions are those of swale.h. A put that has returned SWALE_OK is durable, and every get that begins
 * later finds it. If puts overlap, the later one counts; if they are concurrent, either one, byte by byte.
 * The message of SWALE_UNAVAILABLE or SWALE_DEADLINE_EXCEEDED names the rank that did not answer. The
 * operation may have been done; you can safely repeat it.
 *
 * Threads: any number may use one store at once. A file handle is used by one thread at a time; open one
 * for each thread.
 */
#ifndef SWALE_SWALE_META_H_
#define SWALE_SWALE_META_H_

#include "swale/swale.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A metadata store, open on this rank. */
typedef struct swale_meta swale_meta;
/* A file of the store, as one caller has it open. */
typedef struct swale_meta_file swale_meta_file;
/* The result of a get. */
typedef struct swale_meta_found swale_meta_found;

/* Bytes [offset, offset + length) of the file are in log `log` at `address`. An array element: the struct
 * never changes. */
typedef struct swale_meta_segment {
  uint64_t offset;   /* in the file */
  uint64_t length;   /* 1 or more; offset + length is at most 2^63 */
  uint64_t address;  /* in the log */
  uint32_t log;      /* which log: the caller's numbering, below 2^32 - 1 */
  uint32_t reserved; /* 0 */
} swale_meta_segment;

/* A range of a file. An array element: the struct never changes. */
typedef struct swale_meta_range {
  uint64_t offset; /* of its first byte */
  uint64_t length; /* 1 or more */
} swale_meta_range;

/* [collective] Opens the store in the directory `path`. SWALE_NOT_FOUND if none is there and `flags` has no
 * SWALE_CREATE. Options "meta...." and "io....". A new store has meta.servers_per_node servers on each node;
 * an existing store keeps its number of servers. The rank that hosts a server writes its data: `path` must be
 * on storage that all ranks see, or a local path on each node; a server is hosted on the node that has its
 * data. SWALE_CORRUPTION names a server whose node is not in the job, and where it was.
 * SWALE_INVALID_ARGUMENT names the flag or option and the ranks that differ, a rank whose path leads
 * elsewhere than those of its node, or the other collective call that a rank makes.
 *
 * One job at a time has a store open for writing: SWALE_BUSY names the other. Any number of jobs may have it
 * open with SWALE_READ_ONLY, also beside the one that writes, and without the right to write to its files.
 * They find everything that was acknowledged before they opened it, and nothing that comes later, or little.
 * Calls that would change the store fail with SWALE_INVALID_ARGUMENT. They go on answering the places of that
 * time: keep logs that were moved until they have closed the store. */
int swale_meta_open(swale_job* job, const char* path, int flags, const char* options, swale_meta** meta);
/* [collective] Closes the store and frees the handle in any case. Close its files first. */
int swale_meta_close(swale_meta* meta);

/* Opens a file by its name (1 to 4,096 bytes). A new file gets `mode`. `flags`: SWALE_CREATE and
 * SWALE_EXCLUSIVE. */
int swale_meta_file_open(swale_meta* meta, const char* name, int flags, uint32_t mode,
                         swale_meta_file** file);
/* Tells the store the end of this handle's puts, and frees the handle in any case. The file's size becomes
 * the largest such end. */
int swale_meta_file_close(swale_meta_file* file);

/* Puts `count` segments, in their order. Regular patterns among them cost as much as one segment.
 * SWALE_INVALID_ARGUMENT (nothing is done) for lengths of 0, ends beyond 2^63, and sealed files. */
int swale_meta_put(swale_meta_file* file, const swale_meta_segment* segments, size_t count);

/* Finds the segments of `count` ranges. For sealed, regular files no server is asked. */
int swale_meta_get(swale_meta_file* file, const swale_meta_range* ranges, size_t count,
                   swale_meta_found** found);
/* The segments of range `index` (below `count`), ascending, cut to the range; holes are left out. They
 * live as long as `found`. */
int swale_meta_found_at(const swale_meta_found* found, size_t index, const swale_meta_segment** segments,
                        size_t* count);
/* Frees the result; NULL is allowed. */
void swale_meta_found_free(swale_meta_found* found);

/* How many levels a run may have. */
#define SWALE_META_LEVELS 3

/* A level of a run. An array element: the struct never changes. */
typedef struct swale_meta_level {
  uint64_t count;          /* 2 or more */
  uint64_t stride;         /* at least the bytes that the levels below span: blocks do not overlap */
  uint64_t address_stride; /* in the log */
} swale_meta_level;

/* Equal blocks at equal distances, and such rows at equal distances, and so on: block (i, j, k) begins i *
 * level[0].stride + j * level[1].stride + k * level[2].stride bytes after the first one in the file, and
 * with `address_stride` (modulo 2^64) in the log. An array element: the struct never changes. */
typedef struct swale_meta_run {
  uint64_t offset;  /* of the first block, in the file */
  uint64_t length;  /* of each block, 1 or more; the last one ends at 2^63 at most */
  uint64_t address; /* of the first block, in the log */
  uint32_t log;     /* as of a segment */
  uint32_t levels;  /* how many of level[] count, up to SWALE_META_LEVELS; 0: one block */
  swale_meta_level level[SWALE_META_LEVELS]; /* the innermost first */
} swale_meta_run;

/* The result of a get of runs. */
typedef struct swale_meta_found_runs swale_meta_found_runs;

/* Finds the bytes of the blocks of `count` runs, of which `address`, `log` and `address_stride` are not
 * looked at. Where the file is as regular as the question, the answer is as short, and takes as long as
 * that of one segment. For callers who know their pattern; swale_meta_get finds it in its ranges.
 * SWALE_RESOURCE_EXHAUSTED: the file is so irregular there that the answer is longer than one message; ask
 * by swale_meta_get. */
int swale_meta_get_runs(swale_meta_file* file, const swale_meta_run* queries, size_t count,
                        swale_meta_found_runs** found);
/* The runs that answer query `index` (below `count`). They do not overlap, and are in no order; holes are
 * left out. They live as long as `found`. */
int swale_meta_found_runs_at(const swale_meta_found_runs* found, size_t index, const swale_meta_run** runs,
                             size_t* count);
/* Frees the result; NULL is allowed. */
void swale_meta_found_runs_free(swale_meta_found_runs* found);

/* Called for each segment of a scan; it lives only during the call. Returning anything but 0 stops the
 * scan. */
typedef int (*swale_meta_segment_fn)(void* context, const swale_meta_segment* segment);
/* All segments of the file from `offset` on, ascending. */
int swale_meta_scan(swale_meta_file* file, uint64_t offset, swale_meta_segment_fn fn, void* context);

/* The attributes of a file by its name. Its size comes from truncates and from closes after puts, and so does
 * the time of its last change. */
int swale_meta_stat(swale_meta* meta, const char* name, swale_attributes* attributes);
/* Cuts the file, or extends it by a hole. Returns when all servers have forgotten the bytes that were cut
 * off. After SWALE_UNAVAILABLE, SWALE_DEADLINE_EXCEEDED or SWALE_ABORTED the cut may still come, and take
 * what is put meanwhile: repeat the call until it succeeds before putting more. */
int swale_meta_truncate(swale_meta_file* file, uint64_t size);
/* Makes the file immutable. Call it after all writers have closed the file; several ranks may call it. If
 * it fails because a server could not be reached, the next seal, or the next job that opens the store,
 * finishes it. */
int swale_meta_seal(swale_meta_file* file);
/* Removes the file and everything put into it. When it has returned SWALE_OK, all handles of the file, of
 * all ranks, get SWALE_NOT_FOUND, also when another file of that name was created since. */
int swale_meta_remove(swale_meta* meta, const char* name);
/* For a log that was moved, in all files: bytes [begin, end) of log `from` are in log `to` at `address`
 * from now on. When it has returned SWALE_OK, no get of any rank answers the old place any more. After a
 * failure some may: keep both. */
int swale_meta_relocate(swale_meta* meta, uint32_t from, uint64_t begin, uint64_t end, uint32_t to,
                        uint64_t address);

/* What the servers have done since the store was opened, and how they stand, merged over them: `min_rank` and
 * `max_rank` are numbers of servers. */
int swale_meta_stats(swale_meta* meta, swale_stats** stats);

#ifdef __cplusplus
}
#endif

#endif /* SWALE_SWALE_META_H_ */
