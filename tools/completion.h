// Completion for shells, made from the commands: their names, their options, and the options' values.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace swale::tools {

enum class Shell { kBash, kZsh, kFish };

// A script to source (bash, fish), or to install as _swale in $fpath (zsh; sourcing it works, too).
std::string completion(const CLI::App& app, Shell shell);

}  // namespace swale::tools
