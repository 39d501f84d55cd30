// impact-growth: what one atom's path costs as the run gets longer. The atoms of the demo's last frame fly
// on, each with its velocity and nothing else, for 1,000 frames more, into a massive directory and a plain
// dump. At 10, 30, 100, 300 and 1,000 frames the paths of a few atoms are asked for, cold, of both; the two
// answers must be equal in every byte. Then `swale optimize` copies the frames by atom, and both are asked
// again.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "answer.h"
#include "arguments.h"
#include "dumps.h"
#include "fail.h"
#include "measure.h"
#include "reader.h"

namespace {

using impact::Answer;
using impact::check_swale;
using impact::Cost;
using impact::DumpRecord;
using impact::Dumps;
using impact::fail;

constexpr float kFrameTime = 0.02F;  // tau

std::vector<DumpRecord> read_frame(const std::string& path, size_t atoms) {
  std::ifstream file(path, std::ios::binary);
  std::vector<DumpRecord> frame(atoms);
  file.read(reinterpret_cast<char*>(frame.data()), static_cast<std::streamsize>(atoms * sizeof(DumpRecord)));
  frame.resize(static_cast<size_t>(file.gcount()) / sizeof(DumpRecord));
  if (frame.empty()) fail(path + " holds no atom; impact-query writes it");
  return frame;
}

// A directory and a dump that take the same frames.
class Run {
 public:
  Run(const std::string& out, std::vector<DumpRecord> frame)
      : frame_(std::move(frame)),
        path_(out + "/atoms.swale"),
        dump_(impact::dump_path(out, 0), std::ios::binary) {
    check_swale(swale_job_open(nullptr, nullptr, &job_), "swale_job_open");
    check_swale(swale_dir_open(job_, path_.c_str(), SWALE_CREATE, impact::kDirectoryOptions, &directory_),
                "swale_dir_open");
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    swale_dir_close(directory_);
    swale_job_close(job_);
  }

  void write() {
    ++step_;
    for (DumpRecord& atom : frame_) {
      for (int axis = 0; axis < 3; ++axis)
        atom.state.position[axis] += kFrameTime * atom.state.velocity[axis];
      atom.state.step = step_;
      check_swale(swale_dir_append(directory_, &atom.id, sizeof atom.id, &atom.state, sizeof atom.state),
                  "swale_dir_append");
    }
    const auto bytes = static_cast<std::streamsize>(frame_.size() * sizeof(DumpRecord));
    dump_.write(reinterpret_cast<const char*>(frame_.data()), bytes).flush();
    if (!dump_) fail("the dump cannot be written");
    check_swale(swale_dir_epoch_end(directory_, step_, static_cast<double>(step_) * kFrameTime),
                "swale_dir_epoch_end");
  }

  const std::string& path() const { return path_; }
  int64_t frames() const { return step_; }

 private:
  std::vector<DumpRecord> frame_;
  std::string path_;
  std::ofstream dump_;
  swale_job* job_ = nullptr;
  swale_dir* directory_ = nullptr;
  int64_t step_ = 0;
};

Cost ask_swale(const std::string& path, int64_t id, Answer& answer) {
  Cost cost;
  impact::evict(path);
  const impact::Stopwatch stopwatch;
  const impact::Reader reader(path);
  answer = reader.trajectory(id);
  cost.cold_s = stopwatch.seconds();
  cost.bytes = reader.counted("read.bytes");
  cost.reads = reader.counted("read.requests");
  return cost;
}

Cost ask_dump(const std::string& out, int64_t id, Answer& answer) {
  Cost cost;
  impact::evict(impact::dump_path(out, 0));
  const impact::Stopwatch stopwatch;
  const Dumps dumps(out, 1);
  answer = dumps.scan({id});
  cost.cold_s = stopwatch.seconds();
  cost.bytes = dumps.bytes();
  cost.reads = dumps.blocks().size();
  return cost;
}

Cost median(std::vector<Cost> costs) {
  const auto middle = costs.begin() + static_cast<ptrdiff_t>(costs.size() / 2);
  std::nth_element(costs.begin(), middle, costs.end(),
                   [](const Cost& a, const Cost& b) { return a.cold_s < b.cold_s; });
  return *middle;
}

nlohmann::json measure(const Run& run, const std::string& out, const std::vector<int64_t>& ids) {
  std::vector<Cost> swale, scan;
  for (const int64_t id : ids) {
    Answer indexed, scanned;
    swale.push_back(ask_swale(run.path(), id, indexed));
    scan.push_back(ask_dump(out, id, scanned));
    impact::sort_answer(indexed);
    const auto same = [](const DumpRecord& a, const DumpRecord& b) {
      return std::memcmp(&a, &b, sizeof a) == 0;
    };
    if (indexed.size() != static_cast<size_t>(run.frames()) || !std::ranges::equal(indexed, scanned, same)) {
      fail(fmt::format("atom {}: the directory and the dump give different paths", id));
    }
  }
  return {{"frames", run.frames()}, {"swale", median(swale)}, {"scan", median(scan)}};
}

void print(const std::string& frames, const nlohmann::json& point) {
  const auto swale = point["swale"].get<Cost>(), scan = point["scan"].get<Cost>();
  fmt::print("  {:>8}{:>9.1f} KB{:>8}{:>12.2f}   {:>9.1f} MB{:>12.2f}\n", frames,
             static_cast<double>(swale.bytes) / 1e3, swale.reads, 1e3 * swale.cold_s,
             static_cast<double>(scan.bytes) / 1e6, 1e3 * scan.cold_s);
  std::fflush(stdout);
}

// How long the pass takes.
double optimise(std::string swale, std::string path) {
  std::string optimize = "optimize", json = "--json", quiet = "/dev/null";
  char* const arguments[] = {swale.data(), optimize.data(), path.data(), json.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, quiet.c_str(), O_WRONLY, 0);
  const impact::Stopwatch stopwatch;
  pid_t child = 0;
  int status = 0;
  const int failed = posix_spawn(&child, swale.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) fail(fmt::format("{}: {}", swale, std::strerror(failed)));
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) fail(fmt::format("{} optimize {}: status {}", swale, path, status));
  return stopwatch.seconds();
}

