// PosixFile: one file of a PosixDevice, with up to two descriptors: one through the page cache, and, after
// prefer_direct if the file system supports it, one that bypasses the cache (O_DIRECT).
//
// A transfer uses the direct descriptor if its offset, length and memory are multiples of the alignment, and
// else the other one. The alignment of reads is direct_alignment(): what the kernel requires (statx; 512 on
// most disks), or 4,096 if the kernel does not tell. Writes need at least 4,096. Linux keeps the two
// descriptors coherent for transfers that follow one another: a direct write drops the pages that it covers,
// and the kernel writes dirty pages before a direct read. Transfers in flight together must not overlap, as
// File says.
//
// A file system may open a direct descriptor and then refuse transfers with EINVAL: then this transfer and
// all later ones go through the page cache.
//
// Threads: as File says; call prefer_direct before the file is shared between threads.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "io/descriptor.h"
#include "io/device.h"
#include "io/posix_device.h"
#include "io/posix_room.h"

namespace swale::io {

class PosixFile final : public File {
 public:
  enum class Access { kRead, kWrite };

  PosixFile(Descriptor fd, PosixPath place, std::string path, OpenMode mode, PosixOptions::Direct direct,
            std::shared_ptr<PosixRooms> rooms)
      : fd_(std::move(fd)),
        place_(std::move(place)),
        path_(std::move(path)),
        mode_(mode),
        policy_(direct),
        rooms_(std::move(rooms)) {
    room_.fd = fd_.get();
  }
  ~PosixFile() override { rooms_->forget(room_); }

  Result<size_t> pread(uint64_t offset, MutableBytes out) override;
  void read_many(std::span<ReadRequest> requests) override;
  bool read_resident(uint64_t offset, MutableBytes out) override;
  void announce(uint64_t offset, uint64_t bytes) override;
  Status pwrite(uint64_t offset, Bytes data) override;
  Status sync() override;
  Result<uint64_t> size() override;
  Status truncate(uint64_t size) override;
  uint64_t next_data(uint64_t offset) override;
  void discard(uint64_t offset, uint64_t bytes) override;
  void prefer_direct() override;
  size_t direct_alignment() const override;
  void reserve(uint64_t end) override { rooms_->reserve(room_, end, path_); }
  bool give_back() override { return rooms_->give_back(); }
  const std::string& path() const override { return path_; }

  // Opens the direct descriptor; a failure says why it cannot.
  Status open_direct();

  // The calls below are for UringQueue, which makes the system calls itself.

  struct Route {
    int fd;
    bool direct;
  };
  int descriptor() const override { return fd_.get(); }  // through the page cache
  Route route(Access access, uint64_t offset, const char* memory, size_t bytes) const;

  // Call after a write failed. True: space was freed, retry once.
  bool makes_space(int error_number) {
    return (error_number == ENOSPC || error_number == EDQUOT) && give_back();
  }

  // Call after a transfer of the direct descriptor failed. True: retry through the page cache.
  bool gives_up_direct(int error_number);

  Status failure(Access access, int error_number, uint64_t offset, size_t bytes) const;
  Status sync_failure(int error_number) const;

 private:
  const Descriptor fd_;
  Descriptor direct_;
  size_t read_alignment_ = 0;
  size_t write_alignment_ = 0;
  std::atomic<bool> direct_usable_{false};
  const PosixPath place_;                   // where open found it
  const std::string path_;                  // as the caller named it
  std::atomic<bool> tells_resident_{true};  // until the file system refuses RWF_NOWAIT
  const OpenMode mode_;
  const PosixOptions::Direct policy_;
  const std::shared_ptr<PosixRooms> rooms_;
  PosixRoom room_;
};

int open_flags(OpenMode mode);

}  // namespace swale::io
