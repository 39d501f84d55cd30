// Whose links a PosixDevice follows below an anchor and below `within`, with and without openat2. Links of
// other users are made by root, who can give them away.
#include "io/link_rule.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "io/device.h"
#include "io/posix_device.h"
#include "io/testing/device_test_fixture.h"

namespace swale::io::link_rule_test {
namespace {

namespace files = std::filesystem;
using ::testing::HasSubstr;

constexpr uid_t kOther = 65532, kThird = 65531;

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A directory "d" with the folder "d/f" and the file "d/f/a", and what must not be reached: "out".
class LinkRule : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(files::create_directories(top_.path() + "/out"));
    ASSERT_TRUE(files::create_directories(dir() + "/f"));
    std::ofstream(dir() + "/f/a") << "inside";
    std::ofstream(out()) << "precious";
  }
  std::string dir() const { return top_.path() + "/d"; }
  std::string out() const { return top_.path() + "/out/a"; }
  static bool is_root() { return ::geteuid() == 0; }
  void link(const std::string& target, const std::string& name, uid_t owner = ::geteuid()) const {
    const std::string path = dir() + "/" + name;
    ASSERT_EQ(::symlink(target.c_str(), path.c_str()), 0);
    ASSERT_EQ(::lchown(path.c_str(), owner, static_cast<gid_t>(-1)), 0);
  }
  std::unique_ptr<Device> held() { return PosixDevice().anchored(dir()).value(); }

  TemporaryDirectory top_;
};

