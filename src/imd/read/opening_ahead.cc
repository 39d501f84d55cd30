#include "imd/read/opening_ahead.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/contain.h"
#include "base/start_thread.h"
#include "imd/format/cluster_list.h"
#include "imd/format/generation.h"
#include "imd/format/log_names.h"
#include "run/format.h"
#include "store/job_claim.h"

namespace swale::imd {
namespace {

constexpr uint64_t kFetchedMax = kMiB;  // of a document

// The answer of a file that does not know is no.
bool is_on_storage_only(io::Device& device, const std::string& path) {
  if (!device.knows(path)) return true;
  const Result<std::unique_ptr<io::File>> file = device.open(path, io::OpenMode::kRead);
  char byte = 0;
  return file.ok() && (*file)->descriptor() >= 0 && !(*file)->read_resident(0, {&byte, 1});
}

// What is looked at here is read by those who need it.

using Part = std::pair<uint64_t, uint64_t>;  // of a file: where it begins, and how long it is

Status look_at(io::Device& device, const std::string& path, Part (*part_of)(uint64_t bytes)) {
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const uint64_t bytes, file->size());
  const auto [begin, length] = part_of(bytes);
  file->announce(begin, length);
  return {};
}

Part document(uint64_t bytes) { return {0, std::min(bytes, kFetchedMax)}; }
Part footer(uint64_t bytes) {
  const uint64_t length = std::min<uint64_t>(bytes, run::kIndexPageBytes);
  return {bytes - length, length};
}
// The file system learns where the file lies.
Part any_block(uint64_t bytes) { return {bytes / 2, 1}; }

Status look_at_newest_cluster(io::Device& device, const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<uint32_t> numbers,
                         store::list_jobs(device, cluster_claims(directory)));
  if (numbers.empty()) return {};
  const std::string folder = cluster_folder(directory, numbers.back());
  LogId log{.job = 1, .place = LogPlace::kBeside};
  if (look_at(device, cluster_list_copy_path(directory), document).code() == Code::kNotFound)
    SWALE_RETURN_IF_ERROR(look_at(device, cluster_list_path(directory, numbers.back()), document));
  if (look_at(device, index_log_path(folder, log), footer).code() == Code::kNotFound) {
    log.place = LogPlace::kInFolders;  // an earlier build's
    SWALE_RETURN_IF_ERROR(look_at(device, index_log_path(folder, log), footer));
  }
  return look_at(device, data_log_path(folder, log), any_block);
}

Status look_at_newest_epochs(io::Device& device, const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<uint32_t> jobs, store::list_jobs(device, job_claims(directory)));
  return jobs.empty() ? Status() : look_at(device, epoch_log_path(directory, jobs.back()), document);
}

}  // namespace

OpeningAhead::OpeningAhead(io::Device& device, const std::string& directory)
    : device_(device), directory_(directory), clusters_(clusters_folder(directory)) {
  static_cast<void>(contain([&] {
    if (!is_on_storage_only(device_, manifest_path(directory_))) return;
    start(&to_cluster_, [](const OpeningAhead& self) -> Status {
      // A thread's first allocation waits while the process maps memory. This call allocates nothing, and
      // goes most of the way.
      SWALE_RETURN_IF_ERROR(self.device_.exists(self.clusters_).status());
      return look_at_newest_cluster(self.device_, self.directory_);
    });
  }));
}

void OpeningAhead::look_at_epochs() {
  if (!to_cluster_.joinable() || to_epochs_.joinable()) return;
  start(&to_epochs_,
        [](const OpeningAhead& self) { return look_at_newest_epochs(self.device_, self.directory_); });
}

void OpeningAhead::start(std::thread* thread, Look look) {
  static_cast<void>(start_thread(thread, "a thread that reads ahead",
                                 [this, look] { static_cast<void>(contain([&] { return look(*this); })); }));
}

OpeningAhead::~OpeningAhead() {
  for (std::thread* const thread : {&to_cluster_, &to_epochs_}) {
    if (thread->joinable()) process_.is_this() ? thread->join() : thread->detach();
  }
}

}  // namespace swale::imd
