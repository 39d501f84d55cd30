// Pieces of manual pages: escaped text and the macros of man(7).
//
// Threads: free functions.
#pragma once

#include <string>
#include <string_view>

namespace swale::tools::roff {

// Escapes the text, so that troff sees no request and no escape in it.
std::string plain(std::string_view text);

// Puts each sentence on its own line, as troff wants it; empty lines become paragraphs.
std::string paragraphs(std::string_view text);

// The text unchanged, line by line.
std::string listing(std::string_view text);

// The first line of a page. `date` as in 2026-11-21.
std::string header(const std::string& name, int section, const std::string& date);

}  // namespace swale::tools::roff
