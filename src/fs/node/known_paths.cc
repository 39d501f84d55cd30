#include "fs/node/known_paths.h"

#include "base/coding.h"
#include "base/contain.h"
#include "fs/share/share_coding.h"

namespace swale::fs {
namespace {

constexpr uint16_t kPathsRecordKind = 1;

void append_path(const meta::FileId& file, const std::string& path, std::string* record) {
  append_id(record, file);
  append_sized(record, path);
}

}  // namespace

Result<std::unique_ptr<KnownPaths>> KnownPaths::open(io::Device& device, const std::string& folder) noexcept {
  std::unique_ptr<KnownPaths> known;
  const Status opened = contain([&]() -> Status {
    known = std::make_unique<KnownPaths>();
    SWALE_RETURN_IF_ERROR(io::make_directories(device, folder));
    SWALE_ASSIGN_OR_RETURN(known->log_,
                           StateLog::open(device, {folder, "paths-", kKnownPathsKind, kPathsRecordKind},
                                          [&](Bytes payload) { return known->take(payload); }));
    return known->begin_anew();
  });
  if (!opened.ok()) return opened;
  return known;
}

bool KnownPaths::take(Bytes payload) {
  Decoder in(payload);
  while (in.ok() && in.remaining() > 0) {
    const meta::FileId file = take_id(&in);
    const Bytes path = in.sized();
    if (in.ok()) paths_[file] = path;
  }
  return in.ok();
}

Status KnownPaths::begin_anew() {
  std::string whole = StateLog::new_record();
  for (const auto& [file, path] : paths_) append_path(file, path, &whole);
  const uint64_t bytes = whole.size();
  SWALE_RETURN_IF_ERROR(log_->begin(std::move(whole)));
  state_bytes_ = bytes;
  return {};
}

std::vector<meta::FileId> KnownPaths::beneath(const std::string& directory) const {
  std::vector<meta::FileId> found;
  const std::string begin = directory + "/";
  for (const auto& [file, path] : paths_)
    if (path.starts_with(begin)) found.push_back(file);
  return found;
}

Status KnownPaths::put(const meta::FileId& file, const std::string& path) noexcept {
  std::vector<std::pair<meta::FileId, std::string>> changed;
  const Status made = contain([&] { changed.emplace_back(file, path); });
  return made.ok() ? put(changed) : made;
}

Status KnownPaths::put(const std::vector<std::pair<meta::FileId, std::string>>& changed) noexcept {
  const Status kept = contain([&]() -> Status {
    std::string record = StateLog::new_record();
    const size_t empty = record.size();
    for (const auto& [file, path] : changed) {
      std::string& known = paths_[file];
      if (known == path) continue;
      known = path;
      append_path(file, path, &record);
    }
    if (behind_ || (record.size() > empty && log_->is_long(state_bytes_))) return begin_anew();
    if (record.size() == empty) return {};
    return log_->append(std::move(record), store::AppendSync::kLater);
  });
  behind_ = !kept.ok();
  return kept;
}

}  // namespace swale::fs
