// JobFolders: where the tree of a job is on this node: its backing, mountpoint, buffer and memory.
//
//   BUFFER (0700) := serve.json names/ state/ spill/ stand-ins/
//   serve.json: sealed document "swale-serve" 1: inode and born (of the backing), job
//
// The backing is known by its inode and, where its file system tells it, by when that was made: another
// directory may get the inode of one that is gone. Where nothing is told (born 0, or a document of a build
// that did not ask), the folder of the job in .swale must be there, which a job has made before it had names.
//
// Threads: free functions. Errors: what hinders a server, with a remedy. kBusy: a server lives.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"
#include "fuse/job_mount.h"
#include "io/descriptor.h"
#include "io/device.h"

namespace swale::fuse {

inline constexpr char kStandInsFolder[] = "stand-ins";  // of fs/job/stand_ins.h
inline constexpr char kMemoryFolder[] = "/dev/shm";
std::string memory_prefix();  // of the paths of this user's folders there

struct JobFolders {
  std::string backing;     // without links
  std::string mountpoint;  // the same, by default
  std::string buffer;      // of this user alone, and so is
  std::string memory;
  io::Descriptor root;   // O_PATH, of the backing, which a later mount does not hide
  ino_t inode = 0;       // its
  uint64_t born_ns = 0;  // when the inode was made; 0: its file system does not say
};

// Unmounts what a killed server has left over them. Makes buffer and memory.
Result<JobFolders> find_job_folders(const JobMountOptions& options);

// The one server of this buffer, until the descriptor is closed or the process has ended; also one that is
// stopped.
Result<io::Descriptor> lock_buffer(const JobFolders& folders);

// The job that the buffer is of, which was killed or kept; "": none.
Result<std::string> read_served_job(io::Device& device, const JobFolders& folders);
Status write_served_job(io::Device& device, const JobFolders& folders, const std::string& job);

// All has come to the backing, or was given up.
void remove_job_folders(const JobFolders& folders, const JobMountOptions& options);

bool is_in_memory(const std::string& folder);

}  // namespace swale::fuse
