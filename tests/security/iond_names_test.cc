// Names that clients send to an I/O server: nothing leads out of the directory that is served, no link is
// followed, and what is opened is a regular file; by the kernel's openat2, and where there is none.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/clock.h"
#include "io/descriptor_path.h"
#include "io/posix_device.h"
#include "iond/beneath.h"
#include "iond/iond_files.h"
#include "iond/ordinary_user.h"

namespace swale::iond::iond_names_test {
namespace {

namespace files = std::filesystem;

class IondNamesTest : public ::testing::TestWithParam<Beneath::Lookup> {
 protected:
  void SetUp() override {
    top_ = (files::current_path() / "iond-names-XXXXXX").string();
    ASSERT_NE(::mkdtemp(top_.data()), nullptr);
    root_ = top_ + "/served";
    files::create_directories(root_ + "/folder");
    files::create_directory(top_ + "/outside");
    std::ofstream(top_ + "/outside/secret") << "secret";
    std::ofstream(root_ + "/folder/file") << "file";
    files::create_directory_symlink("../outside", root_ + "/link");
    files::create_directory_symlink(top_ + "/outside", root_ + "/absolute");
    files::create_directory_symlink("folder", root_ + "/inside");
    files::create_symlink("../outside/secret", root_ + "/secret");
    files::create_symlink("../outside/new", root_ + "/dangling");
    ASSERT_EQ(::mkfifo((root_ + "/fifo").c_str(), 0600), 0);
    if (::geteuid() == 0) {
      ASSERT_EQ(::mknod((root_ + "/device").c_str(), S_IFCHR | 0600, makedev(1, 3)), 0);
    }
  }
  void TearDown() override { files::remove_all(top_); }
  Status open(const std::string& name) const {
    SWALE_ASSIGN_OR_RETURN(const Beneath beneath, Beneath::open(root_, GetParam()));
    SWALE_ASSIGN_OR_RETURN(const auto place, beneath.place_of(name));
    return beneath.look(place).status();
  }

