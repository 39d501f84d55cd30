// swale_manual DIR DATE HEADER...: writes DIR/man/*.[1357] (section 3 from the headers, swale.h and others)
// and DIR/completion/{swale.bash,_swale,swale.fish}. Runs during the build; it is not installed.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>

#include "tools/commands.h"
#include "tools/completion.h"
#include "tools/man_header.h"
#include "tools/man_pages.h"

namespace swale::tools {
namespace {

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw std::runtime_error(path.string() + ": cannot be written");
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file || text.empty()) throw std::runtime_error(path + ": cannot be read");
  return text;
}

void write_all(const std::filesystem::path& folder, const std::string& date, std::span<char* const> headers) {
  CLI::App app;
  Run run;
  add_commands(app, &run);
  std::filesystem::create_directories(folder / "man");
  std::filesystem::create_directories(folder / "completion");
  for (const ManPage& page : man_pages(app, date)) write_file(folder / "man" / page.name, page.text);
  for (const std::filesystem::path header : headers) {
    for (const ManPage& page : header_pages({header.stem(), read_file(header)}, date))
      write_file(folder / "man" / page.name, page.text);
  }
  write_file(folder / "completion" / "swale.bash", completion(app, Shell::kBash));
  write_file(folder / "completion" / "_swale", completion(app, Shell::kZsh));
  write_file(folder / "completion" / "swale.fish", completion(app, Shell::kFish));
}

}  // namespace
}  // namespace swale::tools

int main(int argc, char** argv) {
  try {
    if (argc < 4) {
      std::fprintf(stderr, "usage: swale_manual DIR DATE HEADER...\n");
      return 2;
    }
    swale::tools::write_all(argv[1], argv[2], {argv + 3, argv + argc});
    return 0;
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "swale_manual: %s\n", exception.what());
    return 1;
  }
}
