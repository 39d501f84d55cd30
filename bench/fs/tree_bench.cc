// bench_fs_tree: programs in the tree of a job (run_job_mount) beside the same programs in a plain directory
// and on a pass-through mount that does nothing, all on one file system, in turns.
//   --path DIR        where everything is (made and removed); the buffer of the tree is there, too
//   --mib N           of strided or own records of 47,008 bytes, of 8 processes, with an fsync each; strided
//                     ones once more, where nobody syncs before all have written
//   --creates N       files that each of 8 processes makes and closes in one directory
//   --commits N       appends of 47,008 bytes, each with an fsync; plain: pwrite and fdatasync
//   --requests N      writes of 4 KiB at random places
// A quarter of --mib is also written and read, 1 MiB at a time, by another process.
//   --rounds N
//   --round N         the number of the first of them: who goes first, and which work, changes with it
// The first work of a new server, whose memory is new, is told by itself (nn_first_over_direct).
// A place is settled, off the clock, after each work: all is on the backing, and synced.
// Reported: the medians of the rounds' ratios, and the seconds of each round. Processor time is that of all
// processes, the server's included; a plain directory has none, and what its kernel threads write is no
// process's.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "bench/arguments.h"
#include "bench/fs/place.h"
#include "bench/measure.h"

namespace swale::bench {
namespace {

constexpr uint64_t kSmall = 4096;

struct Works {
  uint64_t mib, creates, commits, requests;
  std::string data = std::string(1 << 20, 'x');

