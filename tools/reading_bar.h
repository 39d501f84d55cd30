// ReadingBar: a ProgressBar for calls of a Reader that tell nothing until they are done. It looks at the reader's own count
// of bytes from time to time, and shows nothing of what is done at once.
// Threads: one of its own, which ends with the bar; none where no bar is wanted.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "imd/read/reader.h"
#include "tools/progress.h"

namespace swale::tools {

class ReadingBar {
 public:
  // `expected_bytes` are those of one walk over what is read; 0: not known, and the bytes are shown without a share.
  // `wanted`: ProgressBar::wanted() or wanted_beside_output(). `reader` must outlive the bar.
  ReadingBar(const imd::Reader& reader, uint64_t expected_bytes, bool wanted);
  ~ReadingBar();
  ReadingBar(const ReadingBar&) = delete;
  ReadingBar& operator=(const ReadingBar&) = delete;

 private:
  void watch();

  const imd::Reader& reader_;
  const uint64_t expected_bytes_;
  const uint64_t before_bytes_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;  // guarded by mutex_
  ProgressBar bar_;     // the thread's
  std::thread thread_;
};

// Of the keys and values of one epoch or (kAllEpochs) of all: about what a walk over them reads.
uint64_t bytes_of_epochs(const imd::Manifest& manifest, int64_t epoch);

}  // namespace swale::tools
