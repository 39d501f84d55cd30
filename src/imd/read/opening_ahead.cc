#include "imd/read/opening_ahead.h"

#include <algorithm>
#include <vector>

#include "base/contain.h"
#include "base/start_thread.h"
#include "imd/format/cluster_list.h"
#include "imd/format/log_names.h"
#include "run/format.h"
#include "store/job_claim.h"

namespace swale::imd {
namespace {

// The answer of a file that does not know is no.
bool is_on_storage_only(io::Device& device, const std::string& path) {
  const Result<std::unique_ptr<io::File>> file = device.open(path, io::OpenMode::kRead);
  char byte = 0;
  return file.ok() && (*file)->descriptor() >= 0 && !(*file)->read_resident(0, {&byte, 1});
}

// Whatever is read here is read again by those who need it.
Status look_at_newest_cluster(io::Device& device, const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<uint32_t> numbers,
                         store::list_jobs(device, cluster_claims(directory)));
  if (numbers.empty()) return {};
  const std::string folder = cluster_folder(directory, numbers.back());
  const LogId log{.job = 1};
  SWALE_ASSIGN_OR_RETURN(const auto index, device.open(index_log_path(folder, log), io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const auto data, device.open(data_log_path(folder, log), io::OpenMode::kRead));
  char bytes[run::kBlockBytes];
  SWALE_ASSIGN_OR_RETURN(const uint64_t index_bytes, index->size());
  const uint64_t tail = std::min<uint64_t>(index_bytes, sizeof(bytes));
  SWALE_RETURN_IF_ERROR(index->pread(index_bytes - tail, {bytes, tail}).status());
  // Any block: the file system learns where the file lies.
  SWALE_ASSIGN_OR_RETURN(const uint64_t data_bytes, data->size());
  return data->pread(data_bytes / 2, bytes).status();
}

}  // namespace

OpeningAhead::OpeningAhead(io::Device& device, const std::string& directory) {
  static_cast<void>(contain([&] {
    if (!is_on_storage_only(device, manifest_path(directory))) return;
    static_cast<void>(start_thread(&thread_, "a thread that reads ahead", [&device, &directory] {
      static_cast<void>(contain([&] { return look_at_newest_cluster(device, directory); }));
    }));
  }));
}

OpeningAhead::~OpeningAhead() {
  if (thread_.joinable()) process_.is_this() ? thread_.join() : thread_.detach();
}

}  // namespace swale::imd
