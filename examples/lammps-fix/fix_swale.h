// LAMMPS's fix `swale`: every N steps the atoms of a group become an epoch of a massive directory.
//
//   fix ID GROUP swale N DIR [FIELD ...] [extrema FIELD ...]
//
// README.md describes the command. The fix is compiled against the headers of an installed LAMMPS.
//
// Threads: those of LAMMPS, which calls all ranks of a partition together.
// Invariants: (1) every rank makes the collective calls of Swale in the same order, as LAMMPS calls init,
// setup and end_of_step on all ranks; (2) an epoch is committed before LAMMPS can write a restart file of its
// step.
// Errors: what fails on one rank only ends the job by Error::one, everything else by Error::all, with Swale's
// words.
// Memory: a record for each atom of the group on this rank, while an epoch is written.
//
// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
#ifndef EXAMPLES_LAMMPS_FIX_FIX_SWALE_H_
#define EXAMPLES_LAMMPS_FIX_FIX_SWALE_H_

#include <lammps/fix.h>
#include <swale/swale.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace LAMMPS_NS {

class FixSwale : public Fix {
 public:
  FixSwale(LAMMPS* lammps, int argc, char** argv);
  ~FixSwale() override;
  FixSwale(const FixSwale&) = delete;
  FixSwale& operator=(const FixSwale&) = delete;

  int setmask() override;
  void init() override;
  void setup(int vflag) override;  // the first frame, as end_of_step is not called before the first step
  void end_of_step() override;
  // A restart file notes that this fix was there, so that a run from it goes back in its directory, and a run
  // that only has the same steps does not.
  void write_restart(FILE* file) override;
  void restart(char* state) override;

  // Makes `fix ... swale` known to this LAMMPS.
  static void add_to(LAMMPS* lammps);

 private:
  struct Field;
  struct Before;
  void find(Field& field) const;  // the compute, fix or variable that it names, and its shape
  Before look_before() const;
  void open();
  void write();
  void describe();
  void fill(const Field& field, const std::vector<int>& atoms, char* first);
  void fill_numbers(const Field& field, const std::vector<int>& atoms, char* first);
  std::string schema() const;
  [[noreturn]] void stop(const std::string& text) const;  // on all ranks
  // Ends the job if the status is a failure: of all ranks, or of this one.
  void check_all(int status, const char* call) const;
  void check_one(int status, const char* call) const;

  std::string path_;
  bool continues_ = false;  // from a restart file that knows this fix
  std::vector<Field> fields_;
  std::vector<std::string> extrema_;
  size_t record_bytes_ = 0;
  int64_t written_ = INT64_MIN;  // the step of the last epoch
  std::vector<char> records_;
  std::vector<uint64_t> keys_;
  std::vector<double> numbers_;  // of a variable
  swale_job* job_ = nullptr;
  swale_dir* dir_ = nullptr;
};

}  // namespace LAMMPS_NS

#endif  // EXAMPLES_LAMMPS_FIX_FIX_SWALE_H_
