// Swale for C++: files behind I/O servers (swale_iond.h, which says what each call promises).
//
//   swale::Job job;
//   swale::IoServers servers(job);
//   swale::IoFile file = servers.open_file("field", SWALE_CREATE);
//   file.write(offset, bytes);
//   file.close();
//   servers.close();
//   job.close();
//
// Errors, threads and bytes are as in swale.hpp. The IoServers outlive their files.
#ifndef SWALE_SWALE_IOND_HPP_
#define SWALE_SWALE_IOND_HPP_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "swale/swale.hpp"
#include "swale/swale_iond.h"

namespace swale {

namespace detail {

// Carries the entries of a directory.
template <class Fn>
struct EntryCallback : Carrier<Fn> {
  static int call(void* context, const char* name, int kind) {
    return static_cast<EntryCallback*>(context)->carry(name, kind);
  }
};

}  // namespace detail

// What is in a directory of the I/O servers.
struct IoEntry {
  std::string name;
  int kind = 0;  // enum swale_iond_kind
};

// An open file, striped over the I/O servers.
class IoFile {
 public:
  // Takes the handle over.
  explicit IoFile(swale_iond_file* handle) : handle_(handle) {}
  // The moved-from object owns nothing.
  IoFile(IoFile&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  // Swaps.
  IoFile& operator=(IoFile&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~IoFile() { swale_iond_file_close(handle_); }

  // Writes all bytes at `offset`.
  void write(std::uint64_t offset, std::string_view data) {
    detail::check(swale_iond_write(handle_, offset, data.data(), data.size()));
  }
  // Reads into the caller's memory; returns how many bytes, fewer only at the end of the file.
  std::size_t read(std::uint64_t offset, void* data, std::size_t bytes) const {
    std::size_t got = 0;
    detail::check(swale_iond_read(handle_, offset, data, bytes, &got));
    return got;
  }
  // The same as a string.
  std::string read(std::uint64_t offset, std::size_t bytes) const {
    std::string data(bytes, '\0');
    data.resize(read(offset, data.data(), bytes));
    return data;
  }
  // Cuts the file, or extends it by a hole.
  void truncate(std::uint64_t size) { detail::check(swale_iond_truncate(handle_, size)); }
  // Returns when all that was written survives a loss of power on every server.
  void sync() { detail::check(swale_iond_sync(handle_)); }
  // Size, mode and times.
  swale_attributes stat() const {
    return detail::attributes_by([&](swale_attributes* out) { return swale_iond_file_stat(handle_, out); });
  }
  // Throws if a write that had succeeded was lost later.
  void close() { detail::check(swale_iond_file_close(std::exchange(handle_, nullptr))); }
  // Still owned by this object.
  swale_iond_file* handle() const { return handle_; }

 private:
  swale_iond_file* handle_ = nullptr;
};

// The I/O servers of a job, as this rank uses them. The Job must stay open until they are closed.
class IoServers {
 public:
  // [collective, with the servers]
  explicit IoServers(Job& job, const std::string& options = {}) {
    detail::check(swale_iond_open(job.handle(), 0, options.c_str(), &handle_));
  }
  // The moved-from object owns nothing.
  IoServers(IoServers&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  // Swaps.
  IoServers& operator=(IoServers&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~IoServers() { swale_iond_close(handle_); }

  // Opens a file by its path on the servers.
  IoFile open_file(const std::string& name, int flags = 0, std::uint32_t mode = 0644) {
    swale_iond_file* file = nullptr;
    detail::check(swale_iond_file_open(handle_, name.c_str(), flags, mode, &file));
    return IoFile(file);
  }
  // The attributes of a file or directory by its name.
  swale_attributes stat(const std::string& name) const {
    return detail::attributes_by(
        [&](swale_attributes* out) { return swale_iond_stat(handle_, name.c_str(), out); });
  }
  // Removes a file.
  void remove(const std::string& name) { detail::check(swale_iond_remove(handle_, name.c_str())); }
  // Renames a file or a directory, and replaces what had the new name.
  void rename(const std::string& from, const std::string& to) {
    detail::check(swale_iond_rename(handle_, from.c_str(), to.c_str()));
  }
  // Makes a directory.
  void mkdir(const std::string& name, std::uint32_t mode = 0755) {
    detail::check(swale_iond_mkdir(handle_, name.c_str(), mode));
  }
  // Removes an empty directory.
  void rmdir(const std::string& name) { detail::check(swale_iond_rmdir(handle_, name.c_str())); }
  // What is in a directory, in the order of the names' bytes; "": the top one.
  std::vector<IoEntry> list(const std::string& name = {}) const {
    std::vector<IoEntry> entries;
    const auto take = [&entries](const char* entry, int kind) {
      entries.push_back({entry, kind});
      return true;
    };
    detail::EntryCallback<decltype(take)> callback{{take}};
    callback.finish(swale_iond_list(handle_, name.c_str(), callback.call, &callback));
    return entries;
  }
  // Sets the permission bits of a file or directory.
  void set_mode(const std::string& name, std::uint32_t mode) {
    detail::check(swale_iond_set_mode(handle_, name.c_str(), mode));
  }
  // Sets when a file or directory was modified, in ns since 1970.
  void set_modified(const std::string& name, std::int64_t modified_ns) {
    detail::check(swale_iond_set_modified(handle_, name.c_str(), modified_ns));
  }
  // Returns when every server has written everything to its slow storage.
  void drain() { detail::check(swale_iond_drain(handle_)); }
  // What the servers have done, and how they stand, merged over them.
  std::vector<Stat> stats() const {
    swale_stats* found = nullptr;
    detail::check(swale_iond_stats(handle_, &found));
    return detail::take_stats(found);
  }
  // [collective, with the servers, which then end]
  void close() { detail::check(swale_iond_close(std::exchange(handle_, nullptr))); }
  // Still owned by this object.
  swale_iond* handle() const { return handle_; }

 private:
  swale_iond* handle_ = nullptr;
};

}  // namespace swale

#endif  // SWALE_SWALE_IOND_HPP_
