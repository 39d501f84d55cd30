#include "net/meeting/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/process_identity.h"

namespace swale::net::topology_test {
namespace {

using Variables = std::map<std::string, std::string>;

Result<LaunchEnvironment> detect(const Variables& variables) {
  return detect_launch([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

// Captured from `mpirun.openmpi -n 2 env` (Open MPI 4.1.4), rank 1.
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                            {"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_UNIVERSE_SIZE", "2"},
                            {"PMIX_NAMESPACE", "2136932353"},
                            {"PMIX_RANK", "1"},
                            {"PMIX_HOSTNAME", "vm"}};

// Captured from `mpiexec.mpich -n 2 env` (MPICH 4.0.2, Hydra), rank 1. There is no job id in it.
const Variables kMpich = {{"MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "vm"},
                          {"MPI_LOCALNRANKS", "2"},
                          {"MPI_LOCALRANKID", "1"},
                          {"PMI_FD", "8"},
                          {"PMI_RANK", "1"},
                          {"PMI_SIZE", "2"}};

// Captured from steps of srun: rank 65 of 128 on the second of two nodes. SLURM_NTASKS is the allocation's.
const Variables kSlurm = {{"SLURM_PROCID", "65"},          {"SLURM_NTASKS", "128"},   {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "1"},           {"SLURM_JOB_ID", "70123"}, {"SLURM_STEP_ID", "4"},
                          {"SLURM_STEP_NUM_TASKS", "128"}, {"SLURM_NNODES", "2"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}
Variables without(Variables variables, const char* name) {
  variables.erase(name);
  return variables;
}

// srun --mpi=pmi2 (src/plugins/mpi/pmi2 of Slurm sets these four), --mpi=pmix (version 4), --mpi=cray_shasta.
const Variables kSlurmPmi2 =
    with(kSlurm, {{"PMI_FD", "12"}, {"PMI_JOBID", "70123.4"}, {"PMI_RANK", "65"}, {"PMI_SIZE", "128"}});
const Variables kSlurmPmix =
    with(kSlurm, {{"PMIX_RANK", "65"}, {"PMIX_NAMESPACE", "slurm.pmix.70123.4"}, {"PMIX_HOSTNAME", "n18"}});
const Variables kSlurmCray = with(kSlurm, {{"PALS_APID", "70123.4"},
                                           {"PALS_RANKID", "65"},
                                           {"PALS_LOCAL_RANKID", "1"},
                                           {"PALS_NODEID", "1"},
                                           {"PMI_JOBID", "70123"},
                                           {"PMI_RANK", "65"},
                                           {"PMI_SIZE", "128"},
                                           {"PMI_LOCAL_RANK", "1"},
                                           {"PMI_LOCAL_SIZE", "64"}});
// A program that a batch script starts without srun; and one in the shell of salloc (an interactive step).
const Variables kSlurmBatch = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "128"},   {"SLURM_LOCALID", "0"},
                               {"SLURM_NODEID", "0"}, {"SLURM_JOB_ID", "70123"}, {"SLURM_NNODES", "2"}};
const Variables kSlurmShell =
    with(kSlurmBatch, {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"}});

// mpirun of Open MPI 5 (PRRTE).
const Variables kOpenMpi5 = {{"OMPI_COMM_WORLD_RANK", "5"},
                             {"OMPI_COMM_WORLD_SIZE", "8"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                             {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                             {"PMIX_NAMESPACE", "prterun-n17-2187@1"},
                             {"PMIX_RANK", "5"},
                             {"PMIX_VERSION", "5.0.3"},
                             {"PRTE_LAUNCHED", "1"}};

// mpiexec of Cray PALS under PBS, with Cray's PMI; and with --pmi=pmix, where nothing says how many ranks
// there are.
const Variables kPalsPmix = {{"PBS_JOBID", "17.server"}, {"PALS_APID", "5d1c-77"},  {"PALS_RANKID", "13"},
                             {"PALS_LOCAL_RANKID", "1"}, {"PALS_LOCAL_SIZE", "12"}, {"PALS_NODEID", "1"},
                             {"PALS_DEPTH", "1"},        {"PALS_PMI", "pmix"},      {"PMIX_RANK", "13"}};
const Variables kPals =
    with(without(without(kPalsPmix, "PMIX_RANK"), "PALS_PMI"), {{"PMI_RANK", "13"},
                                                                {"PMI_SIZE", "24"},
                                                                {"PMI_LOCAL_RANK", "1"},
                                                                {"PMI_LOCAL_SIZE", "12"},
                                                                {"PMI_JOBID", "5d1c-77"}});

const Variables kFlux = {{"FLUX_TASK_RANK", "3"}, {"FLUX_JOB_SIZE", "4"}, {"FLUX_TASK_LOCAL_ID", "1"},
                         {"FLUX_JOB_ID", "f2s"},  {"PMI_RANK", "3"},      {"PMI_SIZE", "4"}};

TEST(Topology, CapturedEnvironmentsAreTakenForWhatTheyAre) {
  struct Row {
    const char* what;
    Variables variables;
    const char* launcher;
    Rank rank;
    int32_t size;
    std::optional<int32_t> local_rank;
    std::optional<int32_t> local_size;
    const char* node;
    const char* job;
  };
  const auto none = std::nullopt;
  const std::vector<Row> rows = {
      {"nothing", {}, "none", 0, 1, none, none, "", ""},
      {"Open MPI 4", kOpenMpi, "openmpi", 1, 2, 1, 2, "", "openmpi-2136932353"},
      {"Open MPI 5", kOpenMpi5, "openmpi", 5, 8, 1, 4, "", "openmpi-prterun-n17-2187@1"},
      {"Hydra", kMpich, "hydra", 1, 2, 1, 2, "", ""},
      {"srun", kSlurm, "slurm", 65, 128, 1, none, "1", "slurm-70123.4"},
      {"srun, old", without(kSlurm, "SLURM_STEP_NUM_TASKS"), "slurm", 65, 128, 1, none, "1", "slurm-70123.4"},
      {"srun --mpi=pmi2", kSlurmPmi2, "slurm", 65, 128, 1, none, "1", "slurm-70123.4"},
      {"srun --mpi=pmix", kSlurmPmix, "slurm", 65, 128, 1, none, "1", "slurm-70123.4"},
      {"srun --mpi=cray_shasta", kSlurmCray, "slurm", 65, 128, 1, none, "1", "slurm-70123.4"},
      {"srun -n 128 in an allocation of 256", with(kSlurmPmi2, {{"SLURM_NTASKS", "256"}}), "slurm", 65, 128,
       1, none, "1", "slurm-70123.4"},
      {"a batch script", kSlurmBatch, "none", 0, 1, none, none, "", ""},
      {"the shell of salloc", kSlurmShell, "none", 0, 1, none, none, "", ""},
      {"mpirun of Open MPI in a batch script", with(kSlurmBatch, kOpenMpi), "openmpi", 1, 2, 1, 2, "",
       "openmpi-2136932353"},
      {"mpirun of Open MPI, its daemons started by srun", with(kSlurm, kOpenMpi5), "openmpi", 5, 8, 1, 4, "",
       "openmpi-prterun-n17-2187@1"},
      {"mpiexec of Hydra in a batch script", with(kSlurmBatch, kMpich), "hydra", 1, 2, 1, 2, "", ""},
      // Its proxies are the tasks of a step, one a node: two here, as many as ranks.
      {"mpiexec of Hydra, its proxies started by srun",
       with(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}}),
            with(kMpich, {{"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}})),
       "hydra", 1, 2, 0, 1, "", ""},
      {"PALS", kPals, "pals", 13, 24, 1, 12, "1", "pals-5d1c-77"},
      {"Flux", kFlux, "flux", 3, 4, 1, none, "", "flux-f2s"},
      {"Flux, its brokers started by srun", with(kSlurm, kFlux), "flux", 3, 4, 1, none, "", "flux-f2s"},
  };
  for (const Row& row : rows) {
    const auto found = detect(row.variables);
    ASSERT_TRUE(found.ok()) << row.what << ": " << found.status().to_string();
    EXPECT_EQ(found->launcher, row.launcher) << row.what;
    EXPECT_EQ(found->rank, row.rank) << row.what;
    EXPECT_EQ(found->size, row.size) << row.what;
    EXPECT_EQ(found->local_rank, row.local_rank) << row.what;
    EXPECT_EQ(found->local_size, row.local_size) << row.what;
    EXPECT_EQ(found->node_id, row.node) << row.what;
    EXPECT_EQ(found->job_id, row.job) << row.what;
  }
  fmt::print("{} environments of launchers\n", rows.size());
}

TEST(Topology, ByHandWinsOverAll) {
  Variables both = kSlurm;
  both.insert(kOpenMpi.begin(), kOpenMpi.end());
  EXPECT_EQ(detect(both)->launcher, "openmpi");
  both.insert({{"SWALE_JOB_RANK", "3"}, {"SWALE_JOB_SIZE", "4"}, {"SWALE_JOB_ID", "mine"}});
  EXPECT_EQ(detect(both)->launcher, "swale");
  EXPECT_EQ(detect(both)->rank, 3);
  EXPECT_EQ(detect(both)->job_id, "swale-mine");
}

TEST(Topology, AJobIdAloneNamesTheJobOfWhateverLauncher) {
  Variables named = kMpich;
  named["SWALE_JOB_ID"] = "tuesday";
  EXPECT_EQ(detect(named)->launcher, "hydra");
  EXPECT_EQ(detect(named)->job_id, "swale-tuesday");
}

TEST(Topology, ContradictionsAreErrorsThatNameTheVariables) {
  const auto message = [](Variables variables, const char* name, const char* value) {
    variables[name] = value;
    const auto found = detect(variables);
    EXPECT_FALSE(found.ok()) << name << "=" << value;
    return std::string(found.status().message());
  };
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(message(kOpenMpi, "OMPI_COMM_WORLD_RANK", "2"),
              AllOf(HasSubstr("OMPI_COMM_WORLD_RANK=2"), HasSubstr("OMPI_COMM_WORLD_SIZE=2")));
  EXPECT_THAT(message(kMpich, "PMI_SIZE", "two"), HasSubstr("PMI_SIZE is \"two\""));
  EXPECT_THAT(message(kMpich, "PMI_SIZE", ""), HasSubstr("PMI_SIZE is not"));
  EXPECT_THAT(message(kMpich, "MPI_LOCALRANKID", "2"), HasSubstr("MPI_LOCALRANKID=2"));
  EXPECT_THAT(message(kMpich, "MPI_LOCALNRANKS", "3"), HasSubstr("MPI_LOCALNRANKS=3"));
  EXPECT_THAT(message(kSlurm, "SLURM_PROCID", "-1"), HasSubstr("SLURM_PROCID"));
  EXPECT_THAT(message(kPalsPmix, "PALS_DEPTH", "2"),
              AllOf(HasSubstr("PALS_RANKID is set but PMI_SIZE is not"), HasSubstr("SWALE_JOB_SIZE")));
  EXPECT_THAT(message(kSlurmPmi2, "PMI_RANK", "7"),
              AllOf(HasSubstr("PMI_RANK=7"), HasSubstr("SLURM_PROCID=65")));
  EXPECT_THAT(message({}, "SWALE_JOB_RANK", "0"), HasSubstr("SWALE_JOB_SIZE is not"));
  EXPECT_THAT(message({}, "SWALE_JOB_SIZE", "99999999999"), HasSubstr("SWALE_JOB_SIZE"));
}

TEST(Topology, TheNodeIdStartsWithTheHostAndIsStable) {
  EXPECT_NE(this_machine(), "");
  EXPECT_THAT(this_node_id(), testing::StartsWith(host_name() + "-"));
  EXPECT_EQ(this_node_id(), this_node_id());
  EXPECT_EQ(launcher_process_id({}), "") << "no Hydra here";
}

}  // namespace
}  // namespace swale::net::topology_test
