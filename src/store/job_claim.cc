#include "store/job_claim.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace swale::store {
namespace {

constexpr int kAttempts = 3;  // jobs that may be faster than this one

Status make_claim(io::Device& device, const ClaimNames& names, uint32_t number) {
  const std::string path = names.path(number);
  return names.kind == ClaimNames::Kind::kFolder ? device.make_directory(path)
                                                 : device.open(path, io::OpenMode::kCreate).status();
}

}  // namespace

Result<std::vector<uint32_t>> list_jobs(io::Device& device, const ClaimNames& names) {
  const Result<std::vector<std::string>> listed = device.list(names.folder);
  std::vector<uint32_t> numbers;
  if (listed.status().code() == Code::kNotFound) return numbers;
  SWALE_RETURN_IF_ERROR(listed.status());
  for (const std::string& name : *listed) {
    if (const std::optional<uint32_t> number = names.number(name)) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

Result<JobClaim> JobClaim::next(io::Device& device, const ClaimNames& names) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    SWALE_ASSIGN_OR_RETURN(const std::vector<uint32_t> jobs, list_jobs(device, names));
    const uint64_t number = std::max(names.number_min, jobs.empty() ? 0 : uint64_t{jobs.back()} + 1);
    if (number > names.number_max) {
      return error(Code::kResourceExhausted, Scope::kFile,
                   "{}: {} jobs have opened it for writing, the limit; write to a new directory",
                   names.directory, names.number_max);
    }
    const auto claimed = static_cast<uint32_t>(number);
    const Status made = make_claim(device, names, claimed);
    if (made.code() == Code::kAlreadyExists) continue;
    SWALE_RETURN_IF_ERROR(made);
    SWALE_RETURN_IF_ERROR(device.sync_directory(names.folder));
    return JobClaim(device, names, claimed);
  }
  return error(Code::kBusy, Scope::kFile, "{}: other jobs are opening it for writing; try again",
               names.directory);
}

Status JobClaim::fence() const {
  SWALE_ASSIGN_OR_RETURN(const bool taken_over, device_->exists(next_));
  if (!taken_over) return {};
  return error(
      Code::kAborted, Scope::kFile,
      "{}: job {} has opened the directory after this one (job {}), which therefore may not commit any "
      "more; what this job committed before is kept",
      directory_, number_ + 1, number_);
}

}  // namespace swale::store
