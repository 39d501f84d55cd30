// A user who owns a folder of the backing tree puts links to root's files in the place of names, while calls
// through the mount make and change these names. No call may touch root's files. The canary sets a mode by
// name: the checker must see it.
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <optional>

#include "tests/security/two_users.h"

namespace swale::security::mount_race_test {
namespace {

constexpr uint64_t kNamesOfAFolder = 500;
constexpr uint64_t kTriesOfAMount = 4'000;  // it keeps a descriptor of each name that it has seen

uint64_t tries() {
  const char* wanted = std::getenv("SWALE_RACES");
  return wanted ? std::strtoull(wanted, nullptr, 10) : 2'000;
}

// What the attacker and the caller share.
struct Ring {
  std::atomic<uint64_t> turn = 0;     // the try that is under way; 0: none
  std::atomic<uint64_t> ready = 0;    // the try that the attacker is about to disturb
  std::atomic<uint64_t> swapped = 0;  // names that it replaced
};
constexpr uint64_t kEnd = ~uint64_t{0};

std::string folder_of(uint64_t i) { return fmt::format("/a/{}", i / kNamesOfAFolder); }
std::string name_of(uint64_t i) { return fmt::format("{}/x{}", folder_of(i), i); }

// Replaces each name as soon as it is there, or in every other round is there before it. `go` has a byte for
// each try: between two tries the attacker sleeps, and takes no processor from the next one's beginning.
int attack(Ring& ring, int go, uint64_t first) {
  char byte = 0;
  for (uint64_t i = first; ::read(go, &byte, 1) == 1; ++i) {
    const std::string name = "backing" + name_of(i), link = fmt::format("backing{}/s{}", folder_of(i), i);
    if (::symlink(i % 4 < 2 ? "../../victim" : "../../../victim", link.c_str()) != 0) {
      const int failed = errno;
      ring.ready = kEnd;  // nobody waits for it
      return failed;
    }
    ring.ready = i;
    const unsigned how = i % 2 == 0 ? RENAME_EXCHANGE : 0;
    do {
      if (::renameat2(AT_FDCWD, link.c_str(), AT_FDCWD, name.c_str(), how) == 0) {
        ++ring.swapped;
        break;
      }
    } while (ring.turn == i);  // once at least, however late this process runs
  }
  return 0;
}

// A call by a name that may be replaced at any moment.
struct Call {
  const char* what;
  bool needs_file;  // that is there before
  bool by_root;     // also safe when root makes it: it follows no link
  std::function<void(const std::string& path)> make;
};

template <class... Modes>
void open_and_write(const std::string& path, int flags, Modes... mode) {
  const int file = ::open(path.c_str(), flags | O_CLOEXEC, mode...);
  if (file < 0) return;
  static_cast<void>(::pwrite(file, "overwritten", 11, 0));
  static_cast<void>(::fchmod(file, 0777));
  ::close(file);
}

std::vector<Call> calls() {
  return {
      {"mkdir", false, true, [](const std::string& at) { static_cast<void>(::mkdir(at.c_str(), 0777)); }},
      {"mknod", false, true,
       [](const std::string& at) { static_cast<void>(::mknod(at.c_str(), S_IFIFO | 0777, 0)); }},
      {"create", false, true,
       [](const std::string& at) { open_and_write(at, O_CREAT | O_EXCL | O_RDWR, 0777); }},
      {"create or open", false, false,
       [](const std::string& at) { open_and_write(at, O_CREAT | O_RDWR, 0777); }},
      {"symlink", false, true,
       [](const std::string& at) { static_cast<void>(::symlink("nowhere", at.c_str())); }},
      {"link", false, true,
       [](const std::string& at) { static_cast<void>(::link("mnt/a/own", at.c_str())); }},
      {"chmod", true, false, [](const std::string& at) { static_cast<void>(::chmod(at.c_str(), 0777)); }},
      {"chown", true, false,
       [](const std::string& at) { static_cast<void>(::chown(at.c_str(), kAlice, kAlice)); }},
      {"truncate", true, false, [](const std::string& at) { static_cast<void>(::truncate(at.c_str(), 0)); }},
      {"open", true, false, [](const std::string& at) { open_and_write(at, O_RDWR | O_TRUNC); }},
      {"setxattr", true, false,
       [](const std::string& at) { static_cast<void>(::setxattr(at.c_str(), "user.x", "y", 1, 0)); }},
      {"utimens", true, false,
       [](const std::string& at) {
         const timespec times[2] = {{5, 0}, {5, 0}};
         static_cast<void>(::utimensat(AT_FDCWD, at.c_str(), times, 0));
       }},
      {"rename", true, true,
       [](const std::string& at) { static_cast<void>(::rename(at.c_str(), (at + "-new").c_str())); }},
      {"unlink", true, true, [](const std::string& at) { static_cast<void>(::unlink(at.c_str())); }},
  };
}

class MountRaceTest : public TwoUsers {
 protected:
  void SetUp() override {
    TwoUsers::SetUp();
    if (IsSkipped()) return;
    file("victim", 0, 0600);
    file("backing/victim", 0, 0600);
    folder("backing/a", kAlice, 0755);
    file("backing/a/own", kAlice, 0644);
    void* const memory =
        ::mmap(nullptr, sizeof(Ring), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    ring_ = new (memory) Ring;
  }

  static std::string state_of(const std::string& path) {
    struct stat found = {};
    EXPECT_EQ(::lstat(path.c_str(), &found), 0);
    return fmt::format("{}: mode {:o} owner {}:{} links {} size {} changed {}.{} content {}", path,
                       found.st_mode, found.st_uid, found.st_gid, found.st_nlink, found.st_size,
                       found.st_ctim.tv_sec, found.st_ctim.tv_nsec, content(path));
  }
  static std::string victims() { return state_of("victim") + "\n" + state_of("backing/victim"); }

  // Makes calls by names that are being replaced; answers what became of root's files, "" if nothing did. Try
  // numbers from `first`, none twice in a test.
  std::string race(const std::vector<Call>& list, uint64_t first, uint64_t count) {
    const std::string before = victims();
    int go[2];
    if (::pipe(go) != 0) return "no pipe";
    const pid_t attacker = start({kAlice}, [&] {
      ::close(go[1]);
      return attack(*ring_, go[0], first);
    });
    ::close(go[0]);
    std::string found;
    for (uint64_t i = first; i < first + count && found.empty(); ++i) {
      const Call& call = list[i % list.size()];
      if (!std::filesystem::exists("backing" + folder_of(i))) folder("backing" + folder_of(i), kAlice, 0755);
      const std::string path = "mnt" + name_of(i);
      const User caller{call.by_root && i / list.size() % 2 == 0 ? 0 : kAlice, {}};
      const pid_t child = start(caller, [&] {
        if (call.needs_file) {
          const int made = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
          if (made >= 0) ::close(made);
        }
        ring_->turn = i;
        if (::write(go[1], "g", 1) != 1) return errno;
        while (ring_->ready < i) ::sched_yield();
        call.make(path);
        return 0;
      });
      int state = 0;
      ::waitpid(child, &state, 0);
      if (state != 0) found = fmt::format("try {}, {}: the caller ended with {}", i, call.what, state);
      if (const std::string after = victims(); after != before)
        found = fmt::format("try {}, {} by user {}: {}", i, call.what, caller.id, after);
      ring_->turn = 0;
    }
    ::close(go[1]);
    int state = 0;
    ::waitpid(attacker, &state, 0);
    EXPECT_EQ(state, 0) << "the attacker failed";
    return found;
  }

  Ring* ring_ = nullptr;
};

TEST_F(MountRaceTest, ALinkInTheNamesPlaceLeadsNoCallToRootsFiles) {
  for (uint64_t done = 0; done < tries(); done += kTriesOfAMount) {
    ASSERT_EQ(mount(for_others()), "");
    ASSERT_EQ(race(calls(), done + 1, std::min(kTriesOfAMount, tries() - done)), "");
    ASSERT_EQ(unmount(), 0);
  }
  std::printf("%lu of %lu names were replaced\n", ring_->swapped.load(), tries());
  EXPECT_GT(ring_->swapped.load(), tries() / 4);
}

TEST_F(MountRaceTest, CanaryAModeThatIsSetByNameIsSeen) {
  fuse::MountOptions wanted = for_others();
  wanted.made_directory = [](int parent, const char* name, mode_t mode) {
    ::usleep(1'000);  // also where there is one processor, the attacker gets between
    static_cast<void>(::fchmodat(parent, name, mode, 0));  // by name: it follows links
  };
  ASSERT_EQ(mount(wanted), "");
  const std::string found = race({calls().front()}, 1, 5'000);
  EXPECT_NE(found.find("victim: mode"), std::string::npos) << found;
  std::printf("found: %s\n", found.c_str());
  EXPECT_EQ(unmount(), 0);
}

}  // namespace
}  // namespace swale::security::mount_race_test
