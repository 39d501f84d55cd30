// Shared memory that the ranks of a test program leave behind, and nobody else's: other jobs of the machine
// use UCX and /dev/shm as well.
//
// Where the kernel allows it (root, or user namespaces), the program gets a /dev/shm and System V segments of
// its own (isolate_shared_memory), which its ranks inherit: everything in there is theirs. Elsewhere only
// memory counts that one of the program's processes was seen to map (note_shared_memory_of), or a segment
// that one of them has made.
// Threads: isolate_shared_memory before the program starts any; the others may be called by several.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <set>
#include <string>

namespace swale::test {

// Once, at the program's start. False: the kernel refuses; what `why` says.
bool isolate_shared_memory(std::string* why);

// `pid` is one of the program's processes. What it maps of /dev/shm now counts from now on.
void note_shared_memory_of(pid_t pid);

// Files in /dev/shm that are the program's, mapped or not.
std::set<std::string> shared_memory_files();
// Files in /dev/shm and System V segments (by number) that are the program's and that no living process has
// mapped.
std::set<std::string> shared_memory_left();

// isolate_shared_memory before the first test of a program, which gives it to
// testing::AddGlobalTestEnvironment.
class OwnSharedMemory : public testing::Environment {
 public:
  void SetUp() override;
};

// For canaries: a file of this name in the /dev/shm that the machine's other jobs use; it goes with the
// object.
class NeighboursSharedMemory {
 public:
  explicit NeighboursSharedMemory(std::string name);
  ~NeighboursSharedMemory();
  NeighboursSharedMemory(const NeighboursSharedMemory&) = delete;
  NeighboursSharedMemory& operator=(const NeighboursSharedMemory&) = delete;

 private:
  const std::string name_;
};

}  // namespace swale::test
