#include "bench/tier/recovery.h"

#include <time.h>

#include <filesystem>

#include "base/clock.h"
#include "io/posix_device.h"
#include "tier/store/store.h"

namespace swale::tierbench {

namespace {

double cpu_now() {  // of the process
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

Result<RecoveryCost> recovery_cost(const std::string& directory) {
  constexpr uint64_t kWrites = 3'900;
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory + "/backing");
  io::PosixDevice device;
  tier::StoreOptions options;
  options.ssd_directory = directory + "/ssd";
  options.backing_directory = directory + "/backing";
  options.engine.policy = tier::Policy::kSsdBlocking;
  options.engine.segment_count = 16;
  options.engine.segment_bytes = 64 * kMiB;
  {
    SWALE_ASSIGN_OR_RETURN(const auto store, tier::Store::open(device, options));
    store->pause_flush(true);
    SWALE_ASSIGN_OR_RETURN(const auto file, store->open_file("data", io::OpenMode::kCreate));
    const std::string bytes(256 * kKiB, 'x');
    for (uint64_t i = 0; i < kWrites; ++i)
      SWALE_RETURN_IF_ERROR(store->write(file, (i * 7919 % kWrites) * bytes.size(), bytes));
    SWALE_RETURN_IF_ERROR(store->close(tier::Store::AtClose::kKeep));
  }
  const double cpu = cpu_now();
  const Nanos begin = system_clock().now();
  SWALE_ASSIGN_OR_RETURN(const auto store, tier::Store::open(device, options));
  RecoveryCost cost;
  cost.open_s = to_seconds(system_clock().now() - begin);
  cost.open_cpu_s = cpu_now() - cpu;
  store->pause_flush(true);
  cost.log_bytes = store->recovery().log_bytes_read;
  cost.payload_bytes = store->recovery().dirty_bytes;
  cost.records = store->recovery().records;
  SWALE_RETURN_IF_ERROR(store->close(tier::Store::AtClose::kKeep));
  std::filesystem::remove_all(directory);
  return cost;
}

}  // namespace swale::tierbench
