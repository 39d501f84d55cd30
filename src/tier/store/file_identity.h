// What a file is, and finding it again: by the kernel's handle (root), else by its last known path; both
// count only if inode, birth time and id are right. A handle works whatever the file's names and the modes of
// its folders are. A copy of a file has another inode, and so is never taken for it.
//
// Threads: pure system calls. Errors: an invalid descriptor, and words that say why.
#pragma once

#include <string>

#include "io/descriptor.h"
#include "tier/log/file_table_format.h"

namespace swale::tier {

// The backing directory.
struct BackingRoot {
  std::string path;  // as the system names it
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t born_ns = 0;
};
BackingRoot backing_root(const std::string& directory);
FileIdentity identity_of(int fd, const BackingRoot& root);
// Whether the identity is of a file of this backing directory, and not of one that this is a copy of.
bool is_of_root(const FileIdentity& identity, const BackingRoot& root);
// Whether `fd` is that file. A file that has another id is not. Inode and id are enough where no birth time
// is told, inode and birth time where the id cannot be read or was lost; `by_handle`: the handle has the
// inode's generation, which is as good.
bool is_file(int fd, const FileIdentity& identity, uint64_t id, const char* attribute, bool by_handle);
// False only if inode, birth time or id say that `fd` is another file; it may have no name any more.
bool may_be_file(int fd, const FileIdentity& identity, uint64_t id, const char* attribute);
// An O_PATH descriptor of the file. `root`: of the backing directory, not O_PATH where that is possible.
// *why: words, if there is none. *gone: the handle says that the file was deleted.
io::Descriptor open_identity(int root, const FileIdentity& identity, uint64_t id, const char* attribute,
                             std::string* why, bool* gone);
// The id of the file that `path` leads to, "/proc/self/fd/N" also; 0: it has none; -1: it cannot be read.
int read_id(const std::string& path, const char* attribute, uint64_t* id);

}  // namespace swale::tier
