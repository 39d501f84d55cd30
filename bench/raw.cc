// bench_raw: the storage's own speed, as the measure for everything else: appends of prepared memory,
// durable.
//   --path FILE --bytes N --parts N (a fdatasync after each) --cache direct|buffered
#include <algorithm>

#include "bench/arguments.h"
#include "bench/direct_log.h"
#include "bench/measure.h"

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  const std::string path = arguments.text("path");
  const uint64_t bytes = arguments.number("bytes", 960'000'000);
  const uint64_t parts = arguments.number("parts", 1);
  const std::string cache = arguments.text("cache", "direct");
  arguments.expect_no_more();
  if (cache != "direct" && cache != "buffered") die("--cache: " + cache);
  remove_all(path);
  constexpr uint64_t kPieceBytes = uint64_t{2} << 20;
  const Stopwatch stopwatch;
  DirectLog log(path, cache == "direct" ? DirectLog::Cache::kDirect : DirectLog::Cache::kBuffered, bytes);
  uint64_t done = 0;
  for (uint64_t part = 1; part <= parts; ++part) {
    for (; done + kPieceBytes <= bytes / parts * part; done += kPieceBytes) log.append_buffer();
    if (part < parts) log.sync();
  }
  const std::string rest(bytes - done, 'r');
  log.append(rest.data(), rest.size());
  log.close();
  const bool direct = log.direct();
  const double wall_s = stopwatch.wall_s();
  const Cpu cpu = stopwatch.cpu();
  remove_all(path);
  report({{"program", "raw"},
          {"cache", cache},
          {"direct", direct},
          {"parts", parts},
          {"bytes", bytes},
          {"wall_s", wall_s},
          {"cpu_user_s", cpu.user_s},
          {"cpu_system_s", cpu.system_s},
          {"bytes_per_s", static_cast<double>(bytes) / wall_s}});
  return 0;
}
