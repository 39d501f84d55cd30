// in_batches: takes tasks through three steps on several threads, a batch of them at a time:
//
//   begin ─► write (each task) ─► sync (the batch) ─► check (each task)
//
// While one batch is checked, the next ones are written: half of the threads look for what is to be checked
// first, half for what is to be written. At most kBatchesAtOnce batches have begun and are not checked.
//
// Each thread has a buffer, as in_parallel gives it. Steps must contain what they throw (base/contain.h).
// What a step of a task has written is seen by its next one.
// Threads: a free function; write and check are called at the same time, for different tasks, sync for
//   different batches, begin alone.
// Errors: without memory for one buffer no step is called.
#pragma once

#include <cstddef>
#include <functional>

#include "base/buffer.h"
#include "base/status.h"

namespace swale::stage {

inline constexpr size_t kBatchesAtOnce = 3;

struct BatchSteps {
  // The tasks of the batch that begins with this one: how many. 0: no more batches.
  std::function<size_t(size_t first)> begin;
  std::function<void(size_t task, Buffer& buffer)> write;
  std::function<void(size_t first, size_t count)> sync;
  std::function<void(size_t task, Buffer& buffer)> check;
};

Status in_batches(size_t threads, size_t buffer_bytes, const BatchSteps& steps);

}  // namespace swale::stage
