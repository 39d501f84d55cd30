// follow DIR EPOCHS: says what each epoch has, as soon as it is there.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <swale/swale.hpp>
#include <thread>

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  swale::Reader reader(argv[1]);
  const std::int64_t wanted = std::atoll(argv[2]);
  for (std::int64_t seen = 0; seen < wanted; reader.refresh()) {
    for (; seen < reader.epoch_count(); ++seen) {
      const swale_epoch_info epoch = reader.epoch_info(seen);
      std::printf("epoch %lld, time %.1f: %llu records\n", static_cast<long long>(epoch.epoch), epoch.time,
                  static_cast<unsigned long long>(epoch.records));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
} catch (const swale::Error& error) {
  std::fprintf(stderr, "follow: %s\n", error.what());
  return 1;
}
