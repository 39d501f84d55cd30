// NamedFiles: the files of a tier::Store by their names below its backing directory: opened, made, removed
// and renamed, with names and attributes as POSIX has them. Names lead nowhere else, and no link is followed
// (Beneath).
//
// Threads: any, but for one file's open and close. Errors: those of the store and of Beneath; each names the
// file. Limits: names of check_iond_name; files of at most 2^48 bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "iond/beneath.h"
#include "tier/store/store.h"

namespace swale::iond {

enum class FileKind { kFile, kDirectory, kSymlink };

// What a file is now. Times in ns since 1970; 0: the file system does not know.
struct FileAttributes {
  tier::FileKey key;
  FileKind kind = FileKind::kFile;
  uint64_t size = 0;
  uint32_t mode = 0;   // permission bits
  uint32_t links = 1;  // names
  int64_t created_ns = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;  // of the backing file system: a flush moves it, too
};

// Of a descriptor (O_PATH also) of a file of the store, of a directory or a symbolic link.
Result<FileAttributes> attributes_of(tier::Store& store, int fd);
// Of a file that is open, from what it was then.
FileAttributes attributes_now(tier::Store& store, FileAttributes at_open);

// The permission bits that a file or directory may have: its owner can use it, who is the server.
Status check_mode(std::string_view name, uint32_t mode, FileKind kind = FileKind::kFile);

class NamedFiles {
 public:
  // An open file.
  struct File {
    std::string name;
    tier::Store::Handle handle = 0;
    FileAttributes at_open;
    // Of a file that this open has made: where its name is, and whether a sync has still to make that
    // durable, too.
    Beneath::Place place;
    std::unique_ptr<std::atomic<bool>> name_unsynced;
  };
  enum Flags : uint32_t { kCreate = 1, kExclusive = 2 };

  // The store outlives this.
  static Result<NamedFiles> open(tier::Store* store, const std::string& backing_directory);

  Result<File> open_file(const std::string& name, uint32_t flags, uint32_t mode) const;
  // Tells of an acknowledged write that was lost. The file is closed in any case.
  Status close_file(File* file) const;
  Status write(const File& file, uint64_t offset, Bytes data) const;
  // Fewer bytes only at the end of the file.
  Result<size_t> read(const File& file, uint64_t offset, MutableBytes out) const;
  Status truncate(const File& file, uint64_t size) const;
  // The bytes, and the name that an open has made.
  Status sync(const File& file) const;
  FileAttributes stat(const File& file) const { return attributes_now(*store_, file.at_open); }
  Result<FileAttributes> stat(const std::string& name) const;
  Status remove(const std::string& name) const;
  Status rename(const std::string& from, const std::string& to) const;  // replaces `to`

 private:
  NamedFiles(tier::Store* store, Beneath root) : store_(store), root_(std::move(root)) {}
  Result<Beneath::Place> place_of(const std::string& name) const;
  void name_gone(const io::Descriptor& file) const;
  Status sync_name(const Beneath::Place& place) const;

  tier::Store* store_;
  Beneath root_;
};

}  // namespace swale::iond
