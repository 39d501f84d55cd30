// Names of a job's tree: the system's own calls, for paths that lead to a tree, and for no others.
//
// A path's folder says whether it is on a tree (find_tree); links are followed as by the system's calls.
//
// Threads: any. Errors: kNotFound for a path on no tree, with what to do; else errno as of the system's
// calls, EIO with the node where its server is gone.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>

#include "base/status.h"

namespace swale::fs {

enum class NameKind { kFile = 1, kDirectory = 2, kOther = 3 };  // kOther: a link

struct NameAttributes {
  struct stat found;
  bool sealed = false;  // asked of files whose mode lets nobody write them
};

Result<NameAttributes> name_attributes(const std::string& path);  // of what a link leads to
Status make_directory(const std::string& path, mode_t mode);
Status remove_directory(const std::string& path);  // an empty one
Status remove_name(const std::string& path);       // of a file or a link; who has it open goes on
Status rename_path(const std::string& from, const std::string& to);  // replaces a file, or an empty directory
// `visit` returns false to end it. What is there all the time comes once.
Status list_directory(const std::string& path, const std::function<bool(const char*, NameKind)>& visit);

}  // namespace swale::fs
