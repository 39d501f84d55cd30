// reads DIR: what writes.c wrote, through the C++ interface.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <swale/swale.hpp>

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  const swale::Reader reader(argv[1]);
  int right = 0;
  for (std::int64_t key = 0; key < 100; ++key) {
    const auto values = reader.get({reinterpret_cast<const char*>(&key), sizeof key});
    if (values.size() != 2) continue;
    double square = -1;
    std::memcpy(&square, values[1].bytes.data(), sizeof square);
    right += values[1].epoch == 1 && square == static_cast<double>(key * key + 1);
  }
  const auto top = reader.top("square", 1, 1);
  std::printf("%s: %d right, %llu records, largest %g\n", swale::version().c_str(), right,
              static_cast<unsigned long long>(reader.count()), top.records.at(0).number);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "reads: %s\n", error.what());
  return 1;
}
