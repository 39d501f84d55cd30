/* Swale: files behind I/O servers with a tiered write buffer. The C interface of the clients.
 *
 * Some ranks of the job are I/O servers: processes that `swale run` starts beside the program (mpirun -n
 * 16 swale run --servers 2 ... -- program), which may be one of MPI. Each keeps its part of every file in
 * a directory on slow storage, with an SSD log in front. A file is striped over all servers.
 *
 * Conventions are those of swale.h. What a write has returned SWALE_OK for survives the death of this
 * process, and of a server as its --durability promises. The message of SWALE_UNAVAILABLE or
 * SWALE_DEADLINE_EXCEEDED names the rank that did not answer; what was asked may have been done, in part
 * or in full, and can be repeated.
 *
 * Threads: any number may use one handle at once, but for open and close.
 */
#ifndef SWALE_SWALE_IOND_H_
#define SWALE_SWALE_IOND_H_

#include "swale/swale.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The I/O servers of a job, as this rank uses them. */
typedef struct swale_iond swale_iond;
/* An open file. */
typedef struct swale_iond_file swale_iond_file;

/* [collective, with the servers] Options "iond....". `flags` is 0. SWALE_INVALID_ARGUMENT names a rank that
 * has another stripe, or makes another collective call. The job must have been opened without a communicator
 * of the program's own, because the servers are no part of that. While it has servers nothing else of this
 * job is collective: for that open a second one over the program's communicator (swale_mpi.h). Both may be
 * used at the same time. */
int swale_iond_open(swale_job* job, int flags, const char* options, swale_iond** iond);
/* [collective, with the servers, which then end] Frees the handle in any case. Close its files first. */
int swale_iond_close(swale_iond* iond);

/* Opens a file by its path on the servers: relative, without "..", 1 to 4,096 bytes. `flags`: SWALE_CREATE
 * and SWALE_EXCLUSIVE. A new file gets the permission bits `mode`, less the server's umask.
 * SWALE_INVALID_ARGUMENT: it is striped in another way. Any number of ranks may have one file open. */
int swale_iond_file_open(swale_iond* iond, const char* name, int flags, uint32_t mode,
                         swale_iond_file** file);
/* Frees the handle in any case. A failure tells of a write that had succeeded and was lost later. */
int swale_iond_file_close(swale_iond_file* file);

/* Writes `bytes` bytes at `offset`; files have at most 2^48 bytes. Writes of several ranks to one place:
 * either one, byte by byte. */
int swale_iond_write(swale_iond_file* file, uint64_t offset, const void* data, size_t bytes);
/* Reads up to `bytes` bytes at `offset`; *got is less only at the end of the file. */
int swale_iond_read(swale_iond_file* file, uint64_t offset, void* data, size_t bytes, size_t* got);
/* Cuts the file, or extends it by a hole. Not while others write it. */
int swale_iond_truncate(swale_iond_file* file, uint64_t size);
/* The attributes of an open file. */
int swale_iond_file_stat(swale_iond_file* file, swale_attributes* attributes);
/* Returns when all that was written of the file survives a loss of power on every server. */
int swale_iond_sync(swale_iond_file* file);

/* The attributes of a file or directory by its name; "" is the top directory. A directory's `mode` has the
 * bit SWALE_IOND_DIRECTORY. */
int swale_iond_stat(swale_iond* iond, const char* name, swale_attributes* attributes);
/* Removes a file, or a symbolic link. Who has the file open can go on. */
int swale_iond_remove(swale_iond* iond, const char* name);
/* Renames a file or a directory, and replaces a file, or an empty directory, that had the new name. */
int swale_iond_rename(swale_iond* iond, const char* from, const char* to);
/* In `mode` of the attributes of a directory: 040000. */
#define SWALE_IOND_DIRECTORY 16384

/* Makes a directory, with the permission bits `mode`, less the server's umask. Files are opened in
 * directories that are there. */
int swale_iond_mkdir(swale_iond* iond, const char* name, uint32_t mode);
/* Removes a directory, which must be empty. */
int swale_iond_rmdir(swale_iond* iond, const char* name);
/* What an entry of a directory is. SWALE_IOND_OTHER_ENTRY: a link, a FIFO, ..., which no call leads to. */
enum swale_iond_kind {
  SWALE_IOND_FILE_ENTRY = 1,
  SWALE_IOND_DIRECTORY_ENTRY = 2,
  SWALE_IOND_OTHER_ENTRY = 3
};
/* Called for each entry; `name` lives only during the call. It may call the servers. Returning anything but 0
 * ends the list. */
typedef int (*swale_iond_entry_fn)(void* context, const char* name, int kind);
/* Lists a directory, in the order of the names' bytes; "" is the top one. What is there all the time comes
 * once; what comes or goes meanwhile comes once or not. */
int swale_iond_list(swale_iond* iond, const char* name, swale_iond_entry_fn fn, void* context);
/* Sets the permission bits of a file or directory. They are for mounts: the servers do what ranks ask. */
int swale_iond_set_mode(swale_iond* iond, const char* name, uint32_t mode);
/* Sets when a file or directory was modified, in ns since 1970. Not while others write the file. */
int swale_iond_set_modified(swale_iond* iond, const char* name, int64_t modified_ns);
/* Returns when every server has written everything from its SSD to its slow storage. */
int swale_iond_drain(swale_iond* iond);

/* What the servers have done since they were started, and how they stand, merged over them. */
int swale_iond_stats(swale_iond* iond, swale_stats** stats);

#ifdef __cplusplus
}
#endif

#endif /* SWALE_SWALE_IOND_H_ */
