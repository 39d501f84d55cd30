// Links, attributes of users, modes, space and renames at I/O servers: random calls beside the same calls in
// a plain directory, with the same errno; what they leave on the servers; and the bytes of the messages.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "iond/testing/iond_rig.h"

namespace swale::iond::iond_test {
namespace {

using testing::HasSubstr;

std::string content_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The same call of both: the same errno.
class LinksBeside {
 public:
  LinksBeside(Iond& iond, std::string plain, uint64_t seed)
      : iond_(iond), plain_(std::move(plain)), rng_(seed) {}

  void call_at_random() {
    const std::string name = some_name(), other = some_name(), attribute = "user." + some_name();
    const std::string path = plain_ + "/" + name, there = plain_ + "/" + other;
    const uint32_t mode = static_cast<uint32_t>(rng_.below(0777 + 1));
    switch (rng_.below(11)) {
      case 0:
        return same("symlink " + name, iond_.make_symlink("to/" + other, name),
                    ::symlink(("to/" + other).c_str(), path.c_str()));
      case 1:
        return read_link(name, path);
      case 2:
        return same("link " + name + " " + other, iond_.link({name}, other),
                    ::link(path.c_str(), there.c_str()));
      case 3: {
        constexpr uint32_t kOurs[] = {0, kIondNoReplace, kIondExchange};
        constexpr unsigned kTheirs[] = {0, RENAME_NOREPLACE, RENAME_EXCHANGE};
        const uint64_t how = rng_.below(3);
        return same(fmt::format("rename {} {} {}", name, other, how), iond_.rename(name, other, kOurs[how]),
                    ::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, there.c_str(), kTheirs[how]));
      }
      case 4: {
        constexpr uint32_t kOurs[] = {0, kIondExclusive, kIondReplace};
        constexpr int kTheirs[] = {0, XATTR_CREATE, XATTR_REPLACE};
        const uint64_t how = rng_.below(3);
        return same("setxattr " + name, iond_.put_attribute({name}, attribute, other, kOurs[how]),
                    ::lsetxattr(path.c_str(), attribute.c_str(), other.data(), other.size(), kTheirs[how]));
      }
      case 5:
        return get_attribute(name, path, attribute);
      case 6:
        return same("removexattr " + name, iond_.remove_attribute({name}, attribute),
                    ::lremovexattr(path.c_str(), attribute.c_str()));
      case 7:
        return same("mkdir " + name, iond_.make_directory(name, mode, kIondExactMode),
                    ::mkdir(path.c_str(), mode) == 0 ? ::chmod(path.c_str(), mode) : -1);
      case 8:
        if (S_ISDIR(kind_of(path)))
          return same("rmdir " + name, iond_.remove_directory(name), ::rmdir(path.c_str()));
        return same("unlink " + name, iond_.remove(name), ::unlink(path.c_str()));
      case 9:
        if (S_ISLNK(kind_of(path))) return;  // chmod follows it there
        return same("chmod " + name, iond_.set_attributes(name, {.mode = mode}), ::chmod(path.c_str(), mode));
      default:
        return make(name, path, mode);
    }
  }
  void compare() {
    for (const char* const name : {"a", "b", "c", "d/a", "d/b", "d/c", "d"}) look(name);
  }
  int succeeded() const { return succeeded_; }
  int failed() const { return failed_; }

