// LAMMPS as a library, reduced to what the demo needs: start an input, advance it, take this rank's atoms.
// Every call is collective over MPI_COMM_WORLD, except the plain questions (step, time, atom_count).
#ifndef EXAMPLES_LAMMPS_LAMMPS_RUN_H_
#define EXAMPLES_LAMMPS_LAMMPS_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "record.h"

namespace impact {

class LammpsRun {
 public:
  // `variables` holds names and values in turn. Debian's LAMMPS has no exceptions: an error in it ends the
  // job. What it has to say goes to `log_path` (rank 0) and to stderr (other ranks).
  LammpsRun(const std::string& input, const std::string& log_path, double drift,
            const std::vector<std::string>& variables);
  ~LammpsRun();
  LammpsRun(const LammpsRun&) = delete;
  LammpsRun& operator=(const LammpsRun&) = delete;

  void advance(int64_t steps);

  // This rank's atoms as they are now, unwrapped, relative to the drift.
  void extract(std::vector<DumpRecord>& frame) const;

  int64_t atom_count() const;
  int64_t step() const;
  double time() const;
  // The value of an equal-style variable of the input.
  double variable(const char* name) const;

 private:
  void command(const std::string& text);

  void* handle_;
  double drift_;
};

}  // namespace impact

#endif  // EXAMPLES_LAMMPS_LAMMPS_RUN_H_
