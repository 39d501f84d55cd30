// path DIR ID: where a particle was, in C++.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <swale/swale.hpp>

struct Particle {
  double x, y;
  double energy;
};

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  const swale::Reader reader(argv[1]);
  const std::uint64_t id = std::stoull(argv[2]);
  for (const swale::Value& value : reader.get({reinterpret_cast<const char*>(&id), sizeof id})) {
    Particle p;
    std::memcpy(&p, value.bytes.data(), sizeof p);
    std::printf("time %.1f  x %7.4f  y %7.4f\n", reader.epoch_info(value.epoch).time, p.x, p.y);
  }
} catch (const swale::Error& error) {
  std::fprintf(stderr, "path: %s\n", error.what());
  return 1;
}
