// DIR/swale.lock: any bytes are somebody's lock (busy), or nobody's and taken over; never a crash, and never
// both.
#include "base/log.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "imd/write/writer_lock.h"
#include "io/memory_device.h"

namespace swale::lock_fuzz {

SWALE_FUZZ_TARGET(lock_fuzz) {
  set_log_sink([](LogLevel, std::string_view) {});
  io::MemoryDevice device;
  fuzz::require(device.make_directory("/d").ok());
  const Bytes input = fuzz::as_bytes(data, size);
  fuzz::require(io::replace_file(device, imd::lock_path("/d"), input).ok());
  const auto lock = imd::acquire_writer_lock(device, "/d", 1, {.wait = 0});
  const auto left = io::read_file(device, imd::lock_path("/d"), size + 4096);
  if (lock.ok()) {
    fuzz::require(*left != input);
  } else {
    fuzz::require(size <= io::kLockBytesMax);
    fuzz::require(lock.status().code() == Code::kBusy && *left == input);
  }
  return 0;
}

}  // namespace swale::lock_fuzz
