// The manual pages of section 3, made from the public headers: their comments are the only source. Every
// declaration with a comment (functions, structs, enums) has a page, named after its first name; the
// declaration's other names lead to that page. swale(3) has the conventions and a list of the pages of
// swale.h; swale-meta-calls(3) and so on have those of the other headers.
//
// Format of the header: a comment at the start of a line belongs to the declarations after it, up to an empty
// line or the next such comment; "---- Title ----" in a comment begins a section. Threads: free functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/man_pages.h"

namespace swale::tools {

struct Header {
  std::string name;  // "swale_meta"
  std::string text;
};
std::vector<ManPage> header_pages(const Header& header, const std::string& date);

}  // namespace swale::tools
