// PosixDevice: the operating system's file systems.
//
// Interrupted and short transfers are continued. Files are created with mode 0666 and directories with 0777,
// both less the user's umask; descriptors close on exec. read_many announces all its ranges first
// (POSIX_FADV_WILLNEED), so that the kernel reads them in parallel while the first is being copied. Transfers
// use or bypass the page cache as posix_file.h says; queues are io_uring rings or threads
// (uring_queue.h, thread_queue.h; docs/design/storage-io.md has the figures).
//
// Anchored devices (Device::anchored) hold a descriptor of the directory (O_PATH) and make the same calls
// relative to it; a plain device makes them relative to the working directory. The descriptor is closed with
// the last device or file that needs it.
//
// Below an anchor, and below the directory that the constructor names (`within`), other users' symbolic links
// are not followed (link_rule.h), or none are (PosixOptions::Links). The directory itself may be reached
// through any link.
//
// Threads: as Device says; its only state are its options, anchors and `within`.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/anchor.h"
#include "io/descriptor.h"
#include "io/device.h"
#include "io/io_queue.h"
#include "io/link_rule.h"
#include "io/posix_room.h"

namespace swale::io {

// A directory that a device keeps open.
struct PosixDirectory {
  Descriptor descriptor;
  bool is_private = false;  // so are the files in it (private_files.h)
};
using PosixAnchor = Anchor<PosixDirectory>;
using PosixPath = AnchoredPath<PosixDirectory>;  // the arguments of the ...at system calls

int directory_of(const PosixPath& path);  // AT_FDCWD without an anchor

struct PosixOptions {
  enum class Engine {
    kAuto,     // a ring if the kernel allows one, else threads
    kUring,    // make_queue fails if the kernel allows no ring
    kThreads,  // threads even if a ring is possible
  };
  enum class Direct {
    kAuto,    // File::prefer_direct has its effect where it can
    kNever,   // File::prefer_direct does nothing
    kAlways,  // every file is direct; open fails if the file system cannot do so
  };
  enum class Links {
    kTrusted,  // below an anchor, those that link_rule.h trusts
    kNone,     // below an anchor, none
  };
  Engine engine = Engine::kAuto;
  Direct direct = Direct::kAuto;
  Links links = Links::kTrusted;

  bool operator==(const PosixOptions&) const = default;
};

class PosixDevice : public Device {
 public:
  explicit PosixDevice(PosixOptions options = {}, const std::string& within = "")
      : options_(options), within_(without_trailing_slashes(within)) {}

  // The device that all users with these options share in this process. They share its StorageThread, and
  // when the disk is full, each frees the unused space of all. It is destroyed with its last user.
  static std::shared_ptr<PosixDevice> of_this_process(const PosixOptions& options);

  Result<std::unique_ptr<IoQueue>> make_queue(size_t depth) override;
  // Engine::kAuto: an AdvisedQueue for local file systems, the quickest there (docs/design/reader.md).
  Result<std::unique_ptr<IoQueue>> make_read_queue(size_t depth, const File& file) override;
  Result<std::unique_ptr<Device>> anchored(const std::string& directory) override;
  Result<std::unique_ptr<Device>> anchored_private(const std::string& directory) override;
  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) override;
  Status make_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_new(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  Result<bool> exists(const std::string& path) override;
  bool knows(const std::string& path) override;

 private:
  PosixDevice(const PosixDevice& outer, std::shared_ptr<const PosixAnchor> anchor)
      : options_(outer.options_), within_(outer.within_), rooms_(outer.rooms_), anchor_(std::move(anchor)) {}
  // Below `within`, and below no anchor. If nothing on the whole way to it is a link, as nearly always, the
  // path is opened in one system call, with no descriptor of `within`.
  bool is_within(const std::string& path) const;
  // Below `within`: its descriptor for this call, and the rest.
  Result<PosixPath> at(const std::string& path, const char* doing) const;
  LinksOf links(LinksOf trusted) const {
    return options_.links == PosixOptions::Links::kNone ? LinksOf::kNobody : trusted;
  }
  struct Name;
  Result<Name> name_of(const std::string& path, LinksOf trusted, const char* doing) const;
  Result<Descriptor> open_folder(const std::string& path, int flags, PosixPath* place,
                                 const char* doing) const;

  const PosixOptions options_;
  const std::string within_;  // without trailing slashes; empty: none
  // shared with files and anchored devices
  const std::shared_ptr<PosixRooms> rooms_ = std::make_shared<PosixRooms>();
  const std::shared_ptr<const PosixAnchor> anchor_;  // null: none
};

}  // namespace swale::io
