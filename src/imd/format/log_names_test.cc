#include "imd/format/log_names.h"

#include <gtest/gtest.h>

#include <vector>

namespace swale::imd::log_names_test {
namespace {

std::string last_component(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

TEST(LogNames, AreThoseOfTheSpecification) {
  EXPECT_EQ(manifest_path("d"), "d/swale.json");
  EXPECT_EQ(jobs_folder("d"), "d/jobs");
  EXPECT_EQ(job_folder("d", 7), "d/jobs/0007");
  EXPECT_EQ(generation_path("d", 7), "d/jobs/0007/manifest.json");
  EXPECT_EQ(epoch_log_path("d", 7), "d/jobs/0007/epochs");
  EXPECT_EQ(summary_log_path("d", 7), "d/jobs/0007/extrema");
  EXPECT_EQ(attributes_path("d", 7), "d/jobs/0007/attributes.jsonl");
  EXPECT_EQ(stats_path("d", 7), "d/jobs/0007/stats.jsonl");
  EXPECT_EQ(data_log_path("d", {7, PartitionNumber(3)}), "d/p000/part-000003.j0007.data");
  EXPECT_EQ(index_log_path("d", {65'535, PartitionNumber(1'024)}), "d/p001/part-001024.j65535.index");
  EXPECT_EQ(value_log_path("d", {0, PartitionNumber(16'777'215)}), "d/p16383/part-16777215.j0000.values");
}

TEST(LogNames, ComeBackFromTheirText) {
  size_t names = 0;
  for (const uint32_t job : {0u, 1u, 9'999u, 10'000u, kJobNumberMax}) {
    EXPECT_EQ(parse_job_folder(last_component(job_folder("d", job))), job);
    for (const uint32_t partition : {0u, 1'023u, 1'024u, 999'999u, 1'000'000u, 16'777'215u, UINT32_MAX}) {
      const LogId log{job, PartitionNumber(partition)};
      for (const std::string& path :
           {data_log_path("d", log), index_log_path("d", log), value_log_path("d", log)}) {
        EXPECT_EQ(parse_log_name(last_component(path)), log) << path;
        ++names;
      }
    }
  }
  std::printf("%zu names\n", names);
}

TEST(LogNames, NothingElseIsALog) {
  const std::vector<std::string> junk = {"",
                                         "part-",
                                         "part-000003",
                                         "part-000003.data",
                                         "part-000003.j.data",
                                         "part-000003.j7.data",
                                         "part-000003.j00007.data",
                                         "part-000003.j65536.data",
                                         "part-000003.j99999999999.data",
                                         "part-03.j0007.data",
                                         "part-0000003.j0007.data",
                                         "part--00003.j0007.data",
                                         "part-+00003.j0007.data",
                                         "part-00000x.j0007.data",
                                         "part-4294967296.j0007.data",
                                         "part-000003.j0007",
                                         "part-000003.j0007.",
                                         "part-000003.j0007.top",
                                         "part-000003.j0007.data.tmp",
                                         "part-000003.j0007.values ",
                                         "part-000003.j0007x.data",
                                         "part-000003.data.j0007",
                                         "part-000003.j-007.data",
                                         " part-000003.j0007.data",
                                         "Part-000003.j0007.data",
                                         "part-000003..j0007.data"};
  for (const std::string& name : junk) EXPECT_EQ(parse_log_name(name), std::nullopt) << name;
}

TEST(LogNames, NothingElseIsAJobsFolder) {
  for (const std::string name : {"", "7", "007", "00007", "65536", "99999999999", "-001", "+001", "000x",
                                 "0007 ", " 0007", "0007.tmp", ".", ".."}) {
    EXPECT_EQ(parse_job_folder(name), std::nullopt) << name;
  }
}

// Every name with one character replaced is no log, or another log.
TEST(LogNames, NoTwoNamesAreOneLog) {
  const std::string name = "part-000003.j0007.data";
  size_t visited = 0;
  for (size_t at = 0; at < name.size(); ++at) {
    for (int c = 0; c < 256; ++c) {
      std::string other = name;
      other[at] = static_cast<char>(c);
      if (other == name) continue;
      EXPECT_NE(parse_log_name(other), (LogId{7, PartitionNumber(3)})) << other;
      ++visited;
    }
  }
  std::printf("%zu names\n", visited);
}

}  // namespace
}  // namespace swale::imd::log_names_test
