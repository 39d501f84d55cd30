#include "io/mapping.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <new>

namespace swale::io {
namespace {

// Missing from some versions of <linux/magic.h>.
constexpr uint64_t kXfsMagic = 0x58465342;
constexpr uint64_t kZfsMagic = 0x2fc12fc1;
constexpr uint64_t kBcachefsMagic = 0xca451a4e;

// To all other processes mincore reports every page as resident.
bool sees_residency(int fd, const std::string& path) {
  struct stat attributes;
  if (::fstat(fd, &attributes) != 0) return false;
  const uid_t user = ::geteuid();
  return user == 0 || user == attributes.st_uid || ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
}

void* map_pages(uint64_t bytes, int flags, int protection, int fd) {
  void* const pages = ::mmap(nullptr, bytes, protection, flags, fd, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

}  // namespace

bool on_local_file_system(const File& file) {
  const int fd = file.descriptor();
  struct statfs file_system;
  if (fd < 0 || ::fstatfs(fd, &file_system) != 0) return false;
  constexpr std::array<uint64_t, 8> kLocal = {EXT4_SUPER_MAGIC,      kXfsMagic,     BTRFS_SUPER_MAGIC,
                                              F2FS_SUPER_MAGIC,      TMPFS_MAGIC,   kZfsMagic,
                                              OVERLAYFS_SUPER_MAGIC, kBcachefsMagic};
  const auto magic = static_cast<uint64_t>(file_system.f_type) & 0xffffffff;
  return std::find(kLocal.begin(), kLocal.end(), magic) != kLocal.end();
}

std::unique_ptr<Mapping> Mapping::map(const File& file, uint64_t bytes) {
  const int fd = file.descriptor();
  if (fd < 0 || bytes == 0 || ::sysconf(_SC_PAGESIZE) != static_cast<long>(kPageBytes)) return nullptr;
  if (!on_local_file_system(file) || !sees_residency(fd, file.path())) return nullptr;
  const size_t region_count = bytes / kRegionBytes + 1;
  void* const data = map_pages(bytes, MAP_SHARED, PROT_READ, fd);
  if (data == nullptr) return nullptr;
  void* const regions =
      map_pages(region_count * sizeof(Region), MAP_PRIVATE | MAP_ANONYMOUS, PROT_READ | PROT_WRITE, -1);
  if (regions == nullptr) {
    ::munmap(data, bytes);
    return nullptr;
  }
  ::madvise(data, bytes, MADV_RANDOM);  // advice
  std::unique_ptr<Mapping> mapping(new (std::nothrow) Mapping(
      static_cast<const char*>(data), bytes, static_cast<Region*>(regions), region_count, file.residency()));
  if (!mapping) {
    ::munmap(data, bytes);
    ::munmap(regions, region_count * sizeof(Region));
  }
  return mapping;
}

Mapping::~Mapping() {
  ::munmap(const_cast<char*>(data_), bytes_);
  ::munmap(static_cast<void*>(regions_), region_count_ * sizeof(Region));
}

uint32_t Mapping::look(uint64_t region, Nanos now) const {
  unsigned char present[kRegionPages] = {};
  const uint64_t begin = region * kRegionBytes;
  looks_.fetch_add(1, std::memory_order_relaxed);
  looked_at_.store(now, std::memory_order_relaxed);
  if (residency_) {
    residency_(begin, present);
  } else {
    // A failure leaves zeros (not resident): then the caller reads.
    static_cast<void>(::mincore(const_cast<char*>(data_) + begin,
                                std::min<uint64_t>(kRegionBytes, bytes_ - begin), present));
  }
  uint32_t pages = 0;
  for (size_t i = 0; i < kRegionPages; ++i) pages |= static_cast<uint32_t>(present[i] & 1) << i;
  regions_[region].store(uint64_t{stamp_of(now)} << 32 | pages, std::memory_order_relaxed);
  return pages;
}

bool Mapping::still_there(uint64_t region, Nanos now) const {
  const auto before = static_cast<uint32_t>(regions_[region].load(std::memory_order_relaxed));
  if ((before & ~look(region, now)) == 0) return true;
  generation_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

}  // namespace swale::io
