#include "tests/faults/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace swale::faults {
namespace {

// The kernel says up to a second late that a link is there; ranks use what it says runs. At most 20 s.
constexpr const char* kUntilRunning =
    "sh -c 'for i in $(seq 400); do ip -o link show eth0 | grep -q LOWER_UP.*state.UP && exit 0; "
    "sleep 0.05; done; exit 1'";

std::string namespace_of(pid_t holder) { return fmt::format("--net=/proc/{}/ns/net", holder); }

// As fork, with namespaces for the child.
pid_t clone_process(uint64_t spaces) {
  return static_cast<pid_t>(::syscall(SYS_clone, spaces | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}

// A /proc of its own, which shows the host's processes; a name of its own. In a chroot "/" is no mount, but
// /proc is one.
bool furnish_host(int number) {
  const std::string name = fmt::format("host-{}", number);
  return ::mount("none", "/proc", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0 &&
         ::sethostname(name.data(), name.size()) == 0;
}

}  // namespace

// A child that does nothing in namespaces of its own; -1 if it may not have them. A host's is the first
// process of its host: when it ends, so do all of them.
pid_t Network::hold_namespace(Places kind, int number) {
  int ready[2];
  if (::pipe(ready) != 0) return -1;
  const pid_t parent = ::getpid();
  const bool host = kind == Places::kHosts;
  const uint64_t spaces = host ? CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNS | CLONE_NEWPID : 0;
  const pid_t child = host ? clone_process(spaces) : ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const bool made = host ? furnish_host(number) : ::getppid() == parent && ::unshare(CLONE_NEWNET) == 0;
    if (!made || ::write(ready[1], "r", 1) != 1) ::_exit(1);
    // The test's own pipes must end when the test closes them.
    for (int fd = 0; fd < 1024; ++fd) ::close(fd);
    for (;;) ::pause();
  }
  ::close(ready[1]);
  char byte = 0;
  const bool made = child > 0 && ::read(ready[0], &byte, 1) == 1;
  ::close(ready[0]);
  if (made) return child;
  if (child > 0) ::waitpid(child, nullptr, 0);
  return -1;
}

bool Network::run(pid_t holder, const std::string& command) const {
  const std::string line =
      fmt::format("PATH=$PATH:/usr/sbin:/sbin nsenter {} {} >/dev/null 2>&1", namespace_of(holder), command);
  return std::system(line.c_str()) == 0;
}

std::unique_ptr<Network> Network::make(int places, std::string* why, Places kind) {
  std::unique_ptr<Network> network(new Network());
  network->kind_ = kind;
  network->switch_ = hold_namespace();
  if (network->switch_ < 0) {
    *why = "no network namespaces here: needs root";
    return nullptr;
  }
  bool made = network->run(network->switch_, "ip link add name hub type bridge") &&
              network->run(network->switch_, "ip link set hub up") &&
              network->run(network->switch_, "ip addr add 10.77.0.254/24 dev hub") &&
              network->run(network->switch_, "ip link set lo up");
  for (int rank = 0; rank < places && made; ++rank) {
    const pid_t holder = hold_namespace(kind, rank);
    if (holder < 0) {
      *why = "no namespaces of hosts here: processes and mounts of their own, which a container may forbid";
      return nullptr;
    }
    network->ranks_.push_back(holder);
    made = network->run(
               network->switch_,
               fmt::format("ip link add name port{} type veth peer name eth0 netns {}", rank, holder)) &&
           network->run(network->switch_, fmt::format("ip link set port{} master hub up", rank)) &&
           network->run(holder, fmt::format("ip addr add {}/24 dev eth0", address(rank))) &&
           network->run(holder, "ip link set eth0 up") && network->run(holder, "ip link set lo up") &&
           network->run(holder, kUntilRunning);
  }
  if (made) return network;
  *why = "no bridge or no virtual Ethernet here: needs root, iproute2 and the kernel's modules for them";
  return nullptr;
}

Network::~Network() {
  ranks_.push_back(switch_);
  for (const pid_t holder : ranks_) {
    if (holder <= 0) continue;
    ::kill(holder, SIGKILL);
    ::waitpid(holder, nullptr, 0);
  }
}

std::vector<std::string> Network::enter(int place) const {
  const pid_t holder = ranks_[static_cast<size_t>(place)];
  std::vector<std::string> words = {"/usr/bin/nsenter", namespace_of(holder)};
  if (kind_ == Places::kNetworks) return words;
  for (const char* const space : {"ipc", "uts", "pid"})
    words.push_back(fmt::format("--{}=/proc/{}/ns/{}", space, holder, space));
  words.push_back(fmt::format("--mount=/proc/{}/ns/mnt", holder));
  words.push_back(fmt::format("--root=/proc/{}/root", holder));  // that of a chroot, if the test is in one
  return words;
}

std::string Network::address(int place) { return fmt::format("10.77.0.{}", place + 1); }

std::vector<std::string> Network::enter_switch() const { return {"/usr/bin/nsenter", namespace_of(switch_)}; }

bool Network::write_agent(const std::string& path) const {
  std::ofstream script(path);
  // In a chroot the working folder is not one of the host. Open MPI 5 wants its own for temporary files: the
  // hosts number their processes from 1, and so find the files of an earlier launcher, which it refuses to
  // use.
  script << "#!/bin/sh\nTMPDIR=${0%/*}\nexport TMPDIR\nhost=$1\nshift\ncase $host in\n";
  for (int place = 0; place < static_cast<int>(ranks_.size()); ++place)
    script << fmt::format("{}) exec {} /bin/sh -c \"cd / && $*\";;\n", address(place),
                          fmt::join(enter(place), " "));
  script << "esac\necho \"no host $host\" >&2\nexit 1\n";
  script.close();
  return script && ::chmod(path.c_str(), 0700) == 0;
}

Network::Traffic Network::traffic(int place) const {
  std::ifstream devices(fmt::format("/proc/{}/net/dev", ranks_[static_cast<size_t>(place)]));
  Traffic traffic;
  for (std::string line; std::getline(devices, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const uint64_t received = std::strtoull(line.c_str() + colon + 1, nullptr, 10);
    if (line.find("eth0:") != std::string::npos) traffic.across = received;
    if (line.find("lo:") != std::string::npos) traffic.inside = received;
  }
  return traffic;
}

bool Network::cut(int rank, Cut how) {
  return run(switch_, fmt::format("ip link set port{} {}", rank, how == Cut::kSilent ? "nomaster" : "down"));
}

// A connection that is refused has reached somebody; one that nobody answers ends by the deadline.
bool Network::reaches(int rank, int other) const {
  const std::string probe = fmt::format(
      "python3 -c 'import errno, socket; s = socket.socket(); s.settimeout(2); "
      "raise SystemExit(s.connect_ex((\"{}\", 9)) != errno.ECONNREFUSED)'",
      address(other));
  return run(ranks_[static_cast<size_t>(rank)], probe);
}

}  // namespace swale::faults
