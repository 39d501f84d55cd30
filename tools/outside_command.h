// Commands that are programs of their own: `swale plot` runs swale-plot, which stands beside this program or
// in PATH. The Python package (python/) brings some; a site may add its own.
//
// Threads: one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace swale::tools {

// The program swale-NAME: beside this program first, then in the absolute folders of PATH, in their order.
// None if there is none, or if the name has anything but small letters, digits and dashes.
std::optional<std::string> find_outside_command(std::string_view name);

// Whether the Python package has a command of this name.
bool is_package_command(std::string_view name);
// What to install for it, as one line.
std::string package_hint(std::string_view name);

// The program takes this process's place, with these words behind its name. Returns an exit code if it could
// not.
int become_outside_command(const std::string& program, const std::vector<std::string>& words);

}  // namespace swale::tools
