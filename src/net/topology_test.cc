#include "net/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace swale::net {
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

// As srun's manual page gives them.
const Variables kSlurm = {{"SLURM_PROCID", "65"}, {"SLURM_NTASKS", "128"},   {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "1"},  {"SLURM_JOB_ID", "70123"}, {"SLURM_STEP_ID", "4"}};

TEST(Topology, WithoutALauncherIsOneRank) {
  const auto found = detect({});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->launcher, "none");
  EXPECT_EQ(found->rank, 0);
  EXPECT_EQ(found->size, 1);
}

TEST(Topology, ReadsOpenMpi) {
  const auto found = detect(kOpenMpi);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->launcher, "openmpi");
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->size, 2);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->local_size, 2);
  EXPECT_EQ(found->job_id, "openmpi-2136932353");
}

TEST(Topology, ReadsMpich) {
  const auto found = detect(kMpich);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->launcher, "hydra");
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->size, 2);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->job_id, "");
}

TEST(Topology, ReadsSlurm) {
  const auto found = detect(kSlurm);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->launcher, "slurm");
  EXPECT_EQ(found->rank, 65);
  EXPECT_EQ(found->size, 128);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->node_id, "1");
  EXPECT_EQ(found->job_id, "slurm-70123.4");
}

TEST(Topology, MpirunInsideSlurmIsMpirunsAndByHandWinsOverAll) {
  Variables both = kSlurm;
  both.insert(kOpenMpi.begin(), kOpenMpi.end());
  EXPECT_EQ(detect(both)->launcher, "openmpi");
  both.insert({{"SWALE_JOB_RANK", "3"}, {"SWALE_JOB_SIZE", "4"}, {"SWALE_JOB_ID", "mine"}});
  EXPECT_EQ(detect(both)->launcher, "swale");
  EXPECT_EQ(detect(both)->rank, 3);
  EXPECT_EQ(detect(both)->job_id, "swale-mine");
}

TEST(Topology, ASlurmBatchScriptIsOneRank) {
  EXPECT_EQ(detect({{"SLURM_NTASKS", "128"}, {"SLURM_JOB_ID", "5"}})->size, 1);
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
  EXPECT_THAT(message({}, "SWALE_JOB_RANK", "0"), HasSubstr("SWALE_JOB_SIZE is not"));
  EXPECT_THAT(message({}, "SWALE_JOB_SIZE", "99999999999"), HasSubstr("SWALE_JOB_SIZE"));
}

TEST(Topology, TheNodeIdStartsWithTheHostAndIsStable) {
  EXPECT_THAT(this_node_id(), testing::StartsWith(this_host_name() + "-"));
  EXPECT_EQ(this_node_id(), this_node_id());
  EXPECT_EQ(launcher_process_id({}), "") << "no Hydra here";
}

}  // namespace
}  // namespace swale::net
