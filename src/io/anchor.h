// Anchor: a directory that a device keeps open (Device::anchored), with the path by which callers name it.
//
// Anchors form a chain: a device that is anchored twice tries the newest anchor first. A path below no anchor
// is resolved from the root of the device.
//
// Threads: immutable.
#pragma once

#include <memory>
#include <string>
#include <utility>

namespace swale::io {

template <class Directory>
struct Anchor {
  std::string path;     // as the caller gave it, without trailing slashes
  Directory directory;  // what it was at that time
  std::shared_ptr<const Anchor> outer;
};

template <class Directory>
struct AnchoredPath {
  std::shared_ptr<const Anchor<Directory>> anchor;  // null: none
  std::string rest;  // never absolute with an anchor; "." for the anchor's directory itself
};

inline std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Is `path` the directory or below it, by its text alone?
inline bool is_in(const std::string& path, const std::string& directory) {
  if (path.compare(0, directory.size(), directory) != 0) return false;
  return path.size() == directory.size() || directory.back() == '/' || path[directory.size()] == '/';
}

template <class Directory>
AnchoredPath<Directory> resolve(std::shared_ptr<const Anchor<Directory>> anchor, const std::string& path) {
  while (anchor && !is_in(path, anchor->path)) anchor = anchor->outer;
  if (!anchor) return {nullptr, path};
  const size_t begin = path.find_first_not_of('/', anchor->path.size());
  return {std::move(anchor), begin == std::string::npos ? "." : path.substr(begin)};
}

}  // namespace swale::io
