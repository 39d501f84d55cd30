#include "tools/imd_engine.h"

#include "imd/check/repair.h"
#include "imd/check/verify.h"

namespace swale::tools {

constexpr Engine kImdEngine = {.format = "swale-imd",
                               .directory = "massive directory",
                               .info = imd_info,
                               .verify = imd_verify,
                               .stats = imd_stats,
                               .dump = imd_dump,
                               .repair = imd_repair};

std::string step_text(const imd::EpochEntry& epoch) {
  return epoch.step == imd::kStepUnknown ? "unknown" : fmt::format("{}", epoch.step);
}

Json step_json(const imd::EpochEntry& epoch) {
  return epoch.step == imd::kStepUnknown ? Json() : Json(epoch.step);
}

Result<VerifyReport> imd_verify(const std::string& path, const VerifyRequest& request) {
  SWALE_ASSIGN_OR_RETURN(const auto directory, open_imd(path));
  const imd::VerifyReport report =
      imd::verify_directory(*directory->reader, request.problems_max, request.progress);
  VerifyReport common{report.problems,
                      {{"epochs", "epochs", report.epochs},
                       {"partitions", "partitions", report.partitions},
                       {"records", "records", report.records},
                       {"bytes_checked", "bytes checked", report.bytes_checked}}};
  if (report.clusters > 0) common.checked.push_back({"clusters", "clusters", report.clusters});
  return common;
}

Result<RepairReport> imd_repair(io::Device& device, const std::string& path, const RepairRequest& request) {
  SWALE_ASSIGN_OR_RETURN(
      imd::RepairReport report,
      imd::repair_directory(device, path, {.dry_run = request.dry_run, .progress = request.progress}));
  RepairReport common;
  common.counts = {{"partitions", report.partitions},
                   {"whole_runs", report.whole_runs},
                   {"torn_runs", report.torn_runs},
                   {"manifest_rebuilt", report.manifest_rebuilt},
                   {"indexes_rebuilt", report.indexes_rebuilt},
                   {"epochs_recovered", report.epochs_recovered},
                   {"records_recovered", report.records_recovered},
                   {"lost_parts", report.lost_parts},
                   {"reclaimable_bytes", report.reclaimable_bytes}};
  common.headline = fmt::format("{} partitions, {} whole runs, {} torn ones", report.partitions,
                                report.whole_runs, report.torn_runs);
  if (report.reclaimable_bytes > 0) {
    common.remark =
        fmt::format("{} bytes after the last runs were reserved and never used", report.reclaimable_bytes);
  }
  common.found = std::move(report.found);
  common.done = std::move(report.done);
  common.lost = std::move(report.lost);
  return common;
}

}  // namespace swale::tools
