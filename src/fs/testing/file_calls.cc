#include "fs/testing/file_calls.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "tier/store/store.h"

namespace swale::fs {
namespace {

template <class T>
int failed(T result) {
  return result < 0 ? errno : 0;
}

constexpr uint64_t kPageBytes = 4096;

}  // namespace

std::vector<std::string> attribute_names(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = 0; at < text.size();) {
    names.emplace_back(text.c_str() + at);
    at += names.back().size() + 1;
    if (names.back() == tier::kIdAttribute || !names.back().starts_with("user.")) names.pop_back();
  }
  std::sort(names.begin(), names.end());
  return names;
}

int PosixCalls::open(const std::string& path, int flags, mode_t mode, int* handle) {
  *handle = ::open(at(path).c_str(), flags | O_NOFOLLOW | O_CLOEXEC, mode);
  return failed(*handle);
}
int PosixCalls::close(int handle) { return failed(::close(handle)); }

int PosixCalls::write(int handle, uint64_t offset, Bytes data) {
  while (!data.empty()) {
    const ssize_t done = ::pwrite(handle, data.data(), data.size(), static_cast<off_t>(offset));
    if (done < 0) return errno;
    offset += static_cast<uint64_t>(done);
    data.remove_prefix(static_cast<size_t>(done));
  }
  return 0;
}

int PosixCalls::read(int handle, uint64_t offset, size_t size, std::string* out) {
  out->resize(size);
  size_t got = 0;
  while (got < size) {
    const ssize_t done = ::pread(handle, out->data() + got, size - got, static_cast<off_t>(offset + got));
    if (done < 0) return errno;
    if (done == 0) break;
    got += static_cast<size_t>(done);
  }
  out->resize(got);
  return 0;
}

int PosixCalls::map_write(int handle, uint64_t offset, Bytes data) {
  const uint64_t begin = offset / kPageBytes * kPageBytes;
  const size_t length = offset + data.size() - begin;
  void* const memory =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, handle, static_cast<off_t>(begin));
  if (memory == MAP_FAILED) return errno;
  std::memcpy(static_cast<char*>(memory) + (offset - begin), data.data(), data.size());
  const int synced = failed(::msync(memory, length, MS_SYNC));
  ::munmap(memory, length);
  return synced;
}

int PosixCalls::map_read(int handle, uint64_t offset, size_t size, std::string* out) {
  const uint64_t begin = offset / kPageBytes * kPageBytes;
  const size_t length = offset + size - begin;
  void* const memory = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, handle, static_cast<off_t>(begin));
  if (memory == MAP_FAILED) return errno;
  out->assign(static_cast<char*>(memory) + (offset - begin), size);
  ::munmap(memory, length);
  return 0;
}

int PosixCalls::resize(int handle, uint64_t size) {
  return failed(::ftruncate(handle, static_cast<off_t>(size)));
}
int PosixCalls::sync(int handle) { return failed(::fsync(handle)); }
int PosixCalls::allocate(int handle, int mode, uint64_t offset, uint64_t length) {
  return failed(::fallocate(handle, mode, static_cast<off_t>(offset), static_cast<off_t>(length)));
}
int PosixCalls::seek(int handle, uint64_t offset, int whence, uint64_t* found) {
  const off_t place = ::lseek(handle, static_cast<off_t>(offset), whence);
  *found = static_cast<uint64_t>(place);
  return failed(place);
}
int PosixCalls::copy(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t length,
                     uint64_t* copied) {
  auto source = static_cast<off_t>(from_offset), target = static_cast<off_t>(to_offset);
  *copied = 0;
  while (*copied < length) {
    const ssize_t done = ::copy_file_range(from, &source, to, &target, length - *copied, 0);
    if (done < 0) return errno;
    if (done == 0) break;
    *copied += static_cast<uint64_t>(done);
  }
  return 0;
}
int PosixCalls::state(int handle, struct stat* state) { return failed(::fstat(handle, state)); }
int PosixCalls::truncate(const std::string& path, uint64_t size) {
  return failed(::truncate(at(path).c_str(), static_cast<off_t>(size)));
}
int PosixCalls::look(const std::string& path, struct stat* state) {
  return failed(::lstat(at(path).c_str(), state));
}
int PosixCalls::unlink(const std::string& path) { return failed(::unlink(at(path).c_str())); }
int PosixCalls::rename(const std::string& from, const std::string& to, unsigned flags) {
  return failed(::renameat2(AT_FDCWD, at(from).c_str(), AT_FDCWD, at(to).c_str(), flags));
}
int PosixCalls::link(const std::string& from, const std::string& to) {
  return failed(::link(at(from).c_str(), at(to).c_str()));
}
int PosixCalls::make_symlink(const std::string& target, const std::string& path) {
  return failed(::symlink(target.c_str(), at(path).c_str()));
}
int PosixCalls::read_symlink(const std::string& path, std::string* target) {
  char text[PATH_MAX];
  const ssize_t length = ::readlink(at(path).c_str(), text, sizeof(text));
  if (length < 0) return errno;
  target->assign(text, static_cast<size_t>(length));
  return 0;
}
int PosixCalls::make_directory(const std::string& path, mode_t mode) {
  return failed(::mkdir(at(path).c_str(), mode));
}
int PosixCalls::remove_directory(const std::string& path) { return failed(::rmdir(at(path).c_str())); }

int PosixCalls::list(const std::string& path, std::vector<std::string>* names) {
  names->clear();
  DIR* const stream = ::opendir(at(path).c_str());
  if (stream == nullptr) return errno;
  errno = 0;
  while (const dirent* const found = ::readdir(stream)) {
    const std::string name = found->d_name;
    if (name != "." && name != ".." && name != tier::kPrivateDirectory) names->push_back(name);
  }
  const int reading = errno;
  ::closedir(stream);
  std::sort(names->begin(), names->end());
  return reading;
}

int PosixCalls::set_mode(const std::string& path, mode_t mode) {
  return failed(::chmod(at(path).c_str(), mode));
}
int PosixCalls::set_time(const std::string& path, int64_t modified_s) {
  const timespec times[2] = {{modified_s, 0}, {modified_s, 0}};
  return failed(::utimensat(AT_FDCWD, at(path).c_str(), times, AT_SYMLINK_NOFOLLOW));
}
int PosixCalls::set_attribute(const std::string& path, const std::string& name, const std::string& value) {
  return failed(::lsetxattr(at(path).c_str(), name.c_str(), value.data(), value.size(), 0));
}
int PosixCalls::get_attribute(const std::string& path, const std::string& name, std::string* value) {
  char text[1024];
  const ssize_t length = ::lgetxattr(at(path).c_str(), name.c_str(), text, sizeof(text));
  if (length < 0) return errno;
  value->assign(text, static_cast<size_t>(length));
  return 0;
}
int PosixCalls::remove_attribute(const std::string& path, const std::string& name) {
  return ::lremovexattr(at(path).c_str(), name.c_str()) == 0 ? 0 : errno;
}
int PosixCalls::list_attributes(const std::string& path, std::vector<std::string>* names) {
  char text[4096];
  const ssize_t length = ::llistxattr(at(path).c_str(), text, sizeof(text));
  if (length < 0) return errno;
  *names = attribute_names(std::string(text, static_cast<size_t>(length)));
  return 0;
}

}  // namespace swale::fs