 private:
  std::string some_name() {
    static constexpr const char* kNames[] = {"a", "b", "c", "d/a", "d/b", "d/c"};
    return kNames[rng_.below(6)];
  }
  static mode_t kind_of(const std::string& path) {
    struct stat found;
    return ::lstat(path.c_str(), &found) == 0 ? found.st_mode : 0;
  }
  void same(const std::string& what, const Status& ours, int64_t theirs) {
    const int failed = theirs >= 0 ? 0 : errno;
    EXPECT_EQ(ours.ok() ? 0 : ours.posix_error(), failed) << what << ": " << ours.to_string();
    ++(failed == 0 ? succeeded_ : failed_);
  }
  void read_link(const std::string& name, const std::string& path) {
    char target[100];
    const ssize_t bytes = ::readlink(path.c_str(), target, sizeof(target));
    const int failed = errno;
    const auto found = iond_.read_symlink(name);
    errno = failed;
    same("readlink " + name, found.status(), bytes);
    if (bytes > 0 && found.ok()) {
      EXPECT_EQ(*found, std::string(target, static_cast<size_t>(bytes)));
    }
  }
  void get_attribute(const std::string& name, const std::string& path, const std::string& attribute) {
    char value[100];
    const ssize_t bytes = ::lgetxattr(path.c_str(), attribute.c_str(), value, sizeof(value));
    const int failed = errno;
    // A link has no attributes of users, by EPERM here and ENODATA there.
    const auto found = iond_.get_attribute({name}, attribute);
    if (bytes < 0 && S_ISLNK(kind_of(path))) {
      EXPECT_FALSE(found.ok());
      return;
    }
    errno = failed;
    same("getxattr " + name, found.status(), bytes);
    if (bytes >= 0 && found.ok()) {
      EXPECT_EQ(*found, std::string(value, static_cast<size_t>(bytes)));
    }
  }
  void make(const std::string& name, const std::string& path, uint32_t mode) {
    const std::string data(rng_.below(3 * kStripeBytesMin), static_cast<char>('a' + rng_.below(26)));
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, mode);
    const int failed = errno;
    if (fd >= 0) {
      EXPECT_EQ(::write(fd, data.data(), data.size()), static_cast<ssize_t>(data.size()));
      EXPECT_EQ(::fchmod(fd, mode), 0);
      ::close(fd);
    }
    auto file = iond_.open_file(name, kIondCreate | kIondExclusive | kIondExactMode, mode);
    errno = failed;
    same("make " + name, file.status(), fd);
    if (!file.ok()) return;
    EXPECT_TRUE(iond_.write(*file, 0, data).ok());
    EXPECT_TRUE(iond_.check(*file).ok());
    EXPECT_TRUE(iond_.close_file(&*file).ok());
  }
  void look(const std::string& name) {
    const std::string path = plain_ + "/" + name;
    struct stat theirs;
    const int failed = ::lstat(path.c_str(), &theirs) == 0 ? 0 : errno;
    const auto ours = iond_.stat(name);
    ASSERT_EQ(ours.ok() ? 0 : ours.status().posix_error(), failed) << name << ours.status().to_string();
    if (failed != 0) return;
    const FileKind kind = S_ISDIR(theirs.st_mode)   ? FileKind::kDirectory
                          : S_ISLNK(theirs.st_mode) ? FileKind::kSymlink
                                                    : FileKind::kFile;
    ASSERT_EQ(ours->kind, kind) << name;
    if (kind != FileKind::kSymlink) {
      EXPECT_EQ(ours->mode, theirs.st_mode & 07777) << name;
      char names[1000];
      const ssize_t bytes = ::listxattr(path.c_str(), names, sizeof(names));
      const auto listed = iond_.list_attributes({name});
      ASSERT_TRUE(listed.ok()) << listed.status().to_string();
      EXPECT_EQ(listed->size(), static_cast<size_t>(bytes)) << name;
    }
    if (kind == FileKind::kDirectory) return;
    EXPECT_EQ(ours->size, static_cast<uint64_t>(theirs.st_size)) << name;
    EXPECT_EQ(ours->links, theirs.st_nlink) << name;
    if (kind == FileKind::kSymlink) return;
    auto file = iond_.open_file(name, 0, 0, ours->key.inode);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    std::string content(ours->size + 1, '?');
    const auto got = iond_.read(*file, 0, content);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    content.resize(*got);
    if (::geteuid() == 0 || (theirs.st_mode & 0400) != 0) {
      EXPECT_TRUE(content == content_of(path)) << name;
    }
    EXPECT_TRUE(iond_.close_file(&*file).ok());
  }

  Iond& iond_;
  const std::string plain_;
  Rng rng_;
  int succeeded_ = 0, failed_ = 0;
};

TEST_F(IondTest, LinksAttributesAndModesAreWhatAPlainDirectoryHas) {
  for (const int32_t servers : {1, 2, 3}) {
    SCOPED_TRACE(servers);
    const std::string plain = root_ + "/plain";
    std::filesystem::create_directories(plain + "/d");
    ASSERT_EQ(::chmod((plain + "/d").c_str(), 0755), 0);
    run_ranks(servers + 1, servers, [&](RankOf& here) {
      ASSERT_TRUE(here.iond.ok()) << here.iond.status().to_string();
      ASSERT_TRUE((*here.iond)->make_directory("d", 0755, kIondExactMode).ok());
      LinksBeside beside(**here.iond, plain, static_cast<uint64_t>(servers));
      for (int i = 0; i < 1500 && !HasFailure(); ++i) {
        beside.call_at_random();
        if (i % 50 == 49) beside.compare();
      }
      EXPECT_GT(beside.succeeded(), 300);
      EXPECT_GT(beside.failed(), 300);
    });
    run_ranks(servers + 1, servers, [&](RankOf& here) {
      ASSERT_TRUE(here.iond.ok()) << here.iond.status().to_string();
      LinksBeside(**here.iond, plain, 0).compare();
    });
    std::filesystem::remove_all(root_);
    std::filesystem::create_directory(root_);
  }
}

