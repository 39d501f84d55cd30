// What the launcher's environment says about this process's place in a job: set by hand (SWALE_JOB_*), Open
// MPI, Flux, Slurm, Cray PALS, MPICH and its kin (Hydra, PMI).
//
// The first family that is there wins, in the order by hand, Open MPI, Flux, Slurm, PALS, Hydra; an `mpirun`
// inside a Slurm allocation also sees Slurm's variables, which describe the allocation or the step that
// started the launcher, not the job. So Slurm's count only
//   (1) in a step of srun: a batch script and an interactive shell have a rank and a size, too, but are one
//       process;
//   (2) beside PMI's (srun --mpi=pmi2, cray_shasta) only if both say the same rank and size and Hydra has set
//       none of its own (MPI_LOCALNRANKS).
// Variables are used only as a family (rank *and* size): half a family, or values that contradict each other,
// are errors that name them, never a guess.
//
// Threads: stateless.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/status.h"
#include "net/fabric/transport.h"

namespace swale::net {

struct LaunchEnvironment {
  std::string launcher = "none";  // "none", "swale", "openmpi", "flux", "slurm", "pals", "hydra"
  Rank rank = 0;
  int32_t size = 1;
  std::optional<int32_t> local_rank;  // among the ranks of this node
  std::optional<int32_t> local_size;
  std::string node_id;  // the launcher's number of this node; "" if it does not say
  // the same on all ranks, and on no other job at the same time; "" if the launcher has none
  std::string job_id;
};

using GetEnvironment = std::function<const char*(const char*)>;

Result<LaunchEnvironment> detect_launch(const GetEnvironment& get);

// What processes of one machine have in common. Containers share their machine's kernel and its memory,
// whatever they call themselves.
std::string this_machine();

// "host-b007b007": host name and start of the kernel's boot id, equal exactly for processes that share a
// kernel.
std::string this_node_id();

// A job id for launchers that give none (Hydra): the launcher's proxy among our ancestors, with its start
// time and the node id. Equal for ranks of one node only, hence "" unless all ranks are on this node.
std::string launcher_process_id(const LaunchEnvironment& launch);

}  // namespace swale::net
