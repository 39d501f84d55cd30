// killed_steps DIRECTORY STRIDE [too-early]: a process of a job's tree is killed at each STRIDE-th
// instruction of an open, of writes, a commit, a fork and a close. Run it with libswale_preload.so. Exit
// status 1: something that had returned was not there, or something else was.
//
// Each point has a process and a file of its own. It makes the calls before at full speed, and then one of
// them step by step. At every other point it is killed while it stands; else it is let go first, so that the
// kill comes in the midst of a request.
//
// too-early: a process that says that a call has returned before it makes it. This must be noticed.
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "fs/log/testing/stepped_child.h"

namespace swale::fs::killed_steps {
namespace {

constexpr int kWarmWrites = 100;  // enough for the process to meet the server
constexpr size_t kFirst = 300, kPlaced = 200, kOfChild = 100, kAfter = 150;
constexpr off_t kPlace = 1000;

struct Said {
  std::atomic<int> begun, returned;
};

struct Call {
  const char* name;
  bool (*make)();
};

Said* said;
bool too_early;
int file = -1;
std::string name;

std::string bytes_of(char letter, size_t count) {
  std::string made(count, letter);
  for (size_t i = 0; i < count; ++i) made[i] = static_cast<char>(letter + i % 7);
  return made;
}
const std::string kFirstBytes = bytes_of('a', kFirst), kPlacedBytes = bytes_of('p', kPlaced);
const std::string kChildBytes = bytes_of('A', kOfChild), kAfterBytes = bytes_of('P', kAfter);

bool put(const std::string& bytes) {
  return ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}

// The fork returns after what its child writes.
void reach(std::atomic<int>& word, int number) {
  if (word.load() < number) word.store(number);
}

bool told(int number, bool (*make)()) {
  reach(said->begun, number);
  if (too_early) reach(said->returned, number);
  if (!make()) return false;
  reach(said->returned, number);
  return true;
}

bool put_of_child() { return put(kChildBytes); }
constexpr int kNumberOfChild = 6;  // what the child writes is the call after the fork

const Call kCalls[] = {
    {"open", [] { return (file = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0644)) >= 0; }},
    {"write", [] { return put(kFirstBytes); }},
    {"pwrite",
     [] { return ::pwrite(file, kPlacedBytes.data(), kPlaced, kPlace) == static_cast<ssize_t>(kPlaced); }},
    {"commit", [] { return ::fsync(file) == 0; }},
    {"fork",
     [] {
       const pid_t child = ::fork();
       if (child == 0) ::_exit(told(kNumberOfChild, put_of_child) ? 0 : 1);
       int status = 0;
       return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
     }},
    {"write after the fork", [] { return put(kAfterBytes); }},
    {"close", [] { return ::close(file) == 0; }},
};
constexpr size_t kCallsCount = sizeof(kCalls) / sizeof(kCalls[0]);
constexpr size_t kFork = 4;

// The numbers of calls begin with 1; the child's write has one of its own.
int number_of(size_t call) { return static_cast<int>(call) + (call > kFork ? 2 : 1); }

void make(size_t call) {
  if (!told(number_of(call), kCalls[call].make)) ::_exit(3);
}

void warm_up() {
  const int warm = ::open("warm", O_RDWR | O_CREAT | O_TRUNC, 0644);
  for (int i = 0; i < kWarmWrites; ++i)
    if (::write(warm, "0123456789abcde\n", 16) != 16) ::_exit(3);
}

// What the file has when so many calls have returned.
std::string content_after(int returned) {
  std::string content;
  const auto at = [&content](size_t offset, const std::string& bytes) {
    if (content.size() < offset + bytes.size()) content.resize(offset + bytes.size());
    content.replace(offset, bytes.size(), bytes);
  };
  if (returned >= 2) at(0, kFirstBytes);
  if (returned >= 3) at(kPlace, kPlacedBytes);
  if (returned >= kNumberOfChild) at(kFirst, kChildBytes);
  if (returned >= kNumberOfChild + 1) at(kFirst + kOfChild, kAfterBytes);
  return content;
}

// False: there is none.
bool content_of(std::string* content) {
  const int fd = ::open(name.c_str(), O_RDONLY);
  if (fd < 0) return false;
  char bytes[4096];
  ssize_t got = 0;
  content->clear();
  while ((got = ::read(fd, bytes, sizeof(bytes))) > 0) content->append(bytes, static_cast<size_t>(got));
  ::close(fd);
  return got == 0;
}

size_t names_in_directory() {
  DIR* const directory = ::opendir(".");
  size_t count = 0;
  while (const dirent* const each = ::readdir(directory)) count += each->d_name[0] != '.';
  ::closedir(directory);
  return count;
}

// What is wrong after a kill; null: nothing.
const char* problem() {
  const int begun = said->begun.load(), returned = said->returned.load();
  std::string content;
  const bool there = content_of(&content);
  if (names_in_directory() != (there ? 2u : 1u)) return "a name that nobody has made";
  if (!there) return returned == 0 ? nullptr : "no file, though open has returned";
  if (begun == 0) return "a file, though open has not begun";
  if (content == content_after(returned) || content == content_after(begun)) return nullptr;
  return "other bytes than those that were written";
}

// True: the call takes more instructions than `steps`.
bool kill_after(size_t call, uint64_t steps, bool let_go, const char** wrong) {
  said->begun.store(0), said->returned.store(0);
  bool goes_on = false;
  {
    SteppedChild child(
        [call] {
          warm_up();
          for (size_t i = 0; i < call; ++i) make(i);
        },
        [call] { make(call); });
    if (!child.stopped()) {
      *wrong = "the calls before it have failed";
      return false;
    }
    goes_on = child.run(steps);
    if (let_go && goes_on) child.let_go();
  }
  while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {  // what it has forked goes on to its end
  }
  *wrong = problem();
  ::unlink(name.c_str());
  return goes_on;
}

int visit_all(uint64_t stride) {
  int problems = 0;
  for (size_t call = 0; call < kCallsCount; ++call) {
    uint64_t points = 0;
    for (bool goes_on = true; goes_on; ++points) {
      const char* wrong = nullptr;
      name = "point-" + std::to_string(call) + "-" + std::to_string(points);
      goes_on = kill_after(call, points * stride, points % 2 == 1, &wrong);
      if (wrong == nullptr) continue;
      std::printf("killed after %llu instructions of %s: %s\n",
                  static_cast<unsigned long long>(points * stride), kCalls[call].name, wrong);
      ++problems;
    }
    std::printf("%s: %llu points\n", kCalls[call].name, static_cast<unsigned long long>(points));
    std::fflush(stdout);
  }
  return problems;
}

// A step would stop at the end of what the process has forked, too.
void hear_of_no_child() {
  sigset_t children;
  ::sigemptyset(&children);
  ::sigaddset(&children, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &children, nullptr);
}

// Steps go from one processor to the other slowly.
void stay_on_one_processor() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  ::sched_setaffinity(0, sizeof(one), &one);
}

int run(int count, char** words) {
  const long stride = count >= 3 ? std::atol(words[2]) : 0;
  if (stride <= 0 || ::chdir(words[1]) != 0) {
    std::fprintf(stderr, "killed_steps DIRECTORY STRIDE [too-early]\n");
    return 2;
  }
  too_early = count > 3 && std::strcmp(words[3], "too-early") == 0;
  void* const page = ::mmap(nullptr, sizeof(Said), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || ::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return 2;
  said = static_cast<Said*>(page);
  if (!SteppedChild::available()) return 77;
  hear_of_no_child();
  stay_on_one_processor();
  return visit_all(static_cast<uint64_t>(stride)) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace swale::fs::killed_steps

int main(int count, char** words) { return swale::fs::killed_steps::run(count, words); }
