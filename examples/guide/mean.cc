// mean DIR: the mean energy of all records, four threads.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <swale/swale.hpp>
#include <thread>
#include <vector>

constexpr std::uint32_t kThreads = 4;

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  const swale::Reader reader(argv[1]);
  std::vector<double> sums(kThreads);
  std::vector<std::thread> threads;
  for (std::uint32_t part = 0; part < kThreads; ++part) {
    threads.emplace_back([&, part] {
      reader.scan_part(SWALE_ALL_EPOCHS, part, kThreads,
                       [&](std::int64_t, std::string_view, std::string_view value) {
                         double energy;
                         std::memcpy(&energy, value.data() + 16, sizeof energy);
                         sums[part] += energy;
                         return true;
                       });
    });
  }
  double sum = 0;
  for (std::uint32_t part = 0; part < kThreads; ++part) {
    threads[part].join();
    sum += sums[part];
  }
  std::printf("mean energy %.6f of %llu records\n", sum / static_cast<double>(reader.count()),
              static_cast<unsigned long long>(reader.count()));
} catch (const swale::Error& error) {
  std::fprintf(stderr, "mean: %s\n", error.what());
  return 1;
}
