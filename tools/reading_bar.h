// ReadingBar: a ProgressBar for calls of a Reader that report nothing until they return. It polls the
// reader's count of bytes; a quick call shows no bar.
// Threads: one of its own, which ends with the bar; none if no bar is wanted.
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
  // `expected_bytes`: the bytes of one walk over the data; 0: unknown, and the bar shows bytes without a
  // percentage. `wanted`: ProgressBar::wanted() or wanted_beside_output(). `reader` must outlive the bar.
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

// About the bytes that a walk over one epoch, or (kAllEpochs) over all, reads: those of keys and values.
uint64_t bytes_of_epochs(const imd::Manifest& manifest, int64_t epoch);

}  // namespace swale::tools
