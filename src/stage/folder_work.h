// FolderWork: the folders of a stage. They are made, open to their owner, before files come into them; get
// their modes and times after the last file; and are synced at the end of an "out", which makes the names in
// them durable.
//
// Threads: one; sync starts its own.
// Errors: each folder's go to the outcomes; files in a folder that could not be made fail by themselves.
// Limits: where several processes divide the files, a folder keeps its owner's rights to it, and the times of
// the copy: another process may still have files to bring.
#pragma once

#include <string>
#include <vector>

#include "stage/file_copy.h"
#include "stage/outcomes.h"

namespace swale::stage {

class FolderWork {
 public:
  // `top`: the destination's own folder, if this stage has made it; else null. All outlives it.
  FolderWork(const CopyPlace& place, const Plan& plan, const Entry* top, Outcomes& outcomes);

  void make();
  void settle();
  void sync();

 private:
  Status make_folder(const Entry& folder);
  Status settle_folder(const Entry& folder);
  // Whose names are to be durable.
  std::vector<std::string> with_names() const;

  const CopyPlace& place_;
  const Plan& plan_;
  const Entry* const top_;
  Outcomes& outcomes_;
};

}  // namespace swale::stage
