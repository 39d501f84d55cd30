// Pieces of manual pages: text that troff takes for text, with the macros of man(7).
//
// Threads: free functions.
#pragma once

#include <string>
#include <string_view>

namespace swale::tools::roff {

// Nothing in it is a request or an escape.
std::string plain(std::string_view text);

// Sentences start on their own lines, as troff wants them; empty lines become paragraphs.
std::string paragraphs(std::string_view text);

// As it stands, line by line.
std::string listing(std::string_view text);

// The first line of a page. `date` as in 2026-11-21.
std::string header(const std::string& name, int section, const std::string& date);

}  // namespace swale::tools::roff
