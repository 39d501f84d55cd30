// swale-lmp: LAMMPS's command line, with the fix `swale` built in. For builds of LAMMPS without plugins.
//
// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
#include <lammps/input.h>
#include <lammps/lammps.h>
#include <mpi.h>

#include <memory>

#include "fix_swale.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    const auto lammps = std::make_unique<LAMMPS_NS::LAMMPS>(argc, argv, MPI_COMM_WORLD);
    LAMMPS_NS::FixSwale::add_to(lammps.get());
    lammps->input->file();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}
