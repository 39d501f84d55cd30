// Makes man pages from the commands and the option table.
//
// Format: man(7) macros, ASCII alone, read by groff and mandoc without a warning.
// Threads: free functions.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace swale::tools {

struct ManPage {
  std::string name;  // of the file: "swale-get.1"
  std::string text;
};

// swale.1, one page per command, swale-options.7 and swale-directory.5. `date` as in 2026-11-21.
std::vector<ManPage> man_pages(const CLI::App& app, const std::string& date);

std::string swale_version_text();  // "0.1.0"

}  // namespace swale::tools
