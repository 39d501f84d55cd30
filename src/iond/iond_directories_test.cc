// Directories, listings and attributes at I/O servers: random calls beside the same calls in a plain
// directory, what a later job finds, listings beside changes, and what is refused.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/coding.h"
#include "base/rng.h"
#include "io/posix_device.h"
#include "iond/iond_files.h"
#include "iond/testing/iond_rig.h"

namespace swale::iond::iond_test {
namespace {

using testing::HasSubstr;

// What a tree looks like: each path with its kind, and mode; of files their content.
using Tree = std::map<std::string, std::string>;

Tree plain_tree(const std::string& root) {
  Tree tree;
  for (const auto& each : std::filesystem::recursive_directory_iterator(root)) {
    struct stat found;
    EXPECT_EQ(::stat(each.path().c_str(), &found), 0);
    std::string content;
    if (S_ISREG(found.st_mode)) {
      std::ifstream in(each.path());
      content = {std::istreambuf_iterator<char>(in), {}};
    }
    tree[each.path().string().substr(root.size() + 1)] = fmt::format(
        "{} {:o} {}", S_ISDIR(found.st_mode) ? "directory" : "file", found.st_mode & 0777, content);
  }
  return tree;
}

void add_tree(Iond& iond, const std::string& folder, Tree* tree) {
  std::vector<IondEntry> entries;
  const Status listed = iond.list(folder, [&](const IondEntry& entry) {
    entries.push_back(entry);
    return true;
  });
  EXPECT_TRUE(listed.ok()) << listed.to_string();
  for (const IondEntry& entry : entries) {
    const std::string name = folder.empty() ? entry.name : folder + "/" + entry.name;
    const auto found = iond.stat(name);
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    const bool directory = found->kind == FileKind::kDirectory;
    EXPECT_EQ(directory, entry.kind == IondEntryKind::kDirectory) << name;
    std::string content;
    if (!directory) {
      auto file = iond.open_file(name, 0);
      ASSERT_TRUE(file.ok()) << file.status().to_string();
      content.resize(found->size);
      const auto got = iond.read(*file, 0, content);
      EXPECT_TRUE(got.ok() && *got == found->size) << name;
      EXPECT_TRUE(iond.close_file(&*file).ok());
    }
    (*tree)[name] = fmt::format("{} {:o} {}", directory ? "directory" : "file", found->mode, content);
    if (directory) add_tree(iond, name, tree);
  }
}

Tree tree_of(Iond& iond) {
  Tree tree;
  add_tree(iond, "", &tree);
  return tree;
}

// The same call of both; both succeed, or both fail for the same reason.
class Beside {
 public:
  Beside(Iond& iond, std::string plain, uint64_t seed) : iond_(iond), plain_(std::move(plain)), rng_(seed) {}

  void call_at_random() {
    const std::string name = some_name(), other = some_name();
    const std::string path = plain_ + "/" + name;
    const uint32_t mode = rng_.chance(1, 2) ? 0750 : 0700;
    switch (rng_.below(9)) {
      case 0:
      case 7:
        return same("mkdir " + name, iond_.make_directory(name, mode), ::mkdir(path.c_str(), mode));
      case 1:
        return same("rmdir " + name, iond_.remove_directory(name), ::rmdir(path.c_str()));
      case 2:
        return same("unlink " + name, iond_.remove(name), ::unlink(path.c_str()));
      case 3:
        return same("rename " + name + " to " + other, iond_.rename(name, other),
                    ::rename(path.c_str(), (plain_ + "/" + other).c_str()));
      case 4:
        return same("chmod " + name, iond_.set_attributes(name, {.mode = mode}), ::chmod(path.c_str(), mode));
      case 5:
        return set_time(name, path);
      default:
        return write(name, path);
    }
  }
  int succeeded() const { return succeeded_; }
  int failed() const { return failed_; }

