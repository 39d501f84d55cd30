/* Swale: a tiered write buffer inside a program: files on slow storage with a log on an SSD in front. The C
 * interface.
 *
 * Writes go to the SSD log or to the files, whichever is quicker, and from the log to the files later,
 * sorted. Reads give what was written, wherever it is. `swale tier mount` shows the same buffer to programs
 * that do not know Swale; swale_iond.h reaches it from other nodes.
 *
 * Conventions are those of swale.h. No job is needed: one process has a buffer open at a time, and SWALE_BUSY
 * names the other. Sizes and offsets are bytes, times nanoseconds since 1970. A write that has returned
 * SWALE_OK is found by every later read, and survives what option tier.durability says: a kill of this
 * process (the default), or a loss of power. swale_tier_sync makes a file's writes survive a loss of power in
 * any case. After a kill, open the buffer again: nothing that was acknowledged is missing.
 *
 * Until swale_tier_drain, some files in the backing directory have older bytes than the buffer: nobody else
 * may read or change them.
 *
 * Threads: any number may use one buffer and one file at once, but for opening and closing that file, and
 * closing the buffer. Two concurrent writes to one place: either one, byte by byte. The library starts two
 * threads for each open buffer.
 */
#ifndef SWALE_SWALE_TIER_H_
#define SWALE_SWALE_TIER_H_

#include "swale/swale.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tiered write buffer, open in this process. */
typedef struct swale_tier swale_tier;
/* An open file. */
typedef struct swale_tier_file swale_tier_file;

/* Opens the buffer of the files in the directory `backing`, which must be there, with its log in the
 * directory `ssd`. Options "tier....". `flags`: with SWALE_CREATE the log is made if it is not there (with
 * SWALE_EXCLUSIVE it must not be), of tier.size bytes; SWALE_NOT_FOUND without it. The directory of the log
 * belongs to this user alone (mode 0700).
 *
 * What a process that was killed has left is taken over. If acknowledged bytes are lost, because the log is
 * damaged, the buffer opens all the same: reads of these bytes are SWALE_CORRUPTION until they are
 * overwritten, and swale_tier_losses names them. SWALE_ACCEPT_LOSS gives them up: reads then give the older
 * bytes of the backing directory. SWALE_NO_SPACE: the SSD has no space for the log, and nothing of it is left
 * there. */
int swale_tier_open(const char* backing, const char* ssd, int flags, const char* options, swale_tier** tier);
/* Closes the buffer and frees the handle in any case. What is in the log stays there for the next open: call
 * swale_tier_drain before to have it in the files. Close its files first; calls on those that are left are
 * SWALE_INVALID_ARGUMENT. */
int swale_tier_close(swale_tier* tier);

/* Opens a file by its path in the backing directory: relative, without "..", 1 to 4,096 bytes, in a directory
 * that is there; links are not followed. `flags`: SWALE_CREATE and SWALE_EXCLUSIVE. A new file gets the
 * permission bits `mode`, less the umask; its owner must be able to read and write it. */
int swale_tier_file_open(swale_tier* tier, const char* name, int flags, uint32_t mode,
                         swale_tier_file** file);
/* Frees the handle in any case. A failure tells of a write that had succeeded and was lost later. */
int swale_tier_file_close(swale_tier_file* file);

/* Writes `bytes` bytes at `offset`; files have at most 2^48 bytes. Waits while the log and the queue for the
 * backing directory are full. After a failure any part of the range may have been written. */
int swale_tier_write(swale_tier_file* file, uint64_t offset, const void* data, size_t bytes);
/* Reads up to `bytes` bytes at `offset`; *got is less only at the end of the file. */
int swale_tier_read(swale_tier_file* file, uint64_t offset, void* data, size_t bytes, size_t* got);
/* Cuts the file, or extends it by a hole. */
int swale_tier_truncate(swale_tier_file* file, uint64_t size);
/* Returns when all that was written of the file, and its name, survive a loss of power. Fails if an
 * acknowledged write was lost. */
int swale_tier_sync(swale_tier_file* file);
/* The attributes of an open file. */
int swale_tier_file_stat(swale_tier_file* file, swale_attributes* attributes);

/* The attributes of a file by its name. */
int swale_tier_stat(swale_tier* tier, const char* name, swale_attributes* attributes);
/* Removes a file. Who has it open can go on. */
int swale_tier_remove(swale_tier* tier, const char* name);
/* Renames a file, and replaces what had the new name. */
int swale_tier_rename(swale_tier* tier, const char* from, const char* to);
/* Returns when everything is in the files of the backing directory, which are then complete. */
int swale_tier_drain(swale_tier* tier);

/* Called for each loss; `what` is a line of text (file, range, cause, remedy) that lives only during the
 * call. Returning anything but 0 ends the list. */
typedef int (*swale_tier_loss_fn)(void* context, const char* what);
/* Which acknowledged bytes are lost now, and which are kept aside because their file was not found when the
 * buffer was opened. */
int swale_tier_losses(swale_tier* tier, swale_tier_loss_fn fn, void* context);

/* What the buffer has done since it was opened, and how it stands. */
int swale_tier_stats(swale_tier* tier, swale_stats** stats);

#ifdef __cplusplus
}
#endif

#endif /* SWALE_SWALE_TIER_H_ */
