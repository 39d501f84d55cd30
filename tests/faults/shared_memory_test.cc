// The look at shared memory notices what is left and nothing of others; part of the program that kills ranks.
#include "base/testing/test_shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

namespace swale::faults::shared_memory_test {
namespace {

const testing::Environment* const own_shared_memory =
    testing::AddGlobalTestEnvironment(new test::OwnSharedMemory);

TEST(SharedMemoryCanary, SharedMemoryThatStaysIsNoticed) {
  const std::string name = fmt::format("/swale_canary_{}", ::getpid());
  const int file = ::shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::ftruncate(file, 4096), 0);
  void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ASSERT_NE(memory, MAP_FAILED);
  test::note_shared_memory_of(::getpid());
  EXPECT_FALSE(test::shared_memory_left().contains("/dev/shm" + name)) << "it is mapped";
  ::munmap(memory, 4096);
  ::close(file);
  EXPECT_TRUE(test::shared_memory_left().contains("/dev/shm" + name));
  ::shm_unlink(name.c_str());
  EXPECT_FALSE(test::shared_memory_left().contains("/dev/shm" + name));
}

TEST(SharedMemoryCanary, ASegmentThatStaysIsNoticed) {
  const key_t key = ::getpid();
  int id = -1;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(::shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0600) < 0 ? 1 : 0);
  test::note_shared_memory_of(child);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_GE(id = ::shmget(key, 0, 0), 0);
  EXPECT_TRUE(test::shared_memory_left().contains(fmt::format("segment {}", id)));
  ::shmctl(id, IPC_RMID, nullptr);
  EXPECT_FALSE(test::shared_memory_left().contains(fmt::format("segment {}", id)));
}

// Another job of the machine, which has died and left its memory behind, while this test runs.
TEST(SharedMemoryCanary, SharedMemoryOfANeighbourIsNotCounted) {
  const std::set<std::string> before = test::shared_memory_left();
  const test::NeighboursSharedMemory neighbour(fmt::format("ucx_shm_posix_swale_neighbour_{}", ::getpid()));
  EXPECT_EQ(test::shared_memory_left(), before);
}

}  // namespace
}  // namespace swale::faults::shared_memory_test