 private:
  std::string some_name() {
    static constexpr const char* kParts[] = {"a", "b", "c"};
    std::string name = kParts[rng_.below(3)];
    for (uint64_t depth = std::min(rng_.below(3), rng_.below(3)); depth > 0; --depth)
      name += std::string("/") + kParts[rng_.below(3)];
    return name;
  }
  void same(const std::string& what, const Status& ours, int theirs) {
    const int failed = theirs == 0 ? 0 : errno;
    EXPECT_EQ(ours.ok(), theirs == 0)
        << what << ": " << ours.to_string() << "; beside it " << errno_status(failed, "").to_string();
    if (failed == ENOENT) {
      EXPECT_EQ(ours.code(), Code::kNotFound) << what;
    }
    if (failed == EEXIST) {
      EXPECT_EQ(ours.code(), Code::kAlreadyExists) << what;
    }
    ++(theirs == 0 ? succeeded_ : failed_);
  }
  void set_time(const std::string& name, const std::string& path) {
    const int64_t time = static_cast<int64_t>(rng_.below(2'000'000'000)) * 1'000'000'000 - 500'000'000 + 7;
    const int64_t second = time / 1'000'000'000 - (time < 0);
    const timespec times[2] = {{0, UTIME_OMIT}, {second, static_cast<long>(time - second * 1'000'000'000)}};
    same("times of " + name, iond_.set_attributes(name, {.modified_ns = time}),
         ::utimensat(AT_FDCWD, path.c_str(), times, 0));
    if (const auto found = iond_.stat(name); found.ok()) {
      EXPECT_EQ(found->modified_ns, time) << name;
    }
  }
  void write(const std::string& name, const std::string& path) {
    const std::string data(rng_.below(3 * kStripeBytesMin), static_cast<char>('a' + rng_.below(26)));
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0640);
    const int made = fd < 0 ? -1 : 0;
    const int failed = errno;
    if (fd >= 0) {
      EXPECT_EQ(::write(fd, data.data(), data.size()), static_cast<ssize_t>(data.size()));
      ::close(fd);
    }
    auto file = iond_.open_file(name, kIondCreate, 0640);
    errno = failed;
    same("write " + name, file.status(), made);
    if (!file.ok()) return;
    EXPECT_TRUE(iond_.truncate(*file, 0).ok());
    EXPECT_TRUE(iond_.write(*file, 0, data).ok());
    if (rng_.chance(1, 4)) {
      EXPECT_TRUE(iond_.sync(*file).ok());
    }
    EXPECT_TRUE(iond_.close_file(&*file).ok());
  }

  Iond& iond_;
  const std::string plain_;
  Rng rng_;
  int succeeded_ = 0, failed_ = 0;
};

TEST_F(IondTest, DirectoriesAreWhatAPlainDirectoryWouldBeAndOutliveTheJob) {
  for (const int32_t servers : {1, 2, 3}) {
    SCOPED_TRACE(servers);
    const std::string plain = root_ + "/plain";
    std::filesystem::create_directory(plain);
    run_ranks(servers + 1, servers, [&](RankOf& here) {
      ASSERT_TRUE(here.iond.ok()) << here.iond.status().to_string();
      Beside beside(**here.iond, plain, static_cast<uint64_t>(servers));
      for (int i = 0; i < 400 && !HasFailure(); ++i) beside.call_at_random();
      EXPECT_GT(beside.succeeded(), 60);
      EXPECT_GT(beside.failed(), 60);
      EXPECT_EQ(tree_of(**here.iond), plain_tree(plain));
    });
    const Tree left = plain_tree(plain);
    EXPECT_GT(left.size(), 3u);
    run_ranks(servers + 1, servers, [&](RankOf& here) {
      ASSERT_TRUE(here.iond.ok()) << here.iond.status().to_string();
      EXPECT_EQ(tree_of(**here.iond), left);
      // The comparison can fail.
      ASSERT_TRUE((*here.iond)->make_directory("one more").ok());
      EXPECT_NE(tree_of(**here.iond), left);
      ASSERT_TRUE((*here.iond)->remove_directory("one more").ok());
      ASSERT_TRUE((*here.iond)->drain().ok());
    });
    // With one server all is plain when it is drained.
    if (servers == 1) {
      std::filesystem::remove_all(root_ + "/disk0/.swale-tier");
      EXPECT_EQ(plain_tree(root_ + "/disk0"), left);
    }
    std::filesystem::remove_all(root_);
    std::filesystem::create_directory(root_);
  }
}

TEST_F(IondTest, WhatIsThereAllTheTimeIsListedOnce) {
  constexpr int kEntries = 9000;  // of 150 bytes: two answers
  const auto name_of = [](int i) { return fmt::format("{:0150}", i * 2); };
  const std::string folder = root_ + "/disk0/folder";
  std::filesystem::create_directories(folder);
  for (int i = 0; i < kEntries; ++i) std::ofstream(folder + "/" + name_of(i)).put('x');
  std::filesystem::create_directory(folder + "/zz");
  std::filesystem::create_symlink("/etc", folder + "/zzz");
  run_ranks(2, 1, [&](RankOf& here) {
    ASSERT_TRUE(here.iond.ok()) << here.iond.status().to_string();
    Iond& iond = **here.iond;
    std::map<std::string, int> seen;
    std::vector<IondEntryKind> kinds;
    int calls = 0;
    const Status listed = iond.list("folder", [&](const IondEntry& entry) {
      ++seen[entry.name];
      kinds.push_back(entry.kind);
      // Entries come before and after the place where the listing is, and go.
      if (++calls % 500 == 0) {
        EXPECT_TRUE(iond.make_directory(fmt::format("folder/{:0150}", 2 * (calls - 200) + 1)).ok());
        EXPECT_TRUE(iond.make_directory(fmt::format("folder/{:0150}", 2 * (calls + 5000) + 1)).ok());
        EXPECT_TRUE(iond.remove_directory(fmt::format("folder/{:0150}", 2 * (calls - 200) + 1)).ok());
      }
      return true;
    });
    ASSERT_TRUE(listed.ok()) << listed.to_string();
    for (int i = 0; i < kEntries; ++i) ASSERT_EQ(seen[name_of(i)], 1) << i;
    for (const auto& [name, times] : seen) ASSERT_EQ(times, 1) << name;
    EXPECT_EQ(kinds.front(), IondEntryKind::kFile);
    EXPECT_EQ(kinds[kinds.size() - 2], IondEntryKind::kDirectory);
    EXPECT_EQ(kinds.back(), IondEntryKind::kSymlink);
    int taken = 0;
    EXPECT_TRUE(iond.list("folder", [&](const IondEntry&) { return ++taken < 7; }).ok());
    EXPECT_EQ(taken, 7);
  });
}

TEST_F(IondTest, AnOpenFileFollowsARenameOfItsDirectory) {
  run_ranks(4, 2, [&](RankOf& here) {
    ASSERT_TRUE(here.iond.ok()) << here.iond.status().to_string();
    if (here.rank == 3) return;
    Iond& iond = **here.iond;
    ASSERT_TRUE(iond.make_directory("a").ok());
    ASSERT_TRUE(iond.make_directory("a/b").ok());
    auto file = iond.open_file("a/b/f", kIondCreate);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    ASSERT_TRUE(iond.rename("a", "c").ok());
    // Where the old name led there is something else now.
    auto in_its_place = iond.open_file("a", kIondCreate);
    ASSERT_TRUE(in_its_place.ok() && iond.close_file(&*in_its_place).ok());
    ASSERT_TRUE(iond.write(*file, 0, std::string(200'000, 'x')).ok());
    Status synced = iond.sync(*file);
    EXPECT_TRUE(synced.ok()) << synced.to_string();
    ASSERT_TRUE(iond.set_attributes("c/b/f", {.mode = 0600}).ok());
    EXPECT_EQ(iond.attributes(*file)->mode, 0600u);
    const auto found = iond.stat("c/b/f");
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    EXPECT_EQ(found->size, 200'000u);
    // Its name goes, then its directory: there is nothing of it to sync.
    auto other = iond.open_file("c/b/g", kIondCreate);
    ASSERT_TRUE(other.ok());
    ASSERT_TRUE(iond.remove("c/b/g").ok());
    ASSERT_TRUE(iond.rename("c/b/f", "f").ok());
    ASSERT_TRUE(iond.remove_directory("c/b").ok());
    synced = iond.sync(*other);
    EXPECT_TRUE(synced.ok()) << synced.to_string();
    EXPECT_TRUE(iond.close_file(&*other).ok());
    EXPECT_TRUE(iond.close_file(&*file).ok());
  });
}

TEST_F(IondTest, NoCallAboutNamesLeavesTheDirectory) {
  const std::string outside = root_ + "/outside";
  std::filesystem::create_directories(outside + "/folder");
  std::ofstream(outside + "/file") << "untouched";
  std::filesystem::create_directories(root_ + "/disk0");
  std::filesystem::create_directory_symlink(outside, root_ + "/disk0/link");
  std::filesystem::create_symlink(outside + "/file", root_ + "/disk0/file");
  const Tree before = plain_tree(outside);
  run_ranks(2, 1, [&](RankOf& here) {
    ASSERT_TRUE(here.iond.ok()) << here.iond.status().to_string();
    Iond& iond = **here.iond;
    ASSERT_TRUE(iond.make_directory("inside").ok());
    const auto take = [](const IondEntry&) { return true; };
    for (const char* const name :
         {"link/x", "../x", "/x", "link", "file", ".swale-tier", "inside/.swale-parts"}) {
      SCOPED_TRACE(name);
      EXPECT_FALSE(iond.make_directory(name).ok());
      EXPECT_FALSE(iond.remove_directory(name).ok());
      EXPECT_FALSE(iond.list(name, take).ok());
      EXPECT_FALSE(iond.open_file(name, 0).ok());
      EXPECT_FALSE(iond.set_attributes(name, {.mode = 0600}).ok());
      EXPECT_FALSE(iond.put_attribute({name}, "user.a", "b").ok());
      EXPECT_FALSE(iond.get_attribute({name}, "user.a").ok());
      const auto found = iond.stat(name);  // a link is one itself
      EXPECT_EQ(found.ok(), name == std::string("link") || name == std::string("file"));
      EXPECT_EQ(iond.link({name}, "inside/link").ok(), found.ok());
      EXPECT_EQ(iond.remove("inside/link").ok(), found.ok());
      if (found.ok())
        EXPECT_EQ(found->kind, FileKind::kSymlink);
      else
        EXPECT_FALSE(iond.set_attributes(name, {.modified_ns = 7}).ok());
      EXPECT_FALSE(iond.rename("inside", name).ok());
      EXPECT_FALSE(iond.rename(name, "inside").ok());
    }
    EXPECT_FALSE(iond.list("link/folder", take).ok());
    EXPECT_FALSE(iond.remove_directory("link/folder").ok());
    EXPECT_EQ(iond.make_directory("sticky", 01777).code(), Code::kInvalidArgument);
    std::vector<std::string> top;
    ASSERT_TRUE(iond.list("", [&](const IondEntry& entry) { return top.push_back(entry.name), true; }).ok());
    EXPECT_THAT(top, testing::ElementsAre("file", "inside", "link"));
    EXPECT_EQ(iond.stat("")->kind, FileKind::kDirectory);
  });
  EXPECT_EQ(plain_tree(outside), before);
}

// A server that says the same again would be listed for ever.
TEST(IondEntries, AListingThatDoesNotGoOnIsDamage) {
  std::string page;
  append_iond_entry(&page, {"b", IondEntryKind::kFile});
  append_iond_entry(&page, {"c", IondEntryKind::kDirectory});
  ASSERT_TRUE(decode_iond_entries(page, "").ok());
  EXPECT_EQ(decode_iond_entries(page, "a")->size(), 2u);
  EXPECT_EQ(decode_iond_entries(page, "b").status().code(), Code::kCorruption);
  std::string twice = page + page;
  EXPECT_EQ(decode_iond_entries(twice, "").status().code(), Code::kCorruption);
  for (size_t cut = 1; cut < page.size(); ++cut) {
    if (cut == 4) continue;  // a whole entry
    EXPECT_EQ(decode_iond_entries(std::string_view(page).substr(0, cut), "").status().code(),
              Code::kCorruption)
        << cut;
  }
  for (const std::string& name : {std::string(), std::string("a/b"), std::string("a\0", 2), std::string("/")})
    for (const int kind : {0, 1, 5}) {
      std::string bad;
      append_u8(&bad, static_cast<uint8_t>(kind));
      append_varint(&bad, 7);
      append_sized(&bad, name);
      EXPECT_FALSE(decode_iond_entries(bad, "").ok()) << name;
    }
}

}  // namespace
}  // namespace swale::iond::iond_test
