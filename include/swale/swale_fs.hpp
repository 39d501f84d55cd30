// Swale for C++: files of a job's tree (swale_fs.h, which says what each call promises).
//
//   swale::FsFile file("results/field", SWALE_CREATE);
//   file.write_many(offset, stride, records, record_bytes, count);
//   file.commit();
//   file.close();
//
// Errors, threads and bytes are as in swale.hpp.
#ifndef SWALE_SWALE_FS_HPP_
#define SWALE_SWALE_FS_HPP_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "swale/swale.hpp"
#include "swale/swale_fs.h"

namespace swale {

namespace detail {

// Carries the entries of a directory of a tree.
template <class Fn>
struct FsEntryCallback : Carrier<Fn> {
  static int call(void* context, const char* name, int kind) {
    return static_cast<FsEntryCallback*>(context)->carry(name, kind);
  }
};

}  // namespace detail

// What is in a directory of a tree.
struct FsEntry {
  std::string name;
  int kind = 0;  // enum swale_fs_kind
};

// A file of a job's tree, open in this process.
class FsFile {
 public:
  // `flags`: swale_open_flags and swale_fs_flags.
  explicit FsFile(const std::string& path, int flags = 0, std::uint32_t mode = 0644) {
    detail::check(swale_fs_open(path.c_str(), flags, mode, &handle_));
  }
  // The moved-from object owns nothing.
  FsFile(FsFile&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  // Swaps.
  FsFile& operator=(FsFile&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~FsFile() { swale_fs_close(handle_); }

  // Writes all bytes at `offset`.
  void write_at(std::uint64_t offset, std::string_view data) {
    detail::check(swale_fs_pwrite(handle_, offset, data.data(), data.size()));
  }
  // The same of parts, one behind the other in the file.
  void write_at(std::uint64_t offset, const std::vector<std::string_view>& parts) {
    std::vector<swale_fs_part> given;
    given.reserve(parts.size());
    for (const std::string_view part : parts) given.push_back({part.data(), part.size()});
    detail::check(swale_fs_pwritev(handle_, offset, given.data(), given.size()));
  }
  // Writes `count` records at `offset`, `offset` + `stride` and so on.
  void write_many(std::uint64_t offset, std::uint64_t stride, const void* data, std::size_t record_bytes,
                  std::size_t count) {
    detail::check(swale_fs_write_many(handle_, offset, stride, data, record_bytes, count));
  }
  // Writes behind what this call has written before, or at the end of the file (SWALE_FS_APPEND).
  void write(std::string_view data) { detail::check(swale_fs_write(handle_, data.data(), data.size())); }
  // Reads into the caller's memory; returns how many bytes, fewer only at the end of the file.
  std::size_t read_at(std::uint64_t offset, void* data, std::size_t bytes) const {
    std::size_t got = 0;
    detail::check(swale_fs_pread(handle_, offset, data, bytes, &got));
    return got;
  }
  // The same into places that are filled one after the other.
  std::size_t read_at(std::uint64_t offset, const std::vector<swale_fs_space>& parts) const {
    std::size_t got = 0;
    detail::check(swale_fs_preadv(handle_, offset, parts.data(), parts.size(), &got));
    return got;
  }
  // The same as a string.
  std::string read_at(std::uint64_t offset, std::size_t bytes) const {
    std::string data(bytes, '\0');
    data.resize(read_at(offset, data.data(), bytes));
    return data;
  }
  // Returns when reads on all nodes see what this node has written.
  void commit() { detail::check(swale_fs_commit(handle_)); }
  // The same, and it is durable.
  void sync() { detail::check(swale_fs_sync(handle_)); }
  // Cuts the file, or extends it by a hole.
  void truncate(std::uint64_t size) { detail::check(swale_fs_truncate(handle_, size)); }
  // Size, mode and times.
  swale_attributes stat() const {
    return detail::attributes_by([&](swale_attributes* out) { return swale_fs_stat(handle_, out); });
  }
  // Whether writes go to the log now.
  bool writes_by_log() const {
    int by_log = 0;
    detail::check(swale_fs_writes_by_log(handle_, &by_log));
    return by_log != 0;
  }
  // Commits.
  void close() { detail::check(swale_fs_close(std::exchange(handle_, nullptr))); }
  // Still owned by this object.
  swale_fs_file* handle() const { return handle_; }

 private:
  swale_fs_file* handle_ = nullptr;
};

// Makes the bytes of a file immutable, after all writers have closed it.
inline void fs_seal(const std::string& path) { detail::check(swale_fs_seal(path.c_str())); }
// Lets its owner write it again.
inline void fs_unseal(const std::string& path) { detail::check(swale_fs_unseal(path.c_str())); }

// Attributes of what a path leads to.
inline swale_attributes fs_stat(const std::string& path) {
  return detail::attributes_by([&](swale_attributes* out) { return swale_fs_stat_path(path.c_str(), out); });
}
// Makes a directory.
inline void fs_mkdir(const std::string& path, std::uint32_t mode = 0755) {
  detail::check(swale_fs_mkdir(path.c_str(), mode));
}
// Removes an empty directory.
inline void fs_rmdir(const std::string& path) { detail::check(swale_fs_rmdir(path.c_str())); }
// Removes a file or a link.
inline void fs_remove(const std::string& path) { detail::check(swale_fs_remove(path.c_str())); }
// Renames within a tree, and replaces what has the new name.
inline void fs_rename(const std::string& from, const std::string& to) {
  detail::check(swale_fs_rename(from.c_str(), to.c_str()));
}
// What is in a directory, in no order.
inline std::vector<FsEntry> fs_list(const std::string& path) {
  std::vector<FsEntry> entries;
  const auto take = [&entries](const char* name, int kind) {
    entries.push_back({name, kind});
    return true;
  };
  detail::FsEntryCallback<decltype(take)> callback{{take}};
  callback.finish(swale_fs_list(path.c_str(), callback.call, &callback));
  return entries;
}

}  // namespace swale

#endif  // SWALE_SWALE_FS_HPP_