// Both ways of opening, and both kinds of device: they have the same rule.
class LinkRuleOfOpening : public LinkRule, public ::testing::WithParamInterface<bool> {
 protected:
  OpenedBelow open(const std::string& rest, int flags, LinksOf links = LinksOf::kUser) {
    const Descriptor at(::open(dir().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    return (GetParam() ? walk_below : open_below)(at.get(), rest, flags | O_CLOEXEC, 0600, links);
  }
  std::string read(const std::string& rest, LinksOf links = LinksOf::kUser) {
    const OpenedBelow opened = open(rest, O_RDONLY, links);
    if (!opened.link.empty()) return "refused " + opened.link;
    if (opened.failed != 0) return std::strerror(opened.failed);
    char bytes[16];
    const ssize_t got = ::read(opened.fd.get(), bytes, sizeof(bytes));
    return {bytes, static_cast<size_t>(got < 0 ? 0 : got)};
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, LinkRuleOfOpening, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "OneByOne" : "ByTheKernel"; });

TEST_P(LinkRuleOfOpening, NobodysLinksAreNotEvenTheOwnAndRoots) {
  link("f", "way");
  link("f/a", "file");
  EXPECT_EQ(open("f/a", O_RDONLY, LinksOf::kNobody).failed, 0);
  for (const char* const name : {"way/a", "file"}) {
    const OpenedBelow refused = open(name, O_RDONLY, LinksOf::kNobody);
    EXPECT_EQ(refused.failed, ELOOP) << name;
    EXPECT_THAT(std::string(refused_link(refused, dir() + "/" + name, name).message()),
                HasSubstr("none is followed here"));
    EXPECT_EQ(open(name, O_RDONLY).failed, 0) << "the rule of other devices follows it";
  }
}

TEST_P(LinkRuleOfOpening, OpensWhatHasNoLinks) {
  EXPECT_EQ(read("f/a"), "inside");
  EXPECT_EQ(read("f//./a"), "inside");
  EXPECT_EQ(read("f/../f/a"), "inside");
  EXPECT_EQ(read("../out/a"), "precious") << "no link: as ever";
  EXPECT_EQ(read("f/b"), "No such file or directory");
  EXPECT_EQ(read("f/a/b"), "Not a directory");
  EXPECT_EQ(open(".", O_PATH | O_DIRECTORY).failed, 0);
  EXPECT_EQ(open("f/new", O_RDWR | O_CREAT | O_EXCL).failed, 0);
  EXPECT_EQ(open("f/new", O_RDWR | O_CREAT | O_EXCL).failed, EEXIST);
}

// A program that goes down folder by folder makes paths that the kernel does not take at once.
TEST_P(LinkRuleOfOpening, OpensWhatHasALongerPathThanTheKernelTakes) {
  std::string path = "f";
  Descriptor at(::open((dir() + "/f").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  while (path.size() < 2 * PATH_MAX) {
    const std::string name(200, 'n');
    ASSERT_EQ(::mkdirat(at.get(), name.c_str(), 0755), 0);
    at = Descriptor(::openat(at.get(), name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    path += "/" + name;
  }
  EXPECT_EQ(open(path + "/new", O_RDWR | O_CREAT | O_EXCL).failed, 0);
  EXPECT_EQ(open(path + "/new", O_RDWR | O_CREAT | O_EXCL).failed, EEXIST);
  EXPECT_EQ(open(path + "/no/such", O_RDONLY).failed, ENOENT);
  EXPECT_EQ(open(path + "/" + std::string(256, 'n'), O_RDONLY).failed, ENAMETOOLONG);
  ASSERT_EQ(::symlinkat("new", at.get(), "link"), 0);
  EXPECT_EQ(open(path + "/link", O_RDONLY).failed, 0);
  EXPECT_EQ(open(path + "/link", O_RDONLY, LinksOf::kNobody).failed, ELOOP);
}

TEST_P(LinkRuleOfOpening, FollowsLinksOfTheUser) {
  link("f/a", "file");
  link(out(), "absolute");
  link("f", "folder");
  link("../out", "relative");
  link("folder", "twice");
  link("nowhere", "dangling");
  link("loop", "loop");
  EXPECT_EQ(read("file"), "inside");
  EXPECT_EQ(read("absolute"), "precious");
  EXPECT_EQ(read("folder/a"), "inside");
  EXPECT_EQ(read("relative/a"), "precious");
  EXPECT_EQ(read("twice/a"), "inside");
  EXPECT_EQ(read("dangling"), "No such file or directory");
  EXPECT_EQ(read("loop"), "Too many levels of symbolic links");
  EXPECT_EQ(open("file", O_RDWR | O_CREAT | O_EXCL).failed, EEXIST);
  EXPECT_EQ(open("folder", O_RDONLY | O_DIRECTORY).failed, 0);
  EXPECT_EQ(open("dangling", O_RDWR | O_CREAT).failed, 0);
  EXPECT_TRUE(files::exists(dir() + "/nowhere"));
}

TEST_P(LinkRuleOfOpening, RefusesLinksOfOthersAtEachPlace) {
  if (!is_root()) GTEST_SKIP() << "needs root, who can give links away";
  link("f/a", "file", kOther);
  link("f", "folder", kOther);
  link("folder", "own");  // leads to that one
  link(top_.path() + "/out", "disk");
  ASSERT_EQ(::symlink(out().c_str(), (top_.path() + "/out/b").c_str()), 0);
  ASSERT_EQ(::lchown((top_.path() + "/out/b").c_str(), kOther, 0), 0);
  EXPECT_EQ(read("file"), "refused file");
  EXPECT_EQ(read("folder/a"), "refused folder");
  EXPECT_EQ(read("f/../folder/a"), "refused f/../folder");
  EXPECT_EQ(read("own/a"), "refused folder");
  EXPECT_EQ(read("disk/a"), "precious");
  EXPECT_EQ(read("disk/b"), "refused disk/b") << "behind the user's link the rule goes on";
  EXPECT_EQ(open("folder", O_PATH | O_DIRECTORY).link, "folder");
  EXPECT_EQ(open("file", O_RDWR | O_CREAT).link, "file");
  EXPECT_EQ(open("file", O_RDWR | O_CREAT).owner, kOther);
  EXPECT_EQ(open("file", O_RDWR | O_CREAT | O_EXCL).failed, EEXIST);
}

TEST_P(LinkRuleOfOpening, WhoReadsAlsoFollowsTheDirectorysOwner) {
  if (!is_root()) GTEST_SKIP() << "needs root, who can give links away";
  ASSERT_EQ(::chown(dir().c_str(), kOther, 0), 0);
  link("f/a", "owners", kOther);
  link("f/a", "thirds", kThird);
  EXPECT_EQ(read("owners", LinksOf::kUserAndOwner), "inside");
  EXPECT_EQ(read("owners", LinksOf::kUser), "refused owners");
  EXPECT_EQ(read("thirds", LinksOf::kUserAndOwner), "refused thirds");
}

class LinkRuleOfDevices : public LinkRule, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    if (!is_root()) GTEST_SKIP() << "needs root, who can give links away";
    LinkRule::SetUp();
    ASSERT_EQ(::symlink("d", (top_.path() + "/link").c_str()), 0);
    ASSERT_EQ(::lchown((top_.path() + "/link").c_str(), kOther, 0), 0);
    root_ = top_.path() + "/link";  // the directory itself is reached as the caller likes
    device_ = GetParam() ? PosixDevice().anchored(root_).value()
                         : std::make_unique<PosixDevice>(PosixOptions(), root_ + "/");
  }
  void expect_refused(const Status& status, const std::string& name) const {
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    EXPECT_THAT(std::string(status.message()),
                ::testing::AllOf(HasSubstr(root_ + "/" + name + ": is a symbolic link of user 65532"),
                                 HasSubstr("remove it")));
    EXPECT_EQ(content(out()), "precious");
    EXPECT_EQ(std::distance(files::directory_iterator(top_.path() + "/out"), files::directory_iterator()), 1);
  }

  std::string root_;
  std::unique_ptr<Device> device_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, LinkRuleOfDevices, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "Anchored" : "Within"; });

TEST_P(LinkRuleOfDevices, NoCallLeavesByAPlantedFolder) {
  link(top_.path() + "/out", "planted", kOther);
  const std::string planted = root_ + "/planted";
  for (const OpenMode mode :
       {OpenMode::kRead, OpenMode::kReadWrite, OpenMode::kOpenOrCreate, OpenMode::kCreate})
    expect_refused(device_->open(planted + "/a", mode).status(), "planted");
  expect_refused(device_->make_directory(planted + "/b"), "planted");
  expect_refused(device_->remove(planted + "/a"), "planted");
  expect_refused(device_->rename(planted + "/a", root_ + "/b"), "planted");
  expect_refused(device_->rename(root_ + "/f/a", planted + "/b"), "planted");
  expect_refused(device_->rename_new(planted + "/a", root_ + "/b"), "planted");
  expect_refused(device_->rename_new(root_ + "/f/a", planted + "/b"), "planted");
  expect_refused(device_->list(planted).status(), "planted");
  expect_refused(device_->sync_directory(planted), "planted");
  expect_refused(device_->exists(planted + "/a").status(), "planted");
  EXPECT_TRUE(*device_->exists(planted)) << "the name is taken";
  EXPECT_TRUE(device_->remove(planted).ok()) << "the link, not what it leads to";
  EXPECT_EQ(content(out()), "precious");
}

TEST_P(LinkRuleOfDevices, NoFileIsOpenedByAPlantedLink) {
  link(out(), "planted", kOther);
  for (const OpenMode mode : {OpenMode::kRead, OpenMode::kReadWrite, OpenMode::kOpenOrCreate})
    expect_refused(device_->open(root_ + "/planted", mode).status(), "planted");
  EXPECT_EQ(device_->open(root_ + "/planted", OpenMode::kCreate).status().code(), Code::kAlreadyExists);
}

TEST_P(LinkRuleOfDevices, UsersFoldersOnOtherDisksAreFollowed) {
  link(top_.path() + "/out", "disk");
  EXPECT_TRUE(make_directories(*device_, root_ + "/disk").ok());
  ASSERT_TRUE(device_->open(root_ + "/disk/b", OpenMode::kCreate).ok());
  EXPECT_TRUE(device_->rename(root_ + "/disk/b", root_ + "/disk/c").ok());
  EXPECT_TRUE(device_->sync_directory(root_ + "/disk").ok());
  EXPECT_THAT(device_->list(root_ + "/disk").value(), ::testing::ElementsAre("a", "c"));
  EXPECT_TRUE(files::exists(top_.path() + "/out/c"));
}

// The name of a temporary file is known beforehand.
TEST_P(LinkRuleOfDevices, AReplacementOpensNothingThatStandsInItsTemporarysPlace) {
  const std::string path = root_ + "/state", temporary = dir() + "/state.tmp";
  const auto plants = {
      std::function<int()>([&] { return ::symlink(out().c_str(), temporary.c_str()); }),
      std::function<int()>([&] { return ::link(out().c_str(), temporary.c_str()); }),
      std::function<int()>([&] { return ::mkfifo(temporary.c_str(), 0666); }),
      std::function<int()>([&] { return ::mkdir(temporary.c_str(), 0777); }),
  };
  int round = 0;
  for (const auto& plant : plants) {
    ASSERT_EQ(plant(), 0);
    ::lchown(temporary.c_str(), kOther, 0);
    ASSERT_EQ(::chown(out().c_str(), 0, 0), 0);
    const std::string wanted = fmt::format("new {}", ++round);
    const Status replaced = replace_file(*device_, path, wanted);
    EXPECT_TRUE(replaced.ok()) << replaced.to_string();
    EXPECT_EQ(content(dir() + "/state"), wanted);
    EXPECT_EQ(content(out()), "precious") << round;
  }
}

TEST_P(LinkRuleOfDevices, AFileKeepsNoMoreDescriptorsThanItsOwn) {
  const auto open_now = [] {
    return std::distance(files::directory_iterator("/proc/self/fd"), files::directory_iterator());
  };
  const auto before = open_now();
  const auto file = device_->open(root_ + "/f/a", OpenMode::kRead).value();
  EXPECT_EQ(open_now(), before + 1);
}

TEST_F(LinkRule, ADeviceThatFollowsNone) {
  link("f", "way");
  link("f/a", "file");
  const auto device = PosixDevice({.links = PosixOptions::Links::kNone}).anchored(dir()).value();
  EXPECT_TRUE(device->open(dir() + "/f/a", OpenMode::kReadWrite).ok());
  EXPECT_FALSE(device->open(dir() + "/file", OpenMode::kRead).ok());
  EXPECT_FALSE(device->open(dir() + "/way/new", OpenMode::kCreate).ok());
  EXPECT_FALSE(device->make_directory(dir() + "/way/new").ok());
  EXPECT_FALSE(device->rename(dir() + "/f/a", dir() + "/way/b").ok());
  EXPECT_FALSE(device->remove(dir() + "/way/a").ok());
  EXPECT_FALSE(device->sync_directory(dir() + "/way").ok());
  EXPECT_FALSE(device->list(dir() + "/way").ok());
  EXPECT_EQ(content(dir() + "/f/a"), "inside");
}

}  // namespace
}  // namespace swale::io::link_rule_test
