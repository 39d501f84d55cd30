// The driver of the demo: runs LAMMPS (in.impact) on all ranks and hands every frame to two kinds of storage,
// one after the other, so that both can be timed and compared: a Swale massive directory with one key per
// atom and one epoch per frame, and plain dumps with one file per process. Both are durable when a frame is
// done.
#include <fcntl.h>
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "arguments.h"
#include "fail.h"
#include "lammps_run.h"
#include "record.h"
#include "swale/swale.h"
#include "swale/swale_mpi.h"

namespace {

using impact::check_swale;
using impact::DumpRecord;
using impact::fail;

struct Options {
  std::string input;
  std::string out = "impact-out";
  std::string swale_options;
  int64_t steps = 975;
  int64_t every = 13;
  double drift = 0;
  std::vector<std::string> variables;  // name, value, name, value ...
};

// Wall-clock seconds, each up to the moment when the slowest rank was done.
struct Timing {
  double simulate_s = 0, append_s = 0, epoch_end_s = 0, dump_s = 0;
};

template <typename Work>
void timed(double& total_s, Work work) {
  const double start = MPI_Wtime();
  work();
  MPI_Barrier(MPI_COMM_WORLD);
  total_s += MPI_Wtime() - start;
}

// The massive directory OUT/atoms.swale.
class SwaleSink {
 public:
  explicit SwaleSink(const Options& options) {
    swale_comm comm = swale_comm_from_mpi(&communicator_);
    const char* swale_options = options.swale_options.empty() ? nullptr : options.swale_options.c_str();
    check_swale(swale_job_open(&comm, swale_options, &job_), "swale_job_open");
    const std::string path = options.out + "/atoms.swale";
    check_swale(
        swale_dir_open(job_, path.c_str(), SWALE_CREATE | SWALE_EXCLUSIVE, impact::kDirectoryOptions, &dir_),
        "swale_dir_open");
  }

  void append(const std::vector<DumpRecord>& frame) {
    for (const DumpRecord& record : frame) {
      check_swale(swale_dir_append(dir_, &record.id, sizeof record.id, &record.state, sizeof record.state),
                  "swale_dir_append");
    }
  }

  void epoch_end(int64_t step, double time) {
    check_swale(swale_dir_epoch_end(dir_, step, time), "swale_dir_epoch_end");
  }

  void close() {
    check_swale(swale_dir_close(dir_), "swale_dir_close");
    check_swale(swale_job_close(job_), "swale_job_close");
  }

 private:
  MPI_Comm communicator_ = MPI_COMM_WORLD;
  swale_job* job_ = nullptr;
  swale_dir* dir_ = nullptr;
};

// OUT/dump.RRRR.bin, this rank's own file.
class DumpSink {
 public:
  DumpSink(const Options& options, int rank) : path_(fmt::format("{}/dump.{:04}.bin", options.out, rank)) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0) fail_errno("open");
  }

  void write(const std::vector<DumpRecord>& frame) {
    const char* next = reinterpret_cast<const char*>(frame.data());
    size_t left_bytes = frame.size() * sizeof(DumpRecord);
    while (left_bytes > 0) {
      const ssize_t written = ::write(fd_, next, left_bytes);
      if (written < 0) fail_errno("write");
      next += written;
      left_bytes -= static_cast<size_t>(written);
    }
    if (::fdatasync(fd_) != 0) fail_errno("fdatasync");
  }

  void close() {
    if (::close(fd_) != 0) fail_errno("close");
  }

 private:
  [[noreturn]] void fail_errno(const char* call) {
    fail(fmt::format("{} {}: {}", call, path_, std::strerror(errno)));
  }

  std::string path_;
  int fd_;
};

// Which atoms were ever seen on this rank; summed over the ranks, more than one means that the atom moved.
class Ownership {
 public:
  explicit Ownership(int64_t atoms) : seen_(static_cast<size_t>(atoms) + 1, 0) {}

  void note(const std::vector<DumpRecord>& frame) {
    for (const DumpRecord& record : frame) {
      if (record.id < 1 || static_cast<size_t>(record.id) >= seen_.size())
        fail(fmt::format("atom id {} is outside 1..{}", record.id, seen_.size() - 1));
      seen_[static_cast<size_t>(record.id)] = 1;
    }
  }

  // [collective] The fraction of atoms that were on more than one rank.
  double moved_fraction() const {
    std::vector<int> ranks(seen_.size());
    MPI_Allreduce(seen_.data(), ranks.data(), static_cast<int>(seen_.size()), MPI_INT, MPI_SUM,
                  MPI_COMM_WORLD);
    const auto moved = std::count_if(ranks.begin(), ranks.end(), [](int count) { return count > 1; });
    return static_cast<double>(moved) / static_cast<double>(seen_.size() - 1);
  }

