// bench_mount --path DIR --policy P --mib N --requests N --rounds N: writes through `swale tier mount`,
// through a pass-through that does nothing (without splice and with it: the better one counts), and to plain
// files, all on one file system, in turns.
//
// Per round and place: N MiB in writes of 1 MiB to a new file, and requests of 4 KiB at random offsets of a
// file of a quarter of N MiB. Durability is the page cache's everywhere: neither is synced while the clock
// runs, and all is synced before it runs again. Prints one line of JSON: MB/s and requests a second, each
// round's.
//
// As root also: what it costs that requests run as their callers. An ordinary user makes N / 10 empty files,
// and writes 4 KiB at random offsets, on two more mounts that differ in this alone. The two take turns every
// few requests, so that what else the machine does meets both; a round's rate is that of its middle turn.
// --callers-alone 1: nothing but this.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "bench/arguments.h"
#include "bench/measure.h"
#include "bench/processes.h"
#include "bench/tier/passthrough.h"
#include "fuse/mount.h"
#include "tier/store/serving_options.h"

namespace swale::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr unsigned kThreads = 10;
constexpr size_t kSmall = 4096;
constexpr uint64_t kLogMib = 1024;
constexpr uid_t kUser = 20001;
constexpr uint64_t kRequestsOfAFile = 10;
constexpr uint64_t kTurn = 20;          // requests
constexpr uint64_t kRoundsOfAUser = 8;  // for each round

struct Place {
  std::string name;
  std::string directory;  // where the benchmark writes
  pid_t server = 0;
  std::vector<double> sequential;  // MB/s
  std::vector<double> random;      // requests a second
  std::vector<double> creates;     // a second
};

void write_all(int file, const std::string& bytes, uint64_t offset) {
  if (::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset)) !=
      static_cast<ssize_t>(bytes.size()))
    die(fmt::format("a write failed: {}", ::strerror(errno)));
}

int make_file(const Place& place, const char* name) {
  const int file =
      ::open((place.directory + "/" + name).c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0644);
  if (file < 0) die(fmt::format("{}/{}: {}", place.directory, name, ::strerror(errno)));
  return file;
}

void settle(int file, const Place& place, const char* name) {
  ::fsync(file);
  ::close(file);
  if (name != nullptr) ::unlink((place.directory + "/" + name).c_str());
  ::sync();
}

double sequential(const Place& place, uint64_t mib, const std::string& bytes) {
  const int file = make_file(place, "seq");
  const Stopwatch clock;
  for (uint64_t i = 0; i < mib; ++i) write_all(file, bytes, i << 20);
  const double seconds = clock.wall_s();
  settle(file, place, "seq");
  return static_cast<double>(mib << 20) / 1e6 / seconds;
}

double random(const Place& place, uint64_t mib, uint64_t requests, const std::string& bytes, uint64_t seed) {
  const int file = make_file(place, "random");
  for (uint64_t i = 0; i < mib; ++i) write_all(file, bytes, i << 20);
  ::fsync(file);
  ::sync();
  const std::string small = bytes.substr(0, kSmall);
  Rng rng(seed);
  const Stopwatch clock;
  for (uint64_t i = 0; i < requests; ++i) write_all(file, small, rng.below((mib << 20) / kSmall) * kSmall);
  const double seconds = clock.wall_s();
  settle(file, place, "random");
  return static_cast<double>(requests) / seconds;
}

// The calls of this thread are an ordinary user's while it lives.
class AsUser {
 public:
  AsUser() {
    if (::setegid(kUser) != 0 || ::seteuid(kUser) != 0) die("becoming an ordinary user");
  }
  ~AsUser() {
    if (::seteuid(0) != 0 || ::setegid(0) != 0) die("becoming root again");
  }
  AsUser(const AsUser&) = delete;
  AsUser& operator=(const AsUser&) = delete;
};

// Makes `requests` requests at each place by turns of kTurn, and gives each the rate of its middle one.
// `request(place, i)` makes the i-th.
template <class Request>
void by_turns(std::vector<Place>& places, uint64_t requests, std::vector<double> Place::*rates,
              const Request& request) {
  std::vector<std::vector<double>> seconds(places.size());
  for (uint64_t turn = 0; turn < std::max<uint64_t>(1, requests / kTurn); ++turn) {
    for (size_t k = 0; k < places.size(); ++k) {
      const size_t which = turn % 2 == 0 ? k : places.size() - 1 - k;
      const Stopwatch clock;
      for (uint64_t i = 0; i < kTurn; ++i) request(which, turn * kTurn + i);
      seconds[which].push_back(clock.wall_s());
    }
  }
  for (size_t i = 0; i < places.size(); ++i) {
    std::nth_element(seconds[i].begin(), seconds[i].begin() + seconds[i].size() / 2, seconds[i].end());
    (places[i].*rates).push_back(kTurn / seconds[i][seconds[i].size() / 2]);
  }
}

