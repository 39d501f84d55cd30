#include "lammps_run.h"

#define LAMMPS_LIB_MPI
#include <lammps/library.h>
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "fail.h"

namespace impact {
namespace {

std::string g_log_path;  // not empty while LAMMPS runs

// LAMMPS calls exit() on an error that all ranks see, after closing its log.
void show_lammps_error() {
  if (g_log_path.empty()) return;
  std::ifstream log(g_log_path);
  for (std::string line; std::getline(log, line);) {
    if (line.starts_with("ERROR")) fmt::print(stderr, "impact: LAMMPS: {}\n", line);
  }
  fmt::print(stderr, "impact: LAMMPS ended the job; its log is {}\n", g_log_path);
}

}  // namespace

LammpsRun::LammpsRun(const std::string& input, const std::string& log_path, double drift,
                     const std::vector<std::string>& variables)
    : drift_(drift) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<std::string> words = {
      "lammps", "-log", log_path, "-nocite", "-var", "drift", fmt::format("{}", drift)};
  for (size_t i = 0; i + 1 < variables.size(); i += 2) {
    words.insert(words.end(), {"-var", variables[i], variables[i + 1]});
  }
  if (rank == 0) {
    words.insert(words.end(), {"-screen", "none"});
    g_log_path = log_path;
    std::atexit(show_lammps_error);
  } else {
    dup2(STDERR_FILENO, STDOUT_FILENO);  // these ranks print nothing but the errors only they see
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  handle_ = lammps_open(static_cast<int>(arguments.size()), arguments.data(), MPI_COMM_WORLD, nullptr);
  if (handle_ == nullptr) fail("LAMMPS did not start; see " + log_path);
  lammps_file(handle_, input.c_str());
  command("run 0 post no");
}

LammpsRun::~LammpsRun() {
  lammps_close(handle_);
  g_log_path.clear();
}

void LammpsRun::command(const std::string& text) {
  lammps_command(handle_, text.c_str());
  char message[512];
  if (lammps_has_error(handle_) && lammps_get_last_error_message(handle_, message, sizeof message) != 0) {
    fail(fmt::format("LAMMPS, at '{}': {}", text, message));
  }
}

void LammpsRun::advance(int64_t steps) { command(fmt::format("run {} pre no post no", steps)); }

int64_t LammpsRun::atom_count() const { return static_cast<int64_t>(lammps_get_natoms(handle_)); }

int64_t LammpsRun::step() const {
  return *static_cast<int64_t*>(lammps_extract_global(handle_, "ntimestep"));
}

double LammpsRun::time() const {
  return static_cast<double>(step()) * *static_cast<double*>(lammps_extract_global(handle_, "dt"));
}

double LammpsRun::variable(const char* name) const {
  void* value = lammps_extract_variable(handle_, name, nullptr);
  if (value == nullptr) fail(fmt::format("the LAMMPS input has no variable '{}'", name));
  const double number = *static_cast<double*>(value);
  lammps_free(value);
  return number;
}

void LammpsRun::extract(std::vector<DumpRecord>& frame) const {
  double low[3];
  double high[3];
  int periodic[3];
  int box_change = 0;
  lammps_extract_box(handle_, low, high, nullptr, nullptr, nullptr, periodic, &box_change);
  const auto* id = static_cast<const int*>(lammps_extract_atom(handle_, "id"));
  const auto* type = static_cast<const int*>(lammps_extract_atom(handle_, "type"));
  const auto* image = static_cast<const int*>(lammps_extract_atom(handle_, "image"));
  const auto* x = static_cast<const double* const*>(lammps_extract_atom(handle_, "x"));
  const auto* v = static_cast<const double* const*>(lammps_extract_atom(handle_, "v"));
  const int64_t now = step();
  const double drifted[3] = {drift_ * time(), 0, 0};
  const double drift[3] = {drift_, 0, 0};

  frame.resize(static_cast<size_t>(lammps_extract_setting(handle_, "nlocal")));
  for (size_t i = 0; i < frame.size(); ++i) {
    int crossings[3];  // of the periodic borders, so far
    lammps_decode_image_flags(image[i], crossings);
    AtomState state{};
    double speed_squared = 0;
    for (int axis = 0; axis < 3; ++axis) {
      const double unwrapped = x[i][axis] + crossings[axis] * periodic[axis] * (high[axis] - low[axis]);
      const double velocity = v[i][axis] - drift[axis];
      state.position[axis] = static_cast<float>(unwrapped - drifted[axis]);
      state.velocity[axis] = static_cast<float>(velocity);
      speed_squared += velocity * velocity;
    }
    state.kinetic_energy = static_cast<float>(0.5 * speed_squared);
    state.type = type[i];
    state.step = now;
    frame[i] = {id[i], state};
  }
}

}  // namespace impact
