// What bench_fs_light and bench_fs_unmounted time: processes that make files in one directory.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/check_status.h"
#include "bench/processes.h"

namespace swale::bench {

inline constexpr uint64_t kCreators = 8;

inline double best(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

// Microseconds a file: kCreators processes make `creates` files each in a new folder of `root`, write
// `content`, if it is any, and close them. All are there afterwards.
inline double create_us(const std::string& root, uint64_t round, uint64_t creates,
                        std::string_view content = {}) {
  const std::string folder = fmt::format("{}/round{}", root, round);
  const auto name_of = [&](uint64_t process, uint64_t i) {
    return fmt::format("{}/c{}-{}", folder, process, i);
  };
  if (::mkdir(folder.c_str(), 0755) != 0) die(folder + ": " + ::strerror(errno));
  const WorkTimes times =
      work_at_once(kCreators, [&](uint64_t process, const std::function<void()>& written) {
        for (uint64_t i = 0; i < creates; ++i) {
          const std::string name = name_of(process, i);
          const int file = ::open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
          const bool wrote =
              file >= 0 && (content.empty() || ::write(file, content.data(), content.size()) >= 0);
          if (!wrote || ::close(file) != 0) die(name + ": " + ::strerror(errno));
        }
        written();
      });
  struct stat found;
  for (uint64_t process = 0; process < kCreators; ++process)
    for (uint64_t i = 0; i < creates; ++i)
      if (::stat(name_of(process, i).c_str(), &found) != 0 ||
          found.st_size != static_cast<off_t>(content.size()))
        die(folder + ": a file that was made is not there");
  constexpr double kMicros = 1e6;
  return times.all_s / static_cast<double>(kCreators * creates) * kMicros;
}

}  // namespace swale::bench
