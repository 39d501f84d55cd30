#include "fs/testing/file_system_calls.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace swale::fs {

template <class Body>
int FileSystemCalls::with(const std::string& path, const Body& body) {
  Node* node = fs_.root();
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    Entry entry;
    const int failed = fs_.lookup(*node, path.substr(at, end - at).c_str(), &entry);
    if (node != fs_.root()) fs_.forget(node, 1);
    if (failed != 0) return failed;
    node = entry.node;
    at = end + 1;
    if (at < path.size() && !S_ISDIR(entry.attributes.st_mode)) {
      fs_.forget(node, 1);
      return ENOTDIR;
    }
  }
  const int answer = body(*node);
  if (node != fs_.root()) fs_.forget(node, 1);
  return answer;
}

template <class Body>
int FileSystemCalls::with_parent(const std::string& path, const Body& body) {
  const size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "" : path.substr(0, slash);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  return with(parent, [&](Node& node) {
    struct stat above;
    const int failed = fs_.attributes(node, &above);
    if (failed != 0) return failed;
    return S_ISDIR(above.st_mode) ? body(node, name.c_str()) : ENOTDIR;
  });
}

int FileSystemCalls::open(const std::string& path, int flags, mode_t mode, int* handle) {
  Opened opened;
  opened.flags = flags;
  Entry entry;
  const auto look_up_and_open = [&](Node& parent, const char* name) {
    const int missing = fs_.lookup(parent, name, &entry);
    if (missing == ENOENT && (flags & O_CREAT) != 0)
      return fs_.create(parent, name, mode, flags, caller_, &entry, &opened.file);
    if (missing != 0) return missing;
    const int refused = (flags & O_CREAT) != 0 && (flags & O_EXCL) != 0
                            ? EEXIST
                            : fs_.open_file(*entry.node, flags, caller_, &opened.file);
    if (refused != 0) fs_.forget(entry.node, 1);
    return refused;
  };
  int failed = with_parent(path, look_up_and_open);
  if (failed == ESTALE) failed = with_parent(path, look_up_and_open);  // as the kernel does, once
  if (failed != 0) return failed;
  opened.node = entry.node;
  *handle = next_++;
  files_[*handle] = std::move(opened);
  return 0;
}

int FileSystemCalls::close(int handle) {
  Opened opened = std::move(files_.at(handle));
  files_.erase(handle);
  const int told = fs_.flush(*opened.file);
  fs_.release(std::move(opened.file));
  fs_.forget(opened.node, 1);
  return told;
}

void FileSystemCalls::abandon(int handle) {
  Opened opened = std::move(files_.at(handle));
  files_.erase(handle);
  fs_.release(std::move(opened.file));
  fs_.forget(opened.node, 1);
}

int FileSystemCalls::write(int handle, uint64_t offset, Bytes data) {
  const Opened& opened = files_.at(handle);
  if ((opened.flags & O_APPEND) != 0) {
    struct stat now;
    if (const int failed = fs_.attributes(*opened.node, &now); failed != 0) return failed;
    offset = static_cast<uint64_t>(now.st_size);
  }
  return write_at(handle, offset, data);
}

int FileSystemCalls::write_at(int handle, uint64_t offset, Bytes data) {
  return fs_.write(*files_.at(handle).file, offset, data.size(), caller_,
                   [&data](MutableBytes out) -> Status {
                     std::memcpy(out.data(), data.data(), out.size());
                     data.remove_prefix(out.size());
                     return {};
                   });
}

int FileSystemCalls::read(int handle, uint64_t offset, size_t size, std::string* out) {
  out->resize(size);
  size_t got = 0;
  const int failed = fs_.read(*files_.at(handle).file, offset, *out, &got);
  out->resize(got);
  return failed;
}

