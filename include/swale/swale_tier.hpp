// Swale for C++: a tiered write buffer (swale_tier.h, which says what each call promises).
//
//   swale::Tier tier("results", "/ssd/buffer", SWALE_CREATE, "tier.size=64M");
//   swale::TierFile file = tier.open_file("field", SWALE_CREATE);
//   file.write(offset, bytes);
//   file.sync();
//   file.close();
//   tier.drain();
//   tier.close();
//
// Errors, threads and bytes are as in swale.hpp. A Tier outlives its files.
#ifndef SWALE_SWALE_TIER_HPP_
#define SWALE_SWALE_TIER_HPP_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "swale/swale.hpp"
#include "swale/swale_tier.h"

namespace swale {

// An open file of a Tier.
class TierFile {
 public:
  // Takes the handle over.
  explicit TierFile(swale_tier_file* handle) : handle_(handle) {}
  // The moved-from object owns nothing.
  TierFile(TierFile&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  // Swaps.
  TierFile& operator=(TierFile&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~TierFile() { swale_tier_file_close(handle_); }

  // Writes all bytes at `offset`.
  void write(std::uint64_t offset, std::string_view data) {
    detail::check(swale_tier_write(handle_, offset, data.data(), data.size()));
  }
  // Reads into the caller's memory; returns how many bytes, fewer only at the end of the file.
  std::size_t read(std::uint64_t offset, void* data, std::size_t bytes) const {
    std::size_t got = 0;
    detail::check(swale_tier_read(handle_, offset, data, bytes, &got));
    return got;
  }
  // The same as a string.
  std::string read(std::uint64_t offset, std::size_t bytes) const {
    std::string data(bytes, '\0');
    data.resize(read(offset, data.data(), bytes));
    return data;
  }
  // Cuts the file, or extends it by a hole.
  void truncate(std::uint64_t size) { detail::check(swale_tier_truncate(handle_, size)); }
  // Returns when all that was written survives a loss of power.
  void sync() { detail::check(swale_tier_sync(handle_)); }
  // Size, mode and times.
  swale_attributes stat() const {
    return detail::attributes_by([&](swale_attributes* out) { return swale_tier_file_stat(handle_, out); });
  }
  // Throws if a write that had succeeded was lost later.
  void close() { detail::check(swale_tier_file_close(std::exchange(handle_, nullptr))); }
  // Still owned by this object.
  swale_tier_file* handle() const { return handle_; }

 private:
  swale_tier_file* handle_ = nullptr;
};

// A tiered write buffer, open in this process.
class Tier {
 public:
  // The files in `backing`, with the log in `ssd`. `flags`: swale_open_flags.
  Tier(const std::string& backing, const std::string& ssd, int flags = 0, const std::string& options = {}) {
    detail::check(swale_tier_open(backing.c_str(), ssd.c_str(), flags, options.c_str(), &handle_));
  }
  // The moved-from object owns nothing.
  Tier(Tier&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  // Swaps.
  Tier& operator=(Tier&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tier() { swale_tier_close(handle_); }

  // Opens a file by its path in the backing directory.
  TierFile open_file(const std::string& name, int flags = 0, std::uint32_t mode = 0644) {
    swale_tier_file* file = nullptr;
    detail::check(swale_tier_file_open(handle_, name.c_str(), flags, mode, &file));
    return TierFile(file);
  }
  // The attributes of a file by its name.
  swale_attributes stat(const std::string& name) const {
    return detail::attributes_by(
        [&](swale_attributes* out) { return swale_tier_stat(handle_, name.c_str(), out); });
  }
  // Removes a file.
  void remove(const std::string& name) { detail::check(swale_tier_remove(handle_, name.c_str())); }
  // Renames a file, and replaces what had the new name.
  void rename(const std::string& from, const std::string& to) {
    detail::check(swale_tier_rename(handle_, from.c_str(), to.c_str()));
  }
  // Returns when everything is in the files of the backing directory.
  void drain() { detail::check(swale_tier_drain(handle_)); }
  // What is lost or kept aside now, a line each.
  std::vector<std::string> losses() const {
    std::vector<std::string> lines;
    const auto take = [&lines](const char* what) {
      lines.emplace_back(what);
      return true;
    };
    detail::TextCallback<decltype(take)> callback{{take}};
    callback.finish(swale_tier_losses(handle_, callback.call, &callback));
    return lines;
  }
  // What it has done, and how it stands.
  std::vector<Stat> stats() const {
    swale_stats* found = nullptr;
    detail::check(swale_tier_stats(handle_, &found));
    return detail::take_stats(found);
  }
  // What is in the log stays there.
  void close() { detail::check(swale_tier_close(std::exchange(handle_, nullptr))); }
  // Still owned by this object.
  swale_tier* handle() const { return handle_; }

 private:
  swale_tier* handle_ = nullptr;
};

}  // namespace swale

#endif  // SWALE_SWALE_TIER_HPP_
