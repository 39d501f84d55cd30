// Completion for shells, made from the commands: their names, their options, and what these take.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace swale::tools {

enum class Shell { kBash, kZsh, kFish };

// A script to be sourced (bash, fish) or to stand as _swale in $fpath (zsh; sourced, it works, too).
std::string completion(const CLI::App& app, Shell shell);

}  // namespace swale::tools