void creates_of_a_user(std::vector<Place>& places, uint64_t count) {
  const auto name = [&](size_t place, uint64_t i) {
    return fmt::format("{}/many/{}", places[place].directory, i);
  };
  by_turns(places, count, &Place::creates, [&](size_t place, uint64_t i) {
    const int file = ::open(name(place, i).c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (file < 0) die(fmt::format("{}: {}", name(place, i), ::strerror(errno)));
    ::close(file);
  });
  for (size_t place = 0; place < places.size(); ++place)
    for (uint64_t i = 0; i < count + kTurn; ++i) ::unlink(name(place, i).c_str());
  ::sync();
}

void writes_of_a_user(std::vector<Place>& places, uint64_t mib, uint64_t requests, const std::string& bytes,
                      uint64_t seed) {
  std::vector<int> files;
  for (const Place& place : places) {
    files.push_back(make_file(place, "random"));
    for (uint64_t i = 0; i < mib; ++i) write_all(files.back(), bytes, i << 20);
    ::fsync(files.back());
  }
  ::sync();
  const std::string small = bytes.substr(0, kSmall);
  std::vector<Rng> rngs(places.size(), Rng(seed));
  by_turns(places, requests, &Place::random, [&](size_t place, uint64_t) {
    write_all(files[place], small, rngs[place].below((mib << 20) / kSmall) * kSmall);
  });
  for (size_t i = 0; i < places.size(); ++i) settle(files[i], places[i], "random");
}

pid_t start_mount(const Place& place, const std::string& ssd, const std::string& policy, bool others,
                  bool as_root) {
  fuse::MountOptions options;
  options.mountpoint = place.directory;
  options.store = tier::serving_options(ssd, place.directory + "-files", kLogMib * kMiB);
  const auto chosen = tier::parse_policy(policy);
  if (!chosen.ok()) die(std::string(chosen.status().message()));
  options.store.engine.policy = *chosen;
  options.threads = kThreads;
  options.allow_other = others;
  options.all_as_this_process = as_root;
  return serve_in_child([&](const auto& ready) {
    options.ready = [&](const tier::RecoveryReport&) { ready(); };
    if (const Status ended = fuse::run_mount(options); !ended.ok()) die(std::string(ended.message()));
  });
}

// Two mounts for the ordinary user; none if this process cannot be one.
std::vector<Place> places_of_a_user(const std::string& root, const std::string& policy) {
  std::vector<Place> places;
  if (::geteuid() != 0) return places;
  std::filesystem::permissions(root, std::filesystem::perms(0755));
  for (const char* name : {"as_caller", "as_root"}) {
    Place place = {name, root + "/" + name, 0, {}, {}, {}};
    std::filesystem::create_directories(place.directory);
    std::filesystem::create_directories(place.directory + "-files/many");
    for (const char* part : {"-files", "-files/many"})
      std::filesystem::permissions(place.directory + part, std::filesystem::perms(0777));
    place.server = start_mount(place, root + "/ssd-" + name, policy, true, place.name == "as_root");
    places.push_back(std::move(place));
  }
  return places;
}

std::vector<Place> make_places(const std::string& root, const std::string& policy) {
  std::vector<Place> places;
  for (const char* name : {"plain", "passthrough", "passthrough-spliced", "mount"}) {
    const std::string directory = root + "/" + name;
    std::filesystem::create_directories(directory + "-files");
    std::filesystem::create_directories(directory);
    places.push_back({name, directory, 0, {}, {}, {}});
  }
  for (const size_t i : {1, 2}) {
    const Place& place = places[i];
    places[i].server = serve_in_child([&](const auto& ready) {
      run_passthrough(place.directory + "-files", place.directory, kThreads, i == 2, ready);
    });
  }
  places[3].server = start_mount(places[3], root + "/ssd", policy, false, false);
  return places;
}

void unmount_all(const std::vector<Place>& places) {
  for (const Place& place : places) {
    if (place.server == 0) continue;
    if (std::system(("fusermount3 -u " + place.directory).c_str()) != 0) ::kill(place.server, SIGTERM);
    ::waitpid(place.server, nullptr, 0);
  }
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  std::string root = arguments.text("path");
  const std::string policy = arguments.text("policy", "swale");
  const uint64_t mib = arguments.number("mib", 128);
  const uint64_t requests = arguments.number("requests", 20'000);
  const uint64_t rounds = arguments.number("rounds", 3);
  const bool callers_alone = arguments.number("callers-alone", 0) != 0;
  arguments.expect_no_more();
  std::filesystem::create_directories(root);
  root = std::filesystem::canonical(root).string();
  std::vector<Place> places;
  if (!callers_alone) places = make_places(root, policy);
  const std::string bytes(1 << 20, 'x');
  for (uint64_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < places.size(); ++i) {
      Place& place = places[(i + round) % places.size()];
      place.sequential.push_back(sequential(place, mib, bytes));
      place.random.push_back(random(place, std::max<uint64_t>(1, mib / 4), requests, bytes, round));
    }
  }
  unmount_all(places);
  std::vector<Place> of_a_user = places_of_a_user(root, policy);
  // A round differs by some percent, by where threads and blocks happen to be: so there are more of them.
  for (uint64_t round = 0; round < kRoundsOfAUser * rounds && !of_a_user.empty(); ++round) {
    const AsUser user;
    const uint64_t fewer = requests / kRoundsOfAUser;
    creates_of_a_user(of_a_user, fewer / kRequestsOfAFile);
    writes_of_a_user(of_a_user, std::max<uint64_t>(1, mib / 4), fewer, bytes, round);
  }
  unmount_all(of_a_user);
  std::filesystem::remove_all(root);
  Json out = {{"policy", policy}, {"mib", mib}, {"requests", requests}};
  for (const Place& place : places)
    out[place.name] = Json{{"sequential_mb_s", place.sequential}, {"random_per_s", place.random}};
  for (const Place& place : of_a_user)
    out[place.name] = Json{{"creates_per_s", place.creates}, {"random_per_s", place.random}};
  fmt::print("{}\n", out.dump());
  return 0;
}