  double create(const Place& place) const {
    const auto name = [](uint64_t process, uint64_t i) { return fmt::format("c{}-{}", process, i); };
    const Took took =
        together(place, kProcesses, [&](uint64_t process, const std::function<void()>& written) {
          for (uint64_t i = 0; i < creates; ++i)
            ::close(place.open(name(process, i), O_CREAT | O_EXCL | O_WRONLY));
          written();
        });
    for (uint64_t process = 0; process < kProcesses; ++process)
      for (uint64_t i = 0; i < creates; ++i) ::unlink(place.path(name(process, i)).c_str());
    place.settle();
    return took.all_s;
  }
  double commit(const Place& place, bool plain) const {
    const int file = place.open("log", O_RDWR | O_CREAT);
    const Stopwatch watch;
    for (uint64_t i = 0; i < commits; ++i) {
      write_all(file, data.data(), kRecord, i * kRecord);
      if ((plain ? ::fdatasync(file) : ::fsync(file)) != 0) die("fsync");
    }
    const double took = watch.wall_s();
    ::close(file);
    place.settle();
    ::unlink(place.path("log").c_str());
    return took;
  }
  double sequential(const Place& place) const {
    const int file = place.open("seq", O_RDWR | O_CREAT);
    const Stopwatch watch;
    for (uint64_t i = 0; i < mib; ++i) write_all(file, data.data(), data.size(), i << 20);
    const double took = watch.wall_s();
    ::close(file);
    place.settle();
    ::unlink(place.path("seq").c_str());
    return took;
  }
  // Another process reads what one has written, and not synced; from a plain directory: from the page cache.
  double read_neighbour(const Place& place) const {
    const uint64_t size = std::max<uint64_t>(1, mib / 4) << 20;
    const int file = place.open("read", O_RDWR | O_CREAT);
    for (uint64_t at = 0; at < size; at += data.size()) write_all(file, data.data(), data.size(), at);
    const Took took = together(place, 1, [&](uint64_t, const std::function<void()>& written) {
      const int other = place.open("read", O_RDONLY);
      std::string out(data.size(), ' ');
      for (uint64_t at = 0; at < size; at += out.size())
        if (::pread(other, out.data(), out.size(), static_cast<off_t>(at)) !=
                static_cast<ssize_t>(out.size()) ||
            out != data)
          die("a read gave other bytes than were written");
      written();
      ::close(other);
    });
    ::close(file);
    place.settle();
    ::unlink(place.path("read").c_str());
    return took.write_s;
  }
  double random(const Place& place, uint64_t seed) const {
    const int file = place.open("random", O_RDWR | O_CREAT);
    const uint64_t size = std::max<uint64_t>(1, mib / 4) << 20;
    for (uint64_t at = 0; at < size; at += data.size()) write_all(file, data.data(), data.size(), at);
    place.settle();
    Rng rng(seed);
    const Stopwatch watch;
    for (uint64_t i = 0; i < requests; ++i)
      write_all(file, data.data(), kSmall, rng.below(size / kSmall) * kSmall);
    const double took = watch.wall_s();
    ::close(file);
    place.settle();
    ::unlink(place.path("random").c_str());
    return took;
  }
};

// Figures of one round, by work and place.
using Round = std::map<std::string, double>;

Round measure(const Works& works, const std::vector<std::unique_ptr<Place>>& places, uint64_t round,
              bool is_first) {
  static constexpr const char* kNames[] = {"plain", "pass", "spliced", "tree"};
  Round found;
  const auto each = [&](size_t first, const auto& act) {
    for (size_t i = 0; i < places.size(); ++i) {
      const size_t which = (i + round) % places.size();
      if (which == 0 || which >= first) act(*places[which], std::string(kNames[which]));
    }
  };
  const auto keep = [&found](const std::string& name, const Took& took) {
    found[name + ".write"] = took.write_s;
    found[name + ".all"] = took.all_s;
    found[name + ".cpu"] = took.cpu_s;
  };
  const auto checkpoint = [&](const std::string& work, Files files, Written then = Written::kGoesOn) {
    each(3, [&](const Place& place, const std::string& name) {
      keep(work + "." + name, write_records(place, works.mib, files, then));
    });
  };
  if (is_first) checkpoint("first", Files::kOwn);
  if (round % 2 == 0) checkpoint("n1", Files::kShared);
  checkpoint("nn", Files::kOwn);
  if (round % 2 == 1) checkpoint("n1", Files::kShared);
  checkpoint("n1_unsynced", Files::kShared, Written::kWaitsForAll);
  each(3, [&](const Place& place, const std::string& name) {
    found["commit." + name] = works.commit(place, name == "plain");
  });
  each(3, [&](const Place& place, const std::string& name) {
    found["read." + name] = works.read_neighbour(place);
  });
  each(1,
       [&](const Place& place, const std::string& name) { found["create." + name] = works.create(place); });
  each(1,
       [&](const Place& place, const std::string& name) { found["seq." + name] = works.sequential(place); });
  each(1, [&](const Place& place, const std::string& name) {
    found["random." + name] = works.random(place, round);
  });
  return found;
}

// The rival at its best: with splice or without.
double passthrough(const Round& round, const std::string& work) {
  return std::min(round.at(work + ".pass"), round.at(work + ".spliced"));
}

nlohmann::json ratios(const std::vector<Round>& rounds) {
  const auto median = [&](const std::function<double(const Round&)>& ratio) {
    std::vector<double> values;
    for (const Round& round : rounds) values.push_back(ratio(round));
    return percentile(values, 0.5);
  };
  const auto over_passthrough = [&](const std::string& work) {
    return median([&](const Round& r) { return passthrough(r, work) / r.at(work + ".tree"); });
  };
  return {
      {"n1_over_nn", median([](const Round& r) { return r.at("n1.tree.all") / r.at("nn.tree.all"); })},
      {"nn_over_direct", median([](const Round& r) { return r.at("nn.plain.all") / r.at("nn.tree.all"); })},
      {"nn_first_over_direct", rounds.front().at("first.plain.all") / rounds.front().at("first.tree.all")},
      {"n1_write_over_direct_mount", median([](const Round& r) {
         return r.at("n1_unsynced.plain.write") / r.at("n1_unsynced.tree.write");
       })},
      {"n1_write_beside_fsync_over_direct_mount",
       median([](const Round& r) { return r.at("n1.plain.write") / r.at("n1.tree.write"); })},
      {"cpu_over_direct", median([](const Round& r) { return r.at("nn.tree.cpu") / r.at("nn.plain.cpu"); })},
      {"commit_over_fdatasync",
       median([](const Round& r) { return r.at("commit.tree") / r.at("commit.plain"); })},
      {"read_node_over_cache", median([](const Round& r) { return r.at("read.plain") / r.at("read.tree"); })},
      {"create_mount_over_passthrough", over_passthrough("create")},
      {"mount_over_passthrough_seq", over_passthrough("seq")},
      {"mount_over_passthrough_random", over_passthrough("random")},
      {"rounds", rounds}};
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  std::string root = arguments.text("path");
  Works works;
  works.mib = arguments.number("mib", 2048);
  works.creates = arguments.number("creates", 2000);
  works.commits = arguments.number("commits", 200);
  works.requests = arguments.number("requests", 20'000);
  const uint64_t count = arguments.number("rounds", 3);
  const uint64_t first = arguments.number("round", 0);
  arguments.expect_no_more();
  root += "/swale-bench-tree-" + std::to_string(::getpid());
  std::filesystem::create_directories(root);
  root = std::filesystem::canonical(root).string();
  std::vector<Round> rounds;
  {
    std::vector<std::unique_ptr<Place>> places;
    using Kind = Place::Kind;
    const std::pair<const char*, Kind> kinds[] = {{"plain", Kind::kPlain},
                                                  {"passthrough", Kind::kPassthrough},
                                                  {"spliced", Kind::kSpliced},
                                                  {"tree", Kind::kTree}};
    for (const auto& [name, kind] : kinds)
      places.push_back(std::make_unique<Place>(kind, root + "/" + name, root + "/buffer",
                                               (2 * works.mib << 20) + (64 << 20)));
    for (uint64_t round = first; round < first + count; ++round)
      rounds.push_back(measure(works, places, round, round == first));
  }
  remove_all(root);
  report_as("bench_fs_tree", "tree", ratios(rounds));
  return 0;
}
