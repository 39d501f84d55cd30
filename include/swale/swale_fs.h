/* Swale: files of a job's tree. The C interface.
 *
 * A program that runs under `swale run --backing DIRECTORY` or beside `swale serve` can use every file of the
 * tree by the system's own calls. Through this interface its writes cost no call of the system: they go to a
 * log of the process, in memory that it shares with the server of its node.
 *
 * Conventions are those of swale.h. A write that has returned SWALE_OK is seen by every process of the node
 * at once, by whatever way it reads, and outlives this process and the server. Other nodes see it after
 * swale_fs_commit, swale_fs_sync or swale_fs_close. Where the log cannot be had, because another open of the
 * file lets the kernel keep its pages, or memory is short, writes go through the mount: slower, with the same
 * promises. Each commit asks for the log again.
 *
 * The kernel learns of an end that this interface has moved by the next fstat (or stat, or open): until then
 * mmap and copy_file_range of a descriptor that was open before see the old one.
 *
 * SWALE_IO_ERROR names the node and the path when the server of the node is gone or silent.
 *
 * Threads: any number may use one file at once, but for open and close. A child made by fork may go on with
 * the file; it closes its own handle.
 */
#ifndef SWALE_SWALE_FS_H_
#define SWALE_SWALE_FS_H_

#include "swale/swale.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A file of the tree, open in this process. */
typedef struct swale_fs_file swale_fs_file;

/* Flags of swale_fs_open, with SWALE_CREATE, SWALE_EXCLUSIVE and SWALE_READ_ONLY. */
enum swale_fs_flags {
  SWALE_FS_EMPTY = 16,    /* cut it to nothing */
  SWALE_FS_APPEND = 32,   /* each swale_fs_write gets a place at the end that no other one has, on any node */
  SWALE_FS_BY_MOUNT = 64, /* all writes go through the mount */
  SWALE_FS_BY_LOG = 128   /* SWALE_BUSY and others, rather than writes through the mount */
};

/* A piece of a write. An array element: the struct never changes. */
typedef struct swale_fs_part {
  const void* data;
  size_t bytes;
} swale_fs_part;

/* A place for a piece of a read. An array element: the struct never changes. */
typedef struct swale_fs_space {
  void* data;
  size_t bytes;
} swale_fs_space;

/* Opens a file by its path, absolute or relative, to write and read it. SWALE_NOT_FOUND if it is on no tree
 * of a job; then nothing is made. A new file gets the permission bits `mode`, less the umask. */
int swale_fs_open(const char* path, int flags, uint32_t mode, swale_fs_file** file);
/* Commits, and frees the handle in any case. */
int swale_fs_close(swale_fs_file* file);

/* Writes `bytes` bytes at `offset`; files end at 2^63 at most. Pieces of 1 MiB are there as a whole or not at
 * all, also if the process is killed. Waits while the node's memory is full. After a failure any part of the
 * range may have been written. */
int swale_fs_pwrite(swale_fs_file* file, uint64_t offset, const void* data, size_t bytes);
/* The same of `count` parts, one behind the other in the file. */
int swale_fs_pwritev(swale_fs_file* file, uint64_t offset, const swale_fs_part* parts, size_t count);
/* Writes `count` records of `record_bytes`, which stand one behind the other in `data`, at `offset`,
 * `offset` + `stride` and so on. */
int swale_fs_write_many(swale_fs_file* file, uint64_t offset, uint64_t stride, const void* data,
                        size_t record_bytes, size_t count);
/* Writes behind what swale_fs_write has written by this handle; with SWALE_FS_APPEND at the file's end. */
int swale_fs_write(swale_fs_file* file, const void* data, size_t bytes);
/* Reads up to `bytes` bytes at `offset`; *got is less only at the end of the file. */
int swale_fs_pread(swale_fs_file* file, uint64_t offset, void* data, size_t bytes, size_t* got);

/* The same into `count` places: what stands one behind the other in the file fills one after the other. */
int swale_fs_preadv(swale_fs_file* file, uint64_t offset, const swale_fs_space* parts, size_t count,
                    size_t* got);

/* Returns when every read that begins later, on any node, sees what this node has written. */
int swale_fs_commit(swale_fs_file* file);
/* The same, and it is durable, as the server's --fsync says: on this node's storage, or in the directory. */
int swale_fs_sync(swale_fs_file* file);
/* Cuts the file, or extends it by a hole. No write that begins later is cut. */
int swale_fs_truncate(swale_fs_file* file, uint64_t size);
/* The attributes of an open file; `sealed` is 1 while nobody can change its bytes. */
int swale_fs_stat(swale_fs_file* file, swale_attributes* attributes);
/* *by_log becomes 1 if writes go to the log now, and 0 if they go through the mount. */
int swale_fs_writes_by_log(swale_fs_file* file, int* by_log);

/* Takes the right to write from the file's mode and makes its bytes immutable, on all nodes, for root, too.
 * Call it after all writers have closed the file: SWALE_BUSY names the processes that have not. */
int swale_fs_seal(const char* path);
/* Lets the file's owner write it again. When it has returned, no node answers from what it has kept of the
 * sealed file. */
int swale_fs_unseal(const char* path);

/* ---- Names: for paths on a tree, as the system's own calls do it; SWALE_NOT_FOUND for others. All nodes see
 * a change when it has returned. ---- */

/* In `mode` of the attributes of a directory: 040000. */
#define SWALE_FS_DIRECTORY 16384
/* The attributes of what a path, or a link there, leads to. `sealed` is 0 of a file that may not be read. */
int swale_fs_stat_path(const char* path, swale_attributes* attributes);
/* Makes a directory with the permission bits `mode`, less the umask. */
int swale_fs_mkdir(const char* path, uint32_t mode);
/* Removes a directory, which must be empty. */
int swale_fs_rmdir(const char* path);
/* Removes a file, or a symbolic link. Who has the file open can go on. */
int swale_fs_remove(const char* path);
/* Renames a file or a directory of one tree, and replaces a file, or an empty directory, that had the new
 * name: at each moment one of both is there. */
int swale_fs_rename(const char* from, const char* to);
/* What an entry of a directory is. SWALE_FS_OTHER_ENTRY: a link. */
enum swale_fs_kind { SWALE_FS_FILE_ENTRY = 1, SWALE_FS_DIRECTORY_ENTRY = 2, SWALE_FS_OTHER_ENTRY = 3 };
/* Called for each entry; `name` lives only during the call. It may call Swale. Returning anything but 0 ends
 * the list. */
typedef int (*swale_fs_entry_fn)(void* context, const char* name, int kind);
/* Lists a directory, in no order. What is there all the time comes once; what comes or goes meanwhile comes
 * once or not. */
int swale_fs_list(const char* path, swale_fs_entry_fn fn, void* context);

#ifdef __cplusplus
}
#endif

#endif /* SWALE_SWALE_FS_H_ */