// When a pass has paid: after so many paths, each of which is quicker by the difference.
nlohmann::json measure_optimised(const std::string& swale, const Run& run, const std::string& out,
                                 const std::vector<int64_t>& ids, const nlohmann::json& before) {
  const double pass_s = optimise(swale, run.path());
  nlohmann::json after = measure(run, out, ids);
  print("by atom", after);
  const double saved_s = before["swale"].get<Cost>().cold_s - after["swale"].get<Cost>().cold_s;
  if (saved_s <= 0) {
    fmt::print("  `swale optimize` took {:.2f} s and saves nothing in so short a run\n", pass_s);
  } else {
    fmt::print("  `swale optimize` took {:.2f} s and saves {:.2f} ms a path: it pays from {:.0f} paths on\n",
               pass_s, 1e3 * saved_s, std::ceil(pass_s / saved_s));
  }
  after["pass_s"] = pass_s;
  return after;
}

}  // namespace

int main(int argc, char** argv) {
  std::string out, swale_command;
  int64_t atoms = 10'000;
  int64_t frames_max = 1'000;
  impact::Arguments arguments(
      "Lets atoms of OUT/last-frame.bin fly on for a thousand frames and measures, at 10, 30, 100, 300 and "
      "1,000 frames,\n"
      "what one path costs to read, cold. Writes OUT/growth.json; what it wrote besides is deleted again.");
  arguments.directory(out, "the directory that impact and impact-query wrote");
  arguments.count("--atoms", atoms, 1, 100'000'000, "how many atoms");
  arguments.count("--frames", frames_max, 10, 100'000, "the longest run");
  arguments.text("--swale", swale_command, "the swale command: also measures what its optimize saves");
  arguments.parse(argc, argv);

  const std::string scratch = out + "/growth";
  std::filesystem::remove_all(scratch);
  std::filesystem::create_directories(scratch);
  nlohmann::json points = nlohmann::json::array(), by_atom;
  const std::vector<DumpRecord> frame = read_frame(out + "/last-frame.bin", static_cast<size_t>(atoms));
  std::vector<int64_t> ids;
  for (size_t i = 0; i < 5; ++i) ids.push_back(frame[i * (frame.size() - 1) / 4].id);
  {
    Run run(scratch, frame);
    fmt::print("  {:>8}{:>12}{:>8}{:>12}   {:>12}{:>12}\n", "frames", "Swale reads", "in", "cold, ms",
               "a scan reads", "cold, ms");
    for (const int64_t frames : {10, 30, 100, 300, 1'000}) {
      if (frames > frames_max) break;
      while (run.frames() < frames) run.write();
      points.push_back(measure(run, scratch, ids));
      print(std::to_string(frames), points.back());
    }
    if (!swale_command.empty()) by_atom = measure_optimised(swale_command, run, scratch, ids, points.back());
  }
  impact::write_json(out + "/growth.json",
                     {{"atoms", frame.size()}, {"points", points}, {"by_atom", by_atom}});
  std::filesystem::remove_all(scratch);
  return 0;
}