  std::string top_;
  std::string root_;
};

TEST_P(IondNamesTest, PlantedLinksDotsAndSpecialFilesAreRefused) {
  EXPECT_TRUE(open("folder/file").ok());
  for (const char* const name : {"link/secret", "absolute/secret", "inside/file", "secret", "dangling",
                                 "../outside/secret", "folder/../../outside/secret", "folder/..", "..", ".",
                                 "", "/etc/passwd", "folder/", "folder", "fifo", "fifo/x", "folder/file/x"}) {
    EXPECT_FALSE(open(name).ok()) << name;
  }
  if (::geteuid() == 0) {
    EXPECT_FALSE(open("device").ok());
  }
}

TEST_P(IondNamesTest, NothingIsMadeThroughALink) {
  auto beneath = Beneath::open(root_, GetParam());
  ASSERT_TRUE(beneath.ok());
  EXPECT_FALSE(beneath->place_of("link/new").ok());
  const auto dangling = beneath->place_of("dangling");
  ASSERT_TRUE(dangling.ok());
  const auto made = beneath->make(*dangling, 0644);
  EXPECT_TRUE(made.ok() && !*made) << "something of that name is there";
  EXPECT_FALSE(files::exists(top_ + "/outside/new"));
}

// Another user who owns a folder of the tree exchanges it for a link, again and again, while names are looked
// up.
TEST_P(IondNamesTest, AFolderThatBecomesALinkMeanwhileLeadsNowhereElse) {
  std::ofstream(top_ + "/outside/file") << "secret";
  std::atomic<bool> stop = false;
  std::thread neighbour([&] {
    const std::string folder = root_ + "/folder", link = root_ + "/link";
    while (!stop) ::renameat2(AT_FDCWD, folder.c_str(), AT_FDCWD, link.c_str(), RENAME_EXCHANGE);
  });
  const auto beneath = Beneath::open(root_, GetParam());
  uint64_t opened = 0, refused = 0;
  const Nanos until = system_clock().now() + seconds(60);  // a busy machine may let the neighbour wait
  for (int i = 0; i < 20'000 || ((opened == 0 || refused == 0) && system_clock().now() < until); ++i) {
    const auto place = beneath->place_of("folder/file");
    const auto file = place.ok() ? beneath->look(*place) : Result<io::Descriptor>(place.status());
    if (!file.ok()) {
      ++refused;
      continue;
    }
    ++opened;
    std::ifstream in(descriptor_path(*file));
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    ASSERT_EQ(bytes, "file") << "a link was followed";
  }
  stop = true;
  neighbour.join();
  std::printf("%lu opened, %lu refused\n", opened, refused);
  EXPECT_GT(opened, 0u);
  EXPECT_GT(refused, 0u);
}

INSTANTIATE_TEST_SUITE_P(Both, IondNamesTest,
                         testing::Values(Beneath::Lookup::kByKernel, Beneath::Lookup::kByWalk),
                         [](const auto& each) {
                           return each.param == Beneath::Lookup::kByKernel ? "Kernel" : "Walk";
                         });

// The same by requests, as a client sends them.
TEST(IondNames, RequestsLeadNowhereElse) {
  std::string root = (files::current_path() / "iond-requests-XXXXXX").string();
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  files::create_directories(root + "/disk/folder");
  files::create_directory(root + "/outside");
  std::ofstream(root + "/outside/secret") << "secret";
  files::create_directory_symlink("../outside", root + "/disk/link");
  files::create_symlink("../outside/secret", root + "/disk/secret");
  ASSERT_EQ(::mkfifo((root + "/disk/fifo").c_str(), 0600), 0);
  io::PosixDevice device;
  tier::StoreOptions options;
  options.ssd_directory = root + "/ssd";
  options.backing_directory = root + "/disk";
  options.engine.segment_count = 4;
  options.engine.segment_bytes = 64 * kKiB;
  options.queue_slots = 8;
  options.slot_bytes = 8 * kKiB;
  auto store = tier::Store::open(device, options);
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  {
    const auto server = IondFiles::make({store->get(), options.backing_directory, 0, 1, 100});
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    const auto ask = [&](IondMethod method, const std::string& name, const std::string& other = "") {
      const IondRequest request = {
          .flags = kIondCreate, .striping = {kMiB, 1, 0}, .name = name, .other = other};
      return (*server)->answer(method, encode_iond_request(request, 0), 7).status();
    };
    for (const char* const name : {"link/secret", "link/new", "secret", "fifo", "../outside/secret",
                                   "/etc/passwd", "", "folder/../x", ".swale-tier/log", "link"}) {
      EXPECT_FALSE(ask(IondMethod::kOpen, name).ok()) << name;
      // "" is the top directory itself.
      EXPECT_EQ(ask(IondMethod::kPutAttribute, name, "user.a").ok(), *name == '\0') << name;
      if (std::string(name) == "link" || std::string(name) == "secret") continue;  // names of their own
      EXPECT_FALSE(ask(IondMethod::kMakeSymlink, name, "target").ok()) << name;
      EXPECT_FALSE(ask(IondMethod::kLink, name, "moved").ok()) << name;
      EXPECT_FALSE(ask(IondMethod::kReadSymlink, name).ok()) << name;
      EXPECT_FALSE(ask(IondMethod::kRemove, name).ok()) << name;
      EXPECT_FALSE(ask(IondMethod::kRename, name, "moved").ok()) << name;
    }
    // A link is text: it is read, moved and removed itself.
    EXPECT_TRUE(ask(IondMethod::kReadSymlink, "secret").ok());
    EXPECT_TRUE(ask(IondMethod::kLink, "secret", "second").ok());
    EXPECT_TRUE(files::is_symlink(root + "/disk/second"));
    EXPECT_TRUE(ask(IondMethod::kRename, "secret", "moved").ok());
    EXPECT_TRUE(ask(IondMethod::kRemove, "moved").ok());
    EXPECT_TRUE(ask(IondMethod::kOpen, "folder/mine").ok());
    EXPECT_FALSE(ask(IondMethod::kRename, "folder/mine", "link/moved").ok());
    EXPECT_FALSE(ask(IondMethod::kRename, "folder/mine", "../outside/moved").ok());
    EXPECT_TRUE(ask(IondMethod::kRename, "folder/mine", "folder/moved").ok());
    EXPECT_TRUE(files::exists(root + "/disk/folder/moved"));
    EXPECT_TRUE(ask(IondMethod::kRemove, "folder/moved").ok());
    EXPECT_FALSE(files::exists(root + "/disk/folder/moved"));
    std::ifstream in(root + "/outside/secret");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "secret");
    EXPECT_EQ(std::distance(files::directory_iterator(root + "/outside"), files::directory_iterator()), 1);
  }
  store->reset();
  files::remove_all(root);
}

TEST(IondNames, RootIsRootUnlessItIsSomebodyElseOutside) {
  EXPECT_FALSE(is_root(1000, "0 0 4294967295"));
  EXPECT_TRUE(is_root(0, "         0          0 4294967295\n"));
  EXPECT_FALSE(is_root(0, "0 1000 1\n1 100000 65536\n")) << "a container of user 1000";
  EXPECT_TRUE(is_root(0, "")) << "nothing says that it is not";
  EXPECT_EQ(expect_ordinary_user().ok(), ::geteuid() != 0) << "outside of containers";
}

}  // namespace
}  // namespace swale::iond::iond_names_test