// A part is somebody's as long as its file has a name, and no longer.
TEST_F(IondTest, PartsLastAsLongAsAFileHasANameAndAreTheOwnersAlone) {
  const auto parts = [&] {
    const std::filesystem::path folder = root_ + "/disk1/.swale-parts";
    struct stat found;
    EXPECT_EQ(::stat(folder.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0700u);
    int count = 0;
    for (const auto& each : std::filesystem::directory_iterator(folder)) {
      EXPECT_EQ(::stat(each.path().c_str(), &found), 0);
      EXPECT_EQ(found.st_mode & 0777, 0600u);
      ++count;
    }
    return count;
  };
  run_ranks(3, 2, [&](RankOf& here) {
    ASSERT_TRUE(here.iond.ok()) << here.iond.status().to_string();
    Iond& iond = **here.iond;
    for (const char* const name : {"a", "z"}) {
      auto file = iond.open_file(name, kIondCreate | kIondExactMode, 0666);
      ASSERT_TRUE(file.ok() && iond.write(*file, 0, std::string(3 * kStripeBytesMin, *name)).ok());
      ASSERT_TRUE(iond.close_file(&*file).ok());
    }
    ASSERT_TRUE(iond.link({"a"}, "b").ok());
    EXPECT_EQ(iond.stat("a")->links, 2u);
    EXPECT_EQ(parts(), 2);
    ASSERT_TRUE(iond.remove("a").ok());
    EXPECT_EQ(parts(), 2);
    EXPECT_EQ(iond.stat("b")->size, 3 * kStripeBytesMin);
    ASSERT_TRUE(iond.rename("b", "b").ok());  // nothing is replaced
    ASSERT_TRUE(iond.link({"b"}, "c").ok());
    ASSERT_TRUE(iond.rename("b", "c").ok());  // two names of one file: nothing is done
    EXPECT_EQ(iond.stat("b")->links, 2u);
    EXPECT_EQ(parts(), 2);
    EXPECT_EQ(iond.rename("b", "b", kIondNoReplace).posix_error(), EEXIST);
    ASSERT_TRUE(iond.rename("z", "c", kIondExchange).ok());
    EXPECT_EQ(parts(), 2);
    ASSERT_TRUE(iond.remove("z").ok());
    ASSERT_TRUE(iond.remove("b").ok());
    EXPECT_EQ(parts(), 1);
    EXPECT_EQ(iond.stat("c")->size, 3 * kStripeBytesMin);
  });
}

TEST_F(IondTest, AnotherFileOfTheNameIsToldAndAnOpenOneNeedsNone) {
  run_ranks(3, 2, [&](RankOf& here) {
    ASSERT_TRUE(here.iond.ok()) << here.iond.status().to_string();
    Iond& iond = **here.iond;
    auto old = iond.open_file("f", kIondCreate);
    ASSERT_TRUE(old.ok());
    const uint64_t inode = iond.stat("f")->key.inode;
    ASSERT_TRUE(iond.remove("f").ok());
    auto other = iond.open_file("f", kIondCreate);
    ASSERT_TRUE(other.ok());
    EXPECT_EQ(iond.open_file("f", 0, 0, inode).status().posix_error(), ESTALE);
    const IondTarget stale = {"f", nullptr, inode};
    EXPECT_EQ(iond.set_attributes(stale, {.mode = 0600}).posix_error(), ESTALE);
    EXPECT_EQ(iond.put_attribute(stale, "user.a", "b").posix_error(), ESTALE);
    EXPECT_EQ(iond.link(stale, "g").posix_error(), ESTALE);
    const IondTarget open = {"f", &*old};
    ASSERT_TRUE(iond.put_attribute(open, "user.a", "b").ok());
    ASSERT_TRUE(iond.set_attributes(open, {.mode = 0400, .modified_ns = 5}).ok());
    EXPECT_EQ(*iond.get_attribute(open, "user.a"), "b");
    const auto found = iond.attributes(*old);
    EXPECT_TRUE(found->links == 0 && found->mode == 0400 && found->key.inode == inode);
    EXPECT_EQ(iond.get_attribute({"f"}, "user.a").status().posix_error(), ENODATA);
    // The servers' own attributes are nobody's.
    for (const char* const own : {"user.swale.stripes", "user.swale.mode", "user.swale.tier"}) {
      EXPECT_EQ(iond.get_attribute({"f"}, own).status().posix_error(), ENODATA) << own;
      EXPECT_EQ(iond.put_attribute({"f"}, own, "1").posix_error(), EPERM) << own;
      EXPECT_EQ(iond.remove_attribute({"f"}, own).posix_error(), EPERM) << own;
    }
    for (const char* const name : {"trusted.a", "system.posix_acl_access", "security.a", "user.", "a"})
      EXPECT_EQ(iond.put_attribute({"f"}, name, "1").posix_error(), EOPNOTSUPP) << name;
    EXPECT_EQ(*iond.list_attributes({"f"}), "");
    // Space, and a message that says what failed.
    struct statvfs disk;
    ASSERT_EQ(::statvfs(root_.c_str(), &disk), 0);
    const auto space = iond.space();
    ASSERT_TRUE(space.ok()) << space.status().to_string();
    EXPECT_EQ(space->bytes, 2 * uint64_t{disk.f_blocks} * disk.f_frsize);
    EXPECT_LE(space->available, space->free);
    ASSERT_TRUE(iond.allocate(*other, 0, 4 * kStripeBytesMin).ok());
    EXPECT_EQ(iond.stat("f")->size, 0u);
    EXPECT_TRUE(iond.sync_directory("").ok());
    EXPECT_EQ(iond.sync_directory("f").posix_error(), ENOTDIR);
    const Status refused = iond.make_directory("f");
    EXPECT_EQ(refused.code(), Code::kAlreadyExists);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("I/O server 0"));
    EXPECT_TRUE(iond.close_file(&*old).ok());
    EXPECT_TRUE(iond.close_file(&*other).ok());
  });
}

