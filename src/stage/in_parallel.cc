#include "stage/in_parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/start_thread.h"

namespace swale::stage {

Status in_parallel(size_t threads, size_t count, size_t buffer_bytes,
                   const std::function<void(size_t index, Buffer& buffer)>& body) {
  std::atomic<size_t> next{0};
  const auto work = [&](Buffer& buffer) {
    for (size_t index = next++; index < count; index = next++) body(index, buffer);
  };
  SWALE_ASSIGN_OR_RETURN(Buffer own, Buffer::allocate(buffer_bytes, HugePages::kAdvise));
  std::vector<std::thread> started(std::min(std::max<size_t>(threads, 1), std::max<size_t>(count, 1)) - 1);
  for (std::thread& thread : started) {
    const Status status = start_thread(&thread, "a thread that stages files", [&] {
      Result<Buffer> buffer = Buffer::allocate(buffer_bytes, HugePages::kAdvise);
      if (buffer.ok()) work(*buffer);
    });
    if (!status.ok()) break;
  }
  work(own);
  for (std::thread& thread : started)
    if (thread.joinable()) thread.join();
  return {};
}

}  // namespace swale::stage
