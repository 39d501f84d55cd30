// Swale for C++: the metadata store (swale_meta.h, which says what each call promises).
//
//   swale::Job job;
//   swale::MetaStore store(job, "out/index", SWALE_CREATE);
//   swale::MetaFile file = store.open_file("checkpoint", SWALE_CREATE);
//   file.put({{offset, length, address, log, 0}});
//   const auto found = file.get({{offset, length}});
//   for (const swale_meta_segment& segment : found[0]) use(segment);
//   file.close();
//   store.close();
//   job.close();
//
// Errors, threads and bytes are as in swale.hpp. A MetaStore outlives its files.
#ifndef SWALE_SWALE_META_HPP_
#define SWALE_SWALE_META_HPP_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "swale/swale.hpp"
#include "swale/swale_meta.h"

namespace swale {

// A file of a MetaStore, as one caller has it open; used by one thread at a time.
class MetaFile {
 public:
  // Takes the handle over.
  explicit MetaFile(swale_meta_file* handle) : handle_(handle) {}
  // The moved-from object owns nothing.
  MetaFile(MetaFile&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  // Swaps.
  MetaFile& operator=(MetaFile&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~MetaFile() { swale_meta_file_close(handle_); }

  // Puts segments, in their order: durable, and seen by every later get, when it returns.
  void put(const std::vector<swale_meta_segment>& segments) {
    detail::check(swale_meta_put(handle_, segments.data(), segments.size()));
  }
  // The segments of each range, ascending, cut to the range; holes are left out.
  std::vector<std::vector<swale_meta_segment>> get(const std::vector<swale_meta_range>& ranges) const {
    swale_meta_found* found = nullptr;
    detail::check(swale_meta_get(handle_, ranges.data(), ranges.size(), &found));
    const Found owner{found};
    std::vector<std::vector<swale_meta_segment>> all(ranges.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const swale_meta_segment* segments = nullptr;
      std::size_t count = 0;
      detail::check(swale_meta_found_at(found, i, &segments, &count));
      all[i].assign(segments, segments + count);
    }
    return all;
  }
  // The runs that answer each query, in no order.
  std::vector<std::vector<swale_meta_run>> get_runs(const std::vector<swale_meta_run>& queries) const {
    swale_meta_found_runs* found = nullptr;
    detail::check(swale_meta_get_runs(handle_, queries.data(), queries.size(), &found));
    const FoundRuns owner{found};
    std::vector<std::vector<swale_meta_run>> all(queries.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const swale_meta_run* runs = nullptr;
      std::size_t count = 0;
      detail::check(swale_meta_found_runs_at(found, i, &runs, &count));
      all[i].assign(runs, runs + count);
    }
    return all;
  }
  // bool fn(const swale_meta_segment&) for each segment from `offset` on, ascending; false stops. Passes on
  // fn's exceptions.
  template <class Fn>
  void scan(std::uint64_t offset, Fn&& fn) const {
    SegmentCallback<Fn> callback{{fn}};
    callback.finish(swale_meta_scan(handle_, offset, callback.call, &callback));
  }
  // Cuts the file, or extends it by a hole.
  void truncate(std::uint64_t size) { detail::check(swale_meta_truncate(handle_, size)); }
  // Makes the file immutable.
  void seal() { detail::check(swale_meta_seal(handle_)); }
  // Tells the store the end of this handle's puts.
  void close() { detail::check(swale_meta_file_close(std::exchange(handle_, nullptr))); }
  // Still owned by this object.
  swale_meta_file* handle() const { return handle_; }

 private:
  struct Found {
    swale_meta_found* handle;
    ~Found() { swale_meta_found_free(handle); }
  };
  struct FoundRuns {
    swale_meta_found_runs* handle;
    ~FoundRuns() { swale_meta_found_runs_free(handle); }
  };
  template <class Fn>
  struct SegmentCallback : detail::Carrier<Fn> {
    static int call(void* context, const swale_meta_segment* segment) {
      return static_cast<SegmentCallback*>(context)->template carry<const swale_meta_segment&>(*segment);
    }
  };

  swale_meta_file* handle_ = nullptr;
};

// A metadata store, open on this rank. The Job must stay open until it is closed.
class MetaStore {
 public:
  // [collective] `flags`: swale_open_flags.
  MetaStore(Job& job, const std::string& path, int flags = 0, const std::string& options = {}) {
    detail::check(swale_meta_open(job.handle(), path.c_str(), flags, options.c_str(), &handle_));
  }
  // The moved-from object owns nothing.
  MetaStore(MetaStore&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  // Swaps.
  MetaStore& operator=(MetaStore&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~MetaStore() { swale_meta_close(handle_); }

  // Opens a file by its name.
  MetaFile open_file(const std::string& name, int flags = 0, std::uint32_t mode = 0644) {
    swale_meta_file* file = nullptr;
    detail::check(swale_meta_file_open(handle_, name.c_str(), flags, mode, &file));
    return MetaFile(file);
  }
  // The attributes of a file by its name.
  swale_attributes stat(const std::string& name) const {
    return detail::attributes_by(
        [&](swale_attributes* out) { return swale_meta_stat(handle_, name.c_str(), out); });
  }
  // Removes a file and everything put into it.
  void remove(const std::string& name) { detail::check(swale_meta_remove(handle_, name.c_str())); }
  // Bytes [begin, end) of log `from` are in log `to` at `address` from now on, in all files.
  void relocate(std::uint32_t from, std::uint64_t begin, std::uint64_t end, std::uint32_t to,
                std::uint64_t address) {
    detail::check(swale_meta_relocate(handle_, from, begin, end, to, address));
  }
  // What the servers have done, and how they stand, merged over them.
  std::vector<Stat> stats() const {
    swale_stats* found = nullptr;
    detail::check(swale_meta_stats(handle_, &found));
    return detail::take_stats(found);
  }
  // [collective] Close the files first.
  void close() { detail::check(swale_meta_close(std::exchange(handle_, nullptr))); }
  // Still owned by this object.
  swale_meta* handle() const { return handle_; }

 private:
  swale_meta* handle_ = nullptr;
};

}  // namespace swale

#endif  // SWALE_SWALE_META_HPP_
