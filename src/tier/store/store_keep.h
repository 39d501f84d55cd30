// What becomes of records whose file recovery does not find, or cannot open, and of which nobody says that it
// was removed: their bytes are written to `.swale-tier/kept.ID` of the backing directory
// (tier/log/kept_file.h), durably, and named. So the log's segments can be erased, and nothing that was
// acknowledged is gone. An opening that finds the file brings the bytes to it before any other call sees the
// file.
//
// Threads: one at a time per pair of directories, which are locked. Errors: a failure of the backing device
// ends the opening, with the records still in the log.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tier/log/kept_file.h"
#include "tier/store/store_core.h"

namespace swale::tier {

// A kept file, or why it cannot be read.
struct FoundKept {
  KeptFile kept;
  Status damaged;
};
// By the ids of their files.
Result<std::map<uint64_t, FoundKept>> read_kept(io::Device& device, const std::string& backing_directory);

// Whether records of the file say anything that the backing file may not have; counts them as records that
// were not dropped.
bool has_news(uint64_t id, OpenedStore* opened);
// Keeps what the records of file `id` say; `before`: what is kept of it already. The report names it.
Status keep_bytes(uint64_t id, const FileIdentity& identity, const FoundKept* before, std::string why,
                  OpenedStore* opened);
// The report names what is kept already, and nothing is written.
void name_kept(const KeptFile& kept, std::string why, OpenedStore* opened);
// Brings what is kept of a file to it, and what of that is lost to the list of losses.
Status bring_bytes(const FoundKept& kept, io::File& file, OpenedStore* opened);
// The user gives it up.
Status give_up_kept(const FoundKept& kept, OpenedStore* opened);

}  // namespace swale::tier