 private:
  std::vector<int> seen_;
};

void show_progress(int64_t frame, int64_t frames, int64_t step) {
  if (!isatty(STDERR_FILENO)) return;
  fmt::print(stderr, "\r  frame {}/{}  step {} ", frame, frames, step);
  if (frame == frames) fmt::print(stderr, "\r{:40}\r", "");
  std::fflush(stderr);
}

void report(const Options& options, const nlohmann::json& run) {
  const auto number = [&run](const char* name) { return run.at(name).get<double>(); };
  const double megabytes = number("records") * sizeof(DumpRecord) / 1e6;
  fmt::print("  {} atoms on {} ranks, {} frames: {:.2f} million records, {:.0f} MB\n",
             run.at("atoms").get<int64_t>(), run.at("ranks").get<int>(), run.at("frames").get<int64_t>(),
             number("records") / 1e6, megabytes);
  fmt::print("  atoms seen on more than one rank   {:6.1f} %\n", 100 * number("moved_fraction"));
  fmt::print("  simulate                           {:6.2f} s\n", number("simulate_s"));
  fmt::print("  Swale: append + epoch end          {:6.2f} s   ({:.2f} + {:.2f}; indexed and durable)\n",
             number("append_s") + number("epoch_end_s"), number("append_s"), number("epoch_end_s"));
  fmt::print("  plain dump, a file per process     {:6.2f} s   (durable, not indexed)\n", number("dump_s"));
  std::ofstream(options.out + "/run.json") << run.dump(2) << '\n';
}

nlohmann::json simulate(const Options& options, int rank, int ranks) {
  impact::LammpsRun lammps(options.input, options.out + "/lammps.log", options.drift, options.variables);
  SwaleSink swale(options);
  DumpSink dump(options, rank);
  Ownership ownership(lammps.atom_count());
  Timing timing;
  std::vector<DumpRecord> frame;
  const int64_t frames = options.steps / options.every;
  for (int64_t index = 0; index <= frames; ++index) {
    if (index > 0) timed(timing.simulate_s, [&] { lammps.advance(options.every); });
    lammps.extract(frame);
    ownership.note(frame);
    timed(timing.append_s, [&] { swale.append(frame); });
    timed(timing.epoch_end_s, [&] { swale.epoch_end(lammps.step(), lammps.time()); });
    timed(timing.dump_s, [&] { dump.write(frame); });
    if (rank == 0) show_progress(index, frames, lammps.step());
  }
  swale.close();
  dump.close();
  return {{"ranks", ranks},
          {"atoms", lammps.atom_count()},
          {"frames", frames + 1},
          {"records", lammps.atom_count() * (frames + 1)},
          {"step_time", lammps.time() / static_cast<double>(std::max<int64_t>(lammps.step(), 1))},
          {"drift", options.drift},
          {"box_width", lammps.variable("box_width")},
          {"impact_x", lammps.variable("impact_x")},
          {"surface_z", lammps.variable("surface_z")},
          {"ball_radius", lammps.variable("ball_radius")},
          {"moved_fraction", ownership.moved_fraction()},
          {"simulate_s", timing.simulate_s},
          {"append_s", timing.append_s},
          {"epoch_end_s", timing.epoch_end_s},
          {"dump_s", timing.dump_s}};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  impact::Arguments arguments(
      "Simulates a hypervelocity impact with LAMMPS and stores every frame in a Swale massive directory\n"
      "(OUT/atoms.swale) and in plain per-process dumps (OUT/dump.RRRR.bin). Start it under mpirun or "
      "alone.");
  arguments.file("--input", options.input, "the LAMMPS input, in.impact");
  arguments.text("--out", options.out, "new or empty directory for everything it writes");
  arguments.count("--steps", options.steps, 1, 1'000'000'000, "steps to simulate");
  arguments.count("--every", options.every, 1, 1'000'000'000, "steps between frames");
  arguments.number(
      "--drift", options.drift,
      "velocity along x added to everything; atoms cross process borders, records stay relative to it");
  arguments.pairs("--var", options.variables, "name and value of a variable of the input; repeatable");
  arguments.text("--swale", options.swale_options, "options for swale_job_open, section.name=value,...");
  arguments.parse(argc, argv);

  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error) fail(fmt::format("cannot make {}: {}", options.out, error.message()));
  const nlohmann::json run = simulate(options, rank, ranks);
  if (rank == 0) report(options, run);
  MPI_Finalize();
  return 0;
}
