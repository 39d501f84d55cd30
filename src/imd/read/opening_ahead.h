// OpeningAhead: while a directory is being opened, a thread fetches what the first query of its newest
// cluster will look at: folders, index and footer, and where the data lie. Each is a read that waits for the
// one before; those of the directory's own documents wait beside them.
//
// The thread's findings go into the page cache only: the opening and the query read everything themselves,
// and check it. Nothing depends on the thread; all that fails there is passed over.
// No thread is started if the directory's document is in memory, as the rest then is, or for a file that has
// no descriptor, as those of other devices than the operating system's.
// Threads: the destructor waits until the thread has ended. After fork a child has no such thread.
#pragma once

#include <string>
#include <thread>

#include "base/own_process.h"
#include "io/device.h"

namespace swale::imd {

class OpeningAhead {
 public:
  // Both must outlive it.
  OpeningAhead(io::Device& device, const std::string& directory);
  ~OpeningAhead();
  OpeningAhead(const OpeningAhead&) = delete;
  OpeningAhead& operator=(const OpeningAhead&) = delete;

  bool started() const { return thread_.joinable(); }

 private:
  const OwnProcess process_;
  std::thread thread_;
};

}  // namespace swale::imd
