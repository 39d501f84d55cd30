// swale_fs.hpp as a program of a user would use it, in a tree: with nothing but the public headers and
// libswale.so. Usage: fs_cpp_test TREE OTHER (a directory of a tree, and one that is on none)
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "swale/swale_fs.hpp"

namespace {

int failures = 0;

void check(bool good, const char* text, int line) {
  if (good) return;
  ++failures;
  std::fprintf(stderr, "fs_cpp_test.cc:%d: %s\n", line, text);
}
#define CHECK(condition) check((condition), #condition, __LINE__)

void use(const std::string& tree) {
  swale::FsFile first(tree + "/cpp", SWALE_CREATE | SWALE_FS_BY_LOG);
  swale::FsFile file(std::move(first));
  CHECK(file.writes_by_log());
  file.write("01234567");
  file.write("89");
  file.write_at(10, "abc");
  file.write_at(13, {"d", "", "ef"});
  file.write_many(16, 2, "ghij", 1, 4);
  CHECK(file.stat().size == 23);
  CHECK(file.read_at(0, 100) == std::string("0123456789abcdefg\0h\0i\0j", 23));
  file.truncate(16);
  file.commit();
  file.sync();
  CHECK(file.handle() != nullptr);
  file.close();
  first = swale::FsFile(tree + "/cpp", SWALE_READ_ONLY);
  CHECK(first.read_at(10, 6) == "abcdef");
  bool refused = false;
  try {
    first.write_at(0, "x");
  } catch (const swale::Error&) {
    refused = true;
  }
  CHECK(refused);
  first.close();
  CHECK(first.handle() == nullptr);
  swale::fs_seal(tree + "/cpp");
  first = swale::FsFile(tree + "/cpp", SWALE_READ_ONLY);
  CHECK(first.stat().sealed == 1);
  swale::fs_unseal(tree + "/cpp");
  CHECK(first.stat().sealed == 0);
  char left[3] = "", right[8] = "";
  CHECK(first.read_at(9, {{left, 3}, {right, 8}}) == 7 && std::memcmp(left, "9ab", 3) == 0 &&
        std::memcmp(right, "cdef", 4) == 0);
}

void use_names(const std::string& tree) {
  swale::fs_mkdir(tree + "/names");
  swale::FsFile(tree + "/names/a", SWALE_CREATE).close();
  swale::fs_rename(tree + "/names/a", tree + "/names/b");
  CHECK(swale::fs_stat(tree + "/names/b").size == 0);
  const std::vector<swale::FsEntry> entries = swale::fs_list(tree + "/names");
  CHECK(entries.size() == 1 && entries[0].name == "b" && entries[0].kind == SWALE_FS_FILE_ENTRY);
  swale::fs_remove(tree + "/names/b");
  swale::fs_rmdir(tree + "/names");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::string said;
  try {
    const swale::FsFile none(std::string(argv[2]) + "/cpp", SWALE_CREATE);
  } catch (const swale::Error& failed) {
    said = failed.what();
  }
  CHECK(said.find("swale run --backing") != std::string::npos);
  try {
    use(argv[1]);
    use_names(argv[1]);
  } catch (const swale::Error& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 1;
  }
  return failures == 0 ? 0 : 1;
}
