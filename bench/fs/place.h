// Place: a directory where programs write: plain, on a pass-through mount that does nothing, or the tree of a
// job (run_job_mount); and what several processes need there at the same time.
//
// Threads: one. A mount is served by a child, which ends with its Place or with this program. Errors: die().
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "bench/processes.h"

namespace swale::bench {

inline constexpr uint64_t kRecord = 47'008;
inline constexpr uint64_t kProcesses = 8;

class Place {
 public:
  enum class Kind { kPlain, kPassthrough, kSpliced, kTree };
  // `directory` is made. Of a tree: the folder that becomes its buffer, and the memory of its logs.
  Place(Kind kind, const std::string& directory, const std::string& buffer = {}, uint64_t memory = 0);
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  int open(const std::string& name, int flags) const;
  // All is on the backing, and synced: the seconds that this took.
  double settle() const;
  double server_cpu_s() const;

 private:
  const Kind kind_;
  const std::string directory_;
  pid_t server_ = 0;
};

void write_all(int file, const char* data, uint64_t bytes, uint64_t offset);

struct Took {
  double write_s = 0;   // until the last process has written
  double all_s = 0;     // and synced, and closed
  double cpu_s = 0;     // of all processes, the server's included
  double settle_s = 0;  // then, until all was on the backing
};

// Runs `work(process, written)` in each process at the same time; it calls written() before it syncs.
Took together(const Place& place, uint64_t processes,
              const std::function<void(uint64_t, const std::function<void()>&)>& work,
              Written then = Written::kGoesOn);

// kProcesses write records of kRecord bytes with an fsync each, `mib` in all: one shared file, strided, or a
// file each. Then the place is settled, and the files are removed.
enum class Files { kShared, kOwn };
Took write_records(const Place& place, uint64_t mib, Files files, Written then = Written::kGoesOn);

}  // namespace swale::bench
