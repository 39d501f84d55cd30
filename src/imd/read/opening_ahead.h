// OpeningAhead: while a directory is being opened, two threads fetch what the opening and the first query of
// its newest cluster will look at: one the list of clusters, the cluster's index and footer, and where its
// data lie; the other the newest epoch log. Cold, these are some twenty reads, of folders most of them, each
// of which tells where the next one is.
//
// The threads' findings go into the page cache only: the opening and the query read everything themselves,
// and check it. Nothing depends on the threads; all that fails there is passed over.
// No thread is started if the directory's document is in memory, as the rest then is, or for a file that has
// no descriptor, as those of other devices than the operating system's.
// Threads: the destructor waits until they have ended. After fork a child has no such threads.
#pragma once

#include <string>
#include <thread>

#include "base/own_process.h"
#include "base/status.h"
#include "io/device.h"

namespace swale::imd {

class OpeningAhead {
 public:
  // Starts the first thread. The device must outlive it.
  OpeningAhead(io::Device& device, const std::string& directory);
  ~OpeningAhead();
  OpeningAhead(const OpeningAhead&) = delete;
  OpeningAhead& operator=(const OpeningAhead&) = delete;

  // Starts the second thread, if the first one was. Best called when it does not hold up the first one's
  // start any more: a process makes one thread at a time.
  void look_at_epochs();

  bool started() const { return to_cluster_.joinable(); }

 private:
  using Look = Status (*)(const OpeningAhead&);
  void start(std::thread* thread, Look look);

  io::Device& device_;
  const std::string directory_;
  const std::string clusters_;
  const OwnProcess process_;
  std::thread to_cluster_;
  std::thread to_epochs_;
};

}  // namespace swale::imd