int FileSystemCalls::resize(int handle, uint64_t size) {
  struct stat state;
  return fs_.change(*files_.at(handle).node, {.size = size, .size_by_handle = true}, caller_, &state);
}
int FileSystemCalls::truncate(const std::string& path, uint64_t size) {
  struct stat state;
  return with(path, [&](Node& node) { return fs_.change(node, {.size = size}, caller_, &state); });
}
int FileSystemCalls::look(const std::string& path, struct stat* state) {
  return with(path, [&](Node& node) { return fs_.attributes(node, state); });
}
int FileSystemCalls::unlink(const std::string& path) {
  return with_parent(path, [&](Node& parent, const char* name) { return fs_.unlink(parent, name, caller_); });
}
int FileSystemCalls::rename(const std::string& from, const std::string& to, unsigned flags) {
  return with_parent(from, [&](Node& parent, const char* name) {
    return with_parent(to, [&](Node& new_parent, const char* new_name) {
      return fs_.rename(parent, name, new_parent, new_name, flags, caller_);
    });
  });
}
int FileSystemCalls::link(const std::string& from, const std::string& to) {
  return with(from, [&](Node& node) {
    return with_parent(to, [&](Node& parent, const char* name) {
      Entry entry;
      const int failed = fs_.link(node, parent, name, caller_, &entry);
      if (failed == 0) fs_.forget(entry.node, 1);
      return failed;
    });
  });
}
int FileSystemCalls::make_symlink(const std::string& target, const std::string& path) {
  return with_parent(path, [&](Node& parent, const char* name) {
    Entry entry;
    const int failed = fs_.make_symlink(parent, name, target.c_str(), caller_, &entry);
    if (failed == 0) fs_.forget(entry.node, 1);
    return failed;
  });
}
int FileSystemCalls::read_symlink(const std::string& path, std::string* target) {
  return with(path, [&](Node& node) { return fs_.read_symlink(node, target); });
}
int FileSystemCalls::make_directory(const std::string& path, mode_t mode) {
  return with_parent(path, [&](Node& parent, const char* name) {
    Entry entry;
    const int failed = fs_.make_directory(parent, name, mode, caller_, &entry);
    if (failed == 0) fs_.forget(entry.node, 1);
    return failed;
  });
}
int FileSystemCalls::remove_directory(const std::string& path) {
  return with_parent(
      path, [&](Node& parent, const char* name) { return fs_.remove_directory(parent, name, caller_); });
}

// Some names at a time, as the kernel reads them.
int FileSystemCalls::list(const std::string& path, std::vector<std::string>* names) {
  constexpr size_t kAtATime = 3;
  names->clear();
  const int failed = with(path, [&](Node& node) {
    std::unique_ptr<OpenDirectory> directory;
    if (const int refused = fs_.open_directory(node, caller_, &directory); refused != 0) return refused;
    off_t from = 0;
    for (size_t took = 1; took > 0;) {
      took = 0;
      const int answer = fs_.read_directory(*directory, from, [&](const DirectoryEntry& found) {
        if (took == kAtATime) return false;
        ++took;
        from = found.next;
        if (found.name != "." && found.name != "..") names->push_back(found.name);
        return true;
      });
      if (answer != 0) return answer;
    }
    return 0;
  });
  std::sort(names->begin(), names->end());
  return failed;
}

int FileSystemCalls::set_mode(const std::string& path, mode_t mode) {
  struct stat state;
  return with(path, [&](Node& node) { return fs_.change(node, {.mode = mode}, caller_, &state); });
}
int FileSystemCalls::set_time(const std::string& path, int64_t modified_s) {
  struct stat state;
  const timespec time = {modified_s, 0};
  return with(path, [&](Node& node) {
    return fs_.change(node, {.accessed = time, .modified = time}, caller_, &state);
  });
}
int FileSystemCalls::set_attribute(const std::string& path, const std::string& name,
                                   const std::string& value) {
  return with(path, [&](Node& node) { return fs_.set_attribute(node, name.c_str(), value, 0, caller_); });
}
int FileSystemCalls::get_attribute(const std::string& path, const std::string& name, std::string* value) {
  return with(path, [&](Node& node) { return fs_.get_attribute(node, name.c_str(), caller_, value); });
}
int FileSystemCalls::remove_attribute(const std::string& path, const std::string& name) {
  return with(path, [&](Node& node) { return fs_.remove_attribute(node, name.c_str(), caller_); });
}
int FileSystemCalls::list_attributes(const std::string& path, std::vector<std::string>* names) {
  std::string text;
  const int failed = with(path, [&](Node& node) { return fs_.list_attributes(node, caller_, &text); });
  *names = attribute_names(text);
  return failed;
}

}  // namespace swale::fs
