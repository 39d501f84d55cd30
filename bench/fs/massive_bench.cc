// bench_fs_massive: what a value costs a program that writes a massive directory by path, with
// libswale_preload.so and no other part of Swale (fs.py sets LD_PRELOAD).
//   --massive DIR     as `swale mkdir --massive` has made it
//   --values N        of 40 bytes an epoch; --epochs E
//
// Processor time of the thread that calls: what the engine does behind it is index_cpu_ns_per_record's
// matter. Predicted for a stream: 300, and 50 for the append.
//
// Names are made before; they have 8 bytes, as the keys of the other benchmarks, or 12, which the engine's
// shortest way does not take. The first epoch opens the engine and makes the stream, and is not counted; what
// is reported is a median over the others. by_stream_ns: fopen, fwrite, fclose; by_stream_12_ns: longer
// names; by_descriptor_ns: open, write, close.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench/arguments.h"
#include "bench/check_status.h"
#include "bench/measure.h"

namespace swale::bench {
namespace {

constexpr size_t kValueBytes = 40;
constexpr double kNanos = 1e9;

void by_stream(const std::string& path, const char* value) {
  std::FILE* const file = std::fopen(path.c_str(), "a");
  if (file == nullptr || std::fwrite(value, 1, kValueBytes, file) != kValueBytes || std::fclose(file) != 0)
    die(path + ": " + std::strerror(errno));
}

void by_descriptor(const std::string& path, const char* value) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0 || ::write(file, value, kValueBytes) != static_cast<ssize_t>(kValueBytes) ||
      ::close(file) != 0)
    die(path + ": " + std::strerror(errno));
}

// Nanoseconds a value.
template <class Write>
double epoch_ns(const std::string& directory, const std::vector<std::string>& paths, const Write& write) {
  char value[kValueBytes];
  std::memset(value, 'x', sizeof value);
  DIR* const epoch = ::opendir(directory.c_str());
  if (epoch == nullptr) die(directory + ": " + std::strerror(errno));
  const double began = thread_cpu_s();
  for (const std::string& path : paths) write(path, value);
  const double took = thread_cpu_s() - began;
  if (::closedir(epoch) != 0) die(directory + ": closedir: " + std::strerror(errno));
  return took / static_cast<double>(paths.size()) * kNanos;
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  const std::string directory = arguments.text("massive");
  const uint64_t values = arguments.number("values", 200'000), epochs = arguments.number("epochs", 5);
  arguments.expect_no_more();
  if (::dlsym(RTLD_DEFAULT, "swale_preload_version") == nullptr)
    die("libswale_preload.so is not here: set LD_PRELOAD");
  std::vector<std::string> paths, longer;
  char name[16];
  for (uint64_t i = 0; i < values; ++i) {
    std::snprintf(name, sizeof name, "/%08u", static_cast<unsigned>(i));
    paths.push_back(directory + name);
    longer.push_back(paths.back() + ".vpc");
  }
  std::vector<double> streams, descriptors, longer_streams;
  epoch_ns(directory, paths, by_stream);
  for (uint64_t i = 0; i < epochs; ++i) {
    streams.push_back(epoch_ns(directory, paths, by_stream));
    longer_streams.push_back(epoch_ns(directory, longer, by_stream));
    descriptors.push_back(epoch_ns(directory, paths, by_descriptor));
  }
  report_as("bench_fs_massive", "massive",
            {{"by_stream_ns", percentile(streams, 0.5)},
             {"by_stream_12_ns", percentile(longer_streams, 0.5)},
             {"by_descriptor_ns", percentile(descriptors, 0.5)}});
  return 0;
}
