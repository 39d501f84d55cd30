// fastest DIR: the particles with the most energy in the last epoch, and where they were all the time.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <swale/swale.hpp>
#include <vector>

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  const swale::Reader reader(argv[1]);
  const std::int64_t last = reader.epoch_count() - 1;
  std::vector<std::string> keys;
  for (const swale::TopRecord& best : reader.top("energy", last, 3).records) keys.push_back(best.key);
  double path[3] = {};
  double before[3][2] = {};
  for (std::int64_t epoch = 0; epoch <= last; ++epoch) {
    reader.get_many(keys, epoch, [&](std::int64_t, std::string_view key, std::string_view value) {
      std::uint64_t id;
      double here[2];
      std::memcpy(&id, key.data(), sizeof id);
      std::memcpy(here, value.data(), sizeof here);
      const double dx = here[0] - before[id][0], dy = here[1] - before[id][1];
      if (epoch > 0) path[id] += dx * dx + dy * dy;
      std::memcpy(before[id], here, sizeof here);
      return true;
    });
  }
  for (int id = 0; id < 3; ++id) std::printf("particle %d: squared steps %.5f\n", id, path[id]);
  const std::uint64_t bytes = swale::sum_of(reader.stats(), "read.bytes");
  std::printf("read %s than a tenth of the directory\n", bytes < 327680 ? "less" : "more");
} catch (const swale::Error& error) {
  std::fprintf(stderr, "fastest: %s\n", error.what());
  return 1;
}