// The corpus of the decoders has the bytes of each form: they are the format, and they decode.
TEST(IondMessages, TheBytesOfTheCorpusAreTheFormat) {
  const auto corpus = [](const std::string& name) {
    return content_of(SWALE_SOURCE_DIR "/fuzz/corpus/iond_messages_fuzz/" + name).substr(1);
  };
  EXPECT_EQ(encode_iond_request({.name = "a/l", .other = "../b"}, 0), corpus("symlink"));
  EXPECT_EQ(encode_iond_request({.flags = kIondExchange, .name = "a", .other = "b"}, 0), corpus("exchange"));
  EXPECT_EQ(encode_iond_request(
                {.inode = 7, .flags = kIondReplace | kIondExclusive, .name = "f", .other = "user.a"}, 5) +
                "value",
            corpus("put_attribute"));
  EXPECT_EQ(encode_iond_answer({.file = 7,
                                .id = 9,
                                .inode = 5,
                                .size = 100,
                                .first = 1,
                                .links = 1,
                                .changed_ns = 9,
                                .data = "data"}),
            corpus("answer"));
  EXPECT_EQ(
      encode_iond_failure(
          error(Code::kNotFound, Scope::kFile, "I/O server 0: f: No such file").with_error_number(ENOENT)),
      corpus("failure"));
  EXPECT_EQ(encode_iond_space({1000, 900, 800, 50, 40}), corpus("space"));
  for (const char* const name : {"open", "open_part", "read", "write", "rename", "symlink", "exchange"})
    EXPECT_TRUE(decode_iond_request(corpus(name)).ok()) << name;
  for (const char* const name : {"stripe_odd", "too_long", "first_beyond", "cut", "flags_beyond"})
    EXPECT_FALSE(decode_iond_request(corpus(name)).ok()) << name;
  EXPECT_TRUE(decode_iond_answer(corpus("answer")).ok());
  for (const char* const name : {"answer_size", "failure_without_kind", "failure_beyond"})
    EXPECT_EQ(decode_iond_answer(corpus(name)).status().code(), Code::kCorruption) << name;
  EXPECT_EQ(decode_iond_entries(corpus("entries"), "")->size(), 3u);
  EXPECT_EQ(failure_of(*decode_iond_answer(corpus("failure"))).error_number(), ENOENT);
}

}  // namespace
}  // namespace swale::iond::iond_test
