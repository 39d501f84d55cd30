// Planted links: a neighbour who may write to a user's directory puts a link, another name of a file, or a
// FIFO where Swale is going to make or open something. What a run opens is recorded first; then each of these
// names is planted in turn, and the same is done as the user. Nothing behind a link may be read into an
// output, changed or cut, nothing may wait, and a refusal names the path. Needs root, who acts as two users.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "imd/check/repair.h"
#include "imd/check/verify.h"
#include "imd/read/reader.h"
#include "imd/write/writer.h"
#include "io/fault_device.h"
#include "io/posix_device.h"
#include "meta/store/store.h"
#include "net/job/job.h"
#include "net/meeting/bootstrap.h"
#include "run/layout.h"
#include "tier/trace/trace_writer.h"

namespace swale::security {
namespace {

namespace files = std::filesystem;

constexpr uid_t kAlice = 20001, kBob = 20002;  // whose directory it is, and the neighbour
constexpr gid_t kTeam = 20100;                 // both are in it, and it may write to the directory
constexpr char kSecret[] = "precious bytes of Alice alone";

std::string on_disk(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Ran {
  int answer = 0;  // exit status; -1: it waited
  std::string output;
};

// In a process of the user, with its output in a file.
Ran run_as(uid_t user, const std::string& output, const std::function<int()>& body,
           int patience_ms = 60'000) {
  std::cout.flush();
  const pid_t child = ::fork();
  if (child == 0) {
    const int out = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::umask(002);
    if (user != 0 && (::setgroups(1, &kTeam) != 0 || ::setresgid(user, user, user) != 0 ||
                      ::setresuid(user, user, user) != 0))
      ::_exit(254);
    ::prctl(PR_SET_DUMPABLE, 1);
    const int answer = body();
    std::fflush(nullptr);
    ::_exit(answer);
  }
  int state = 0;
  for (int waited_ms = 0; ::waitpid(child, &state, WNOHANG) == 0; waited_ms += 5) {
    if (waited_ms > patience_ms) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &state, 0);
      return {-1, on_disk(output)};
    }
    ::usleep(5000);
  }
  return {WIFEXITED(state) ? WEXITSTATUS(state) : 255, on_disk(output)};
}

int said(const Status& status) {
  if (!status.ok()) std::cerr << status.to_string() << std::endl;
  return status.ok() ? 0 : 1;
}

std::unique_ptr<net::Job> alone() {
  net::JobOptions options;
  options.transport = "loopback";
  return net::Job::open(net::solo_bootstrap(), options).value();
}

using Act = std::function<Status(io::Device& device, const std::string& path)>;

Status write_epoch(io::Device& device, const std::string& path, run::ShuffleFormat format) {
  const auto job = alone();
  imd::WriterOptions options;
  options.memory_bytes = 20 * kMiB;
  options.format = format;
  SWALE_ASSIGN_OR_RETURN(const auto writer,
                         imd::Writer::open(*job, device, path, imd::Create::kIfMissing, options));
  for (int i = 0; i < 50; ++i)
    SWALE_RETURN_IF_ERROR(writer->append(fmt::format("key-{}", i), std::string(i < 48 ? 30 : 100'000, 'v')));
  SWALE_RETURN_IF_ERROR(writer->epoch_end(1, 1));
  SWALE_RETURN_IF_ERROR(writer->close());
  return job->close();
}

Status read_epochs(io::Device& device, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const auto reader, imd::Reader::open(device, path, {}));
  SWALE_RETURN_IF_ERROR(reader->scan(-1, [](EpochNumber, Bytes, Bytes) { return true; }));
  const auto report = imd::verify_directory(*reader, 5);
  return report.problems.empty() ? Status() : report.problems.front();
}

Status use_store(io::Device& device, const std::string& path, bool reads) {
  const auto job = alone();
  meta::StoreOptions options;
  options.open = reads ? meta::OpenStore::kReadOnly : meta::OpenStore::kCreate;
  SWALE_ASSIGN_OR_RETURN(const auto store, meta::Store::open(*job, device, path, options));
  auto client = store->client();
  if (!reads) {
    for (const std::string name : {"sealed", "removed", "open"}) {
      // Of this process: what was sealed before takes no more.
      const std::string own = name == "open" ? name : fmt::format("{}-{}", name, ::getpid());
      SWALE_ASSIGN_OR_RETURN(auto file, client->open(own, meta::Client::kCreate, 0644, 1));
      std::vector<meta::Extent> extents(1000);
      for (size_t i = 0; i < extents.size(); ++i) extents[i] = {i * 8192, 100, {1, i * 7919}};
      SWALE_RETURN_IF_ERROR(client->put(&file, extents));
      if (name == "sealed") SWALE_RETURN_IF_ERROR(client->seal(&file));
      SWALE_RETURN_IF_ERROR(client->close(&file, 2).status());
    }
    SWALE_RETURN_IF_ERROR(client->remove(fmt::format("removed-{}", ::getpid())));
  } else {
    SWALE_RETURN_IF_ERROR(client->stat("open").status());
  }
  client.reset();
  SWALE_RETURN_IF_ERROR(store->close());
  return job->close();
}

enum class Plant { kLink, kDangling, kSecondName, kFifo };
constexpr const char* kPlants[] = {"link", "dangling link", "second name", "FIFO"};

class PlantedLinks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs two users: run it as root";
    root_ = (files::current_path() / "planted-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
    ASSERT_EQ(::chmod(root_.c_str(), 0755), 0);
    make_victim();
    make_team_folder(root_ + "/base");
  }
  void TearDown() override {
    if (!root_.empty()) files::remove_all(root_);
  }
  // Whom the links lead to: a secret, a folder, and whatever is made there.
  void make_victim() {
    files::remove_all(root_ + "/victim");
    files::create_directories(root_ + "/victim/folder");
    std::ofstream(root_ + "/victim/secret") << kSecret;
    std::ofstream(root_ + "/victim/folder/file") << kSecret;
    for (const char* const name : {"/victim/folder/file", "/victim/folder", "/victim/secret", "/victim"}) {
      const std::string path = root_ + name;
      ASSERT_EQ(::chown(path.c_str(), kAlice, kAlice), 0);
      ASSERT_EQ(::chmod(path.c_str(), files::is_directory(path) ? 0700 : 0600), 0);
    }
    victim_ = fingerprint();
  }
  static void make_team_folder(const std::string& path) {
    ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
    ASSERT_EQ(::chown(path.c_str(), kAlice, kTeam), 0);
    ASSERT_EQ(::chmod(path.c_str(), 02775), 0);
  }
  std::string output() const { return root_ + "/output"; }
  std::string work() const { return root_ + "/work"; }

  // All that a neighbour could have changed of the victim.
  std::map<std::string, std::string> fingerprint() const {
    std::map<std::string, std::string> found;
    for (const auto& each : files::recursive_directory_iterator(root_ + "/victim")) {
      struct stat is;
      EXPECT_EQ(::lstat(each.path().c_str(), &is), 0);
      found[each.path().string()] = fmt::format(
          "mode {:o} size {} changed {}.{} {}", is.st_mode, S_ISREG(is.st_mode) ? is.st_size : 0,
          is.st_mtim.tv_sec, is.st_mtim.tv_nsec, S_ISREG(is.st_mode) ? on_disk(each.path().string()) : "");
    }
    return found;
  }

  // The work directory as the base is, with the owners and times of all.
  void start_over() const {
    files::remove_all(work());
    ASSERT_EQ(std::system(fmt::format("cp -a '{}/base' '{}'", root_, work()).c_str()), 0);
  }

  // The names below the directory that the act opens, makes, renames or looks for.
  std::set<std::string> names_of(const Act& act) const {
    start_over();
    const Ran ran = run_as(kAlice, output(), [&] {
      io::PosixDevice posix;
      io::FaultDevice recorded(posix);
      recorded.set_hook([&](const io::Call& call) {
        if (call.path.starts_with(work() + "/")) {
          const std::string line = call.path.substr(work().size() + 1) + "\n";
          EXPECT_GT(::write(STDOUT_FILENO, line.data(), line.size()), 0);  // whole, by any thread
        }
        return Status();
      });
      return said(act(recorded, work()));
    });
    EXPECT_EQ(ran.answer, 0) << ran.output;
    std::set<std::string> names;
    std::istringstream lines(ran.output);
    // A lock's draft has 64 random bits in its name.
    const std::regex random("\\.[0-9a-f]{16}\\.tmp$");
    for (std::string line; std::getline(lines, line);)
      if (line.find(' ') == std::string::npos && !std::regex_search(line, random)) names.insert(line);
    return names;
  }

  // False: the neighbour can't, as there is no folder for it.
  bool plant(const std::string& name, Plant kind) const {
    const std::string path = work() + "/" + name;
    if (!files::is_directory(files::path(path).parent_path())) return false;
    const bool folder = files::is_directory(path) || name == "jobs/0002";
    // Another name of Alice's file is what fs.protected_hardlinks=0 allows: root makes it.
    const Ran ran = run_as(kind == Plant::kSecondName ? 0 : kBob, output(), [&] {
      static_cast<void>(::rename(path.c_str(), (path + ".kept").c_str()));
      const std::string secret = root_ + "/victim/" + (folder ? "folder" : "secret");
      switch (kind) {
        case Plant::kLink:
          return ::symlink(secret.c_str(), path.c_str());
        case Plant::kDangling:
          return ::symlink((root_ + "/victim/new").c_str(), path.c_str());
        case Plant::kSecondName:
          return ::link((root_ + "/victim/secret").c_str(), path.c_str());
        case Plant::kFifo:
          break;
      }
      return ::mkfifo(path.c_str(), 0666);
    });
    EXPECT_EQ(ran.answer, 0) << name;
    return true;
  }

  // What is wrong after an act; empty: nothing.
  std::string harm(const Ran& ran, const std::string& name) const {
    if (ran.answer < 0) return "it waits";
    if (fingerprint() != victim_) return "the victim's files have changed";
    if (ran.output.find(kSecret) != std::string::npos) return "the output has what the link leads to";
    struct stat secret;
    ::stat((root_ + "/victim/secret").c_str(), &secret);
    for (const auto& each : files::recursive_directory_iterator(work())) {
      struct stat is;
      if (::lstat(each.path().c_str(), &is) != 0 || !S_ISREG(is.st_mode) || is.st_ino == secret.st_ino)
        continue;
      if (on_disk(each.path().string()).find(kSecret) != std::string::npos)
        return each.path().string() + " has what the link leads to";
    }
    if (ran.answer == 254 || ran.answer == 255) return "it did not run";
    if (ran.answer != 0 && ran.output.find(work() + "/" + name) == std::string::npos)
      return "the error does not name the path: " + ran.output;
    return "";
  }

  // Plants each name in each way, and acts. Returns how often there was harm.
  int attack(const std::string& what, const std::set<std::string>& names, const std::function<int()>& act) {
    int harmed = 0;
    for (const std::string& name : names) {
      for (const Plant kind : kinds_) {
        start_over();
        if (!plant(name, kind)) continue;
        const Ran ran = run_as(kAlice, output(), act, patience_ms_);
        const std::string wrong = harm(ran, name);
        std::cout << fmt::format("{:<10} {:<40} {:<14} {}\n", what, name, kPlants[static_cast<int>(kind)],
                                 !wrong.empty()    ? "HARM: " + wrong
                                 : ran.answer == 0 ? "goes on"
                                                   : "refused");
        if (wrong.empty()) continue;
        ++harmed;
        make_victim();
      }
    }
    return harmed;
  }
  int attack(const std::string& what, const std::set<std::string>& names, const Act& act, bool within) {
    return attack(what, names, [this, act, within] {
      io::PosixDevice device({}, within ? work() : "");  // as the C interface makes them
      return said(act(device, work()));
    });
  }
  int command(const std::string& what, const std::vector<std::string>& words,
              const std::set<std::string>& names) {
    return attack(what, names, [this, words] {
      std::vector<std::string> all = {SWALE_COMMAND};
      all.insert(all.end(), words.begin(), words.end());
      all.push_back(work());
      std::vector<char*> arguments;
      for (std::string& word : all) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      ::execv(arguments[0], arguments.data());
      return 255;
    });
  }
  // It shows what is in a file, and none says that it has another name.
  int dump(const std::set<std::string>& names) {
    const auto every = kinds_;
    std::erase(kinds_, Plant::kSecondName);
    const int harmed = command("dump", {"dump"}, names);
    kinds_ = every;
    return harmed;
  }
  void make_base(const Act& act) {
    const Ran ran = run_as(kAlice, output(), [&] {
      io::PosixDevice device;
      return said(act(device, root_ + "/base"));
    });
    ASSERT_EQ(ran.answer, 0) << ran.output;
  }

  std::string root_;
  std::map<std::string, std::string> victim_;
  std::vector<Plant> kinds_ = {Plant::kLink, Plant::kDangling, Plant::kSecondName, Plant::kFifo};
  int patience_ms_ = 60'000;  // after that a run is said to wait for ever
};

TEST_F(PlantedLinks, OnEveryPathOfAMassiveDirectory) {
  const auto writes = [](run::ShuffleFormat format) {
    return
        [format](io::Device& device, const std::string& path) { return write_epoch(device, path, format); };
  };
  for (const auto format :
       {run::ShuffleFormat::kBase, run::ShuffleFormat::kIndirect, run::ShuffleFormat::kLossy}) {
    files::remove_all(root_ + "/base");
    make_team_folder(root_ + "/base");
    make_base(writes(format));
    const std::set<std::string> written = names_of(writes(format)), read = names_of(read_epochs);
    ASSERT_GE(written.size(), 10u);
    ASSERT_GE(read.size(), 4u);
    EXPECT_EQ(attack("write", written, writes(format), false), 0);
    EXPECT_EQ(attack("read", read, read_epochs, true), 0);
    std::set<std::string> all = read;
    for (const char* const more : {"swale.lock", "p000", "jobs", "jobs/0001", "jobs/0001/stats.jsonl"})
      all.insert(more);
    EXPECT_EQ(command("verify", {"verify"}, all), 0);
    EXPECT_EQ(command("info", {"info"}, all), 0);
    const auto every_kind = kinds_;
    std::erase(kinds_,
               Plant::kSecondName);  // it shows what a file has: no file says that it has another name
    EXPECT_EQ(command("dump", {"dump"}, all), 0);
    kinds_ = every_kind;
    EXPECT_EQ(command("unlock", {"unlock"}, {"swale.lock"}), 0);
    // A repair has most to do without a manifest and with an index that is cut.
    files::remove(root_ + "/base/swale.json");
    files::resize_file(root_ + "/base/p000/part-000000.j0001.index", 5000);
    const Act repair = [](io::Device& device, const std::string& path) {
      return imd::repair_directory(device, path, {}).status();
    };
    const std::set<std::string> repaired = names_of(repair);
    ASSERT_GE(repaired.size(), 10u);
    EXPECT_EQ(attack("repair", repaired, repair, true), 0);
  }
}

TEST_F(PlantedLinks, OnEveryPathOfAMetadataStore) {
  const Act write = [](io::Device& device, const std::string& path) {
    return use_store(device, path, false);
  };
  const Act read = [](io::Device& device, const std::string& path) { return use_store(device, path, true); };
  make_base(write);
  const std::set<std::string> written = names_of(write), looked_at = names_of(read);
  ASSERT_GE(written.size(), 8u);
  EXPECT_EQ(attack("write", written, write, true), 0);
  EXPECT_EQ(attack("read", looked_at, read, true), 0);
  for (const char* const each : {"verify", "info"}) EXPECT_EQ(command(each, {each}, looked_at), 0);
  EXPECT_EQ(dump(looked_at), 0);
}

// A mount's messages and traces go where the user says, which may be a folder that all can write to.
TEST_F(PlantedLinks, OnFilesOfAMountThatOptionsName) {
  EXPECT_EQ(attack("--log", {"messages"},
                   [this] {
                     const std::string log = work() + "/messages";
                     ::execl(SWALE_COMMAND, SWALE_COMMAND, "tier", "mount", "--log", log.c_str(), "--ssd",
                             (root_ + "/no-ssd").c_str(), "--backing", (root_ + "/no-backing").c_str(),
                             (root_ + "/no-mountpoint").c_str(), nullptr);
                     return 255;
                   }),
            0);
  EXPECT_EQ(attack(
                "--trace", {"trace"},
                [](io::Device& device, const std::string& path) {
                  return tier::TraceWriter::open(device, path + "/trace").status();
                },
                false),
            0);
}

// Links of the user's own are not planted: folders of partitions may lie on other disks.
TEST_F(PlantedLinks, UsersMayLinkFoldersAndTheDirectoryItself) {
  const Act write = [](io::Device& device, const std::string& path) {
    return write_epoch(device, path, run::ShuffleFormat::kBase);
  };
  make_base(write);
  start_over();
  files::rename(work() + "/p000", root_ + "/disk");
  files::create_directory_symlink(root_ + "/disk", work() + "/p000");
  ASSERT_EQ(::lchown((work() + "/p000").c_str(), kAlice, kAlice), 0);
  files::create_directory_symlink(work(), root_ + "/run");
  ASSERT_EQ(::lchown((root_ + "/run").c_str(), kBob, kBob), 0);
  const Ran ran = run_as(kAlice, output(), [&] {
    io::PosixDevice writes, reads({}, root_ + "/run");
    return said(write(writes, root_ + "/run")) + said(read_epochs(reads, root_ + "/run"));
  });
  EXPECT_EQ(ran.answer, 0) << ran.output;
  EXPECT_TRUE(files::exists(root_ + "/disk/part-000000.j0002.data"));
}

// What follows, copies, waits or says nothing is found.
TEST_F(PlantedLinks, CanaryHarmIsSeen) {
  const std::set<std::string> one = {"state"};
  const auto path = [this] { return work() + "/state"; };
  const auto opens = [&](int flags, const std::function<void(int)>& then) {
    return [=] {
      const int fd = ::open(path().c_str(), flags, 0600);
      if (fd >= 0) then(fd);
      return 0;
    };
  };
  const auto writes = [](int fd) { EXPECT_EQ(::write(fd, "x", 1), 1); };
  EXPECT_EQ(attack("writes", one, opens(O_RDWR | O_CREAT | O_NONBLOCK, writes)), 3) << "all but the FIFO";
  EXPECT_EQ(attack("cuts", one, opens(O_RDWR | O_TRUNC | O_NONBLOCK, [](int) {})), 2);
  EXPECT_EQ(attack("chmods", one, opens(O_RDONLY | O_NONBLOCK, [](int fd) { ::fchmod(fd, 0644); })), 2);
  EXPECT_EQ(attack("tells", one,
                   opens(O_RDONLY | O_NONBLOCK,
                         [](int fd) {
                           char bytes[64];
                           const ssize_t got = ::read(fd, bytes, sizeof(bytes));
                           if (got > 0) std::cout.write(bytes, got).flush();
                         })),
            2);
  EXPECT_EQ(attack("copies", one,
                   [&] {
                     std::error_code none;
                     if (files::is_regular_file(path(), none)) files::copy_file(path(), work() + "/copy");
                     return 0;
                   }),
            2);
  EXPECT_EQ(attack("names nothing", one, [] { return 1; }), 4);
  patience_ms_ = 10'000;  // all others end at once
  EXPECT_EQ(attack("waits", one, opens(O_RDONLY, [](int) {})), 1) << "for the FIFO";
}

}  // namespace
}  // namespace swale::security
