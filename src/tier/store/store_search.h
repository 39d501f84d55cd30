// Looks through the whole backing directory for files with ids that are wanted, or which are the files that
// the table of files means. By descriptors: no path is too long. What cannot be searched is told, and passed
// over.
//
// Depth: whoever may write to the directory makes folders as deep as he likes. The folders that lead to the
// one that is read stand on the heap, and only the last 64 of them have a descriptor; the search comes back
// to another one by its "..", if that is the same folder still.
//
// Threads: one. Errors: unsearched().
#pragma once

#include <dirent.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/descriptor.h"
#include "tier/store/store_core.h"

namespace swale::tier {

// A file that has a wanted id.
struct Holder {
  std::string path;   // below the backing directory
  io::Descriptor fd;  // O_PATH
  FileKey key;
  bool meant = false;  // it is the file that the table means, and not only one with its id
};

class Search {
 public:
  Search(const OpenedStore& opened, const std::map<uint64_t, FileIdentity>& wanted);

  void run(int root);
  std::map<uint64_t, std::vector<Holder>>& found() { return found_; }
  const std::string& unsearched() const { return unsearched_; }

 private:
  static constexpr size_t kOpenFoldersMax = 64;
  struct Folder {
    io::Descriptor fd;                 // invalid: it is opened again when the search comes back
    FileKey key;                       // that it is then
    size_t path_bytes = 0;             // of path_
    std::vector<std::string> folders;  // in it, to be searched yet
  };

  void pass_over(std::string_view name);
  void come_back(int from);
  void enter(int parent, const std::string& name, bool top);
  void read(DIR* stream, bool top, Folder* folder);
  void look_at(int folder, const char* name, uint64_t inode);

  const char* const attribute_;
  const std::map<uint64_t, FileIdentity>& wanted_;
  std::multimap<uint64_t, uint64_t> inodes_;  // a removed file's may be a new one's
  std::map<uint64_t, std::vector<Holder>> found_;
  std::vector<Folder> stack_;
  std::string path_;  // of the last one, with a '/' behind it; empty: the backing directory
  std::string unsearched_;
  size_t unsearched_count_ = 0;
};

}  // namespace swale::tier
