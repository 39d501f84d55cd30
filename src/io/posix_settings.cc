#include "io/posix_settings.h"

#include <array>
#include <string>

namespace swale::io {
namespace {

constexpr std::array kRows = {
    OptionRow{
        .name = "io.engine",
        .type = OptionType::kEnum,
        .default_value = "auto",
        .choices = "auto|uring|threads",
        .help = "how many operations are in flight at once: io_uring where the kernel has it, else threads"},
    OptionRow{
        .name = "io.direct",
        .type = OptionType::kEnum,
        .default_value = "auto",
        .choices = "auto|never|always",
        .help =
            "whether logs bypass the page cache (O_DIRECT); auto: where the file system can and it pays"}};

}  // namespace

std::span<const OptionRow> posix_option_rows() { return kRows; }

PosixOptions posix_options(const Config& config) {
  using Engine = PosixOptions::Engine;
  using Direct = PosixOptions::Direct;
  const std::string& engine = config.get_string("io.engine");
  const std::string& direct = config.get_string("io.direct");
  PosixOptions options;
  options.engine = engine == "uring"     ? Engine::kUring
                   : engine == "threads" ? Engine::kThreads
                                         : Engine::kAuto;
  options.direct = direct == "never" ? Direct::kNever : direct == "always" ? Direct::kAlways : Direct::kAuto;
  return options;
}

}  // namespace swale::io
