// Text in lines, for help texts and tables. Threads: none needed, functions of their arguments.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace swale::tools {

// Wraps the text to lines of at most `width` characters; keeps paragraphs apart.
std::string wrap(std::string_view text, size_t width, std::string_view indent = {});

}  // namespace swale::tools
