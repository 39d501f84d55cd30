#include "stage/folder_work.h"

#include <fcntl.h>

#include <cerrno>
#include <set>

#include "base/contain.h"
#include "stage/attributes.h"
#include "stage/in_parallel.h"

namespace swale::stage {
namespace {

constexpr mode_t kOwner = 0700;
constexpr char kOpening[] = "opening the folder";

}  // namespace

FolderWork::FolderWork(const CopyPlace& place, const Plan& plan, const Entry* top, Outcomes& outcomes)
    : place_(place), plan_(plan), top_(top), outcomes_(outcomes) {}

void FolderWork::make() {
  for (const Entry& folder : plan_.folders)
    if (const Status made = contain([&] { return make_folder(folder); }); !made.ok())
      outcomes_.fail(folder.source, made);
  if (place_.options.manifest.empty()) return;
  for (const std::string& folder : with_names())
    if (const Status made = contain([&] { return io::make_directories(place_.device, folder); }); !made.ok())
      outcomes_.fail(folder, made);
}

Status FolderWork::make_folder(const Entry& folder) {
  const Status made = place_.device.make_directory(folder.destination);
  if (made.ok() || made.code() != Code::kAlreadyExists) return made;
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor fd,
                         place_.destination.open(folder.destination, O_RDONLY | O_DIRECTORY, kOpening));
  struct stat now;
  if (::fstat(fd.get(), &now) != 0) return errno_status(errno, folder.destination + ": looking at it");
  const mode_t mode = now.st_mode & 07777;
  // An earlier stage may have closed it to its owner.
  if (now.st_uid == ::geteuid() && (mode & kOwner) != kOwner && ::fchmod(fd.get(), mode | kOwner) != 0)
    return errno_status(errno, folder.destination + ": opening it to its owner");
  return {};
}

void FolderWork::settle() {
  const auto settle_one = [&](const Entry& folder) {
    if (const Status settled = contain([&] { return settle_folder(folder); }); !settled.ok())
      outcomes_.fail(folder.source, settled);
  };
  // The innermost first: what is changed in a folder changes its times.
  for (auto folder = plan_.folders.rbegin(); folder != plan_.folders.rend(); ++folder) settle_one(*folder);
  if (top_ != nullptr) settle_one(*top_);
}

Status FolderWork::settle_folder(const Entry& folder) {
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor copy,
                         place_.destination.open(folder.destination, O_RDONLY | O_DIRECTORY, kOpening));
  if (place_.options.ranks > 1) {
    if (::fchmod(copy.get(), (folder.attributes.st_mode & 07777) | kOwner) == 0) return {};
    return errno_status(errno, folder.destination + ": setting its mode");
  }
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor source,
                         place_.source.open(folder.source, O_RDONLY | O_DIRECTORY, kOpening));
  return copy_attributes(source.get(), folder.attributes, copy.get(), folder.destination,
                         place_.options.attributes);
}

void FolderWork::sync() {
  const std::vector<std::string> folders = with_names();
  const Status ran =
      in_parallel(place_.options.threads, folders.size(), Buffer::kPageBytes, [&](size_t i, Buffer&) {
        const Status synced = contain([&] { return place_.device.sync_directory(folders[i]); });
        if (!synced.ok()) outcomes_.fail(folders[i], synced);
      });
  if (!ran.ok()) outcomes_.fail("", ran);
}

std::vector<std::string> FolderWork::with_names() const {
  std::set<std::string> folders;
  if (place_.options.manifest.empty()) folders.insert(place_.options.to);
  for (const Entry& folder : plan_.folders) folders.insert(folder.destination);
  for (const auto* const entries : {&plan_.files, &plan_.links})
    for (const Entry& entry : *entries) folders.insert(io::parent_directory(entry.destination));
  return {folders.begin(), folders.end()};
}

}  // namespace swale::stage
