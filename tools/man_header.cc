#include "tools/man_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <regex>

#include "tools/roff.h"

namespace swale::tools {
namespace {

constexpr std::string_view kRule = "----";
constexpr std::string_view kMainHeader = "swale";

// A comment and the declarations that it belongs to.
struct Block {
  std::string section;  // the title of its part of the header
  std::string comment;  // without its marks
  std::string code;
};

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// A comment's line without " * ", "/* " and " */".
std::string uncommented(std::string line) {
  for (const std::string_view mark : {"/* ", " * ", " *"}) {
    if (!line.starts_with(mark)) continue;
    line.erase(0, mark.size());
    break;
  }
  if (line.ends_with("*/")) line.erase(line.size() - 2);
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

std::string title_of(const std::string& comment) {
  std::string title = comment.substr(kRule.size(), comment.find(kRule, kRule.size()) - kRule.size());
  while (title.starts_with(' ')) title.erase(0, 1);
  while (title.ends_with(' ')) title.pop_back();
  return title;
}

std::vector<Block> blocks_of(std::string_view header) {
  std::vector<Block> blocks;
  std::string section;
  Block block;
  bool in_comment = false;
  const auto finish = [&] {
    if (block.comment.starts_with(kRule)) {
      section = title_of(block.comment);
    } else if (!block.comment.empty()) {
      block.section = section;
      blocks.push_back(block);
    }
    block = {};
  };
  for (const std::string& line : lines_of(header)) {
    if (line.starts_with("/*")) {
      finish();
      in_comment = true;
    } else if (line.empty() && !in_comment) {
      finish();
      continue;
    }
    std::string& text = in_comment ? block.comment : block.code;
    text += fmt::format("{}{}", text.empty() ? "" : "\n", in_comment ? uncommented(line) : line);
    if (in_comment && line.ends_with("*/")) in_comment = false;
  }
  finish();
  return blocks;
}

// The names that a block declares, in order, once each.
std::vector<std::string> names_of(const std::string& code) {
  static const std::regex kNames(
      R"(^typedef struct (swale_\w+)|^typedef \w+ \(\*(swale_\w+)\)|^enum (swale_\w+))"
      R"(|^(?!typedef)[\w *]*\b(swale_\w+)\()");
  std::vector<std::string> names;
  for (const std::string& line : lines_of(code)) {
    std::smatch found;
    if (!std::regex_search(line, found, kNames)) continue;
    for (size_t group = 1; group < found.size(); ++group) {
      if (found[group].matched && std::find(names.begin(), names.end(), found[group].str()) == names.end())
        names.push_back(found[group].str());
    }
  }
  return names;
}

// The first sentence, as the NAME line shows it: without its end, at most so long.
std::string summary_of(std::string text) {
  constexpr size_t kBytesMax = 90;
  if (text.starts_with("[collective] ")) text.erase(0, std::string_view("[collective] ").size());
  std::replace(text.begin(), text.end(), '\n', ' ');
  constexpr size_t kBytesMin = 20;  // a parenthesis before this place is needed
  for (const std::string_view end : {". ", "; ", ": "}) text = text.substr(0, text.find(end));
  text = text.substr(0, text.find(" (", kBytesMin));
  while (text.ends_with('.') || text.ends_with(',')) text.pop_back();
  if (text.size() > kBytesMax) text = text.substr(0, text.rfind(' ', kBytesMax));
  if (!text.empty() && text.size() > 1 && (text[1] < 'A' || text[1] > 'Z'))
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

// swale(3), or of swale_meta.h swale-meta-calls(3): swale_meta(3) is the page of the type.
std::string page_name(const Header& header) {
  if (header.name == kMainHeader) return header.name;
  std::string name = header.name + "-calls";
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// "Swale: files behind I/O servers. The C interface." without its first word.
std::string subject_of(const std::string& head) {
  const size_t colon = head.find(": ");
  return colon == std::string::npos ? head : head.substr(colon + 2);
}

std::string page_of(const Block& block, const std::vector<std::string>& names, const Header& header,
                    const std::string& date) {
  std::string page = roff::header(names.front(), 3, date) + ".SH NAME\n";
  page += fmt::format("{} \\- {}\n", roff::plain(fmt::format("{}", fmt::join(names, ", "))),
                      roff::plain(summary_of(block.comment)));
  page += fmt::format(".SH SYNOPSIS\n.nf\n#include <swale/{}.h>\n.PP\n{}\n.fi\n", header.name,
                      roff::plain(block.code));
  page += ".SH DESCRIPTION\n" + roff::paragraphs(block.comment);
  return page +
         fmt::format(".SH SEE ALSO\n{}.BR swale (3),\n.BR swale\\-options (7)\n",
                     header.name == kMainHeader ? "" : fmt::format(".BR {} (3),\n", page_name(header)));
}

}  // namespace

std::vector<ManPage> header_pages(const Header& header, const std::string& date) {
  const std::vector<Block> blocks = blocks_of(header.text);
  std::vector<ManPage> pages;
  std::string lists;
  std::string section;
  for (const Block& block : blocks) {
    const std::vector<std::string> names = names_of(block.code);
    if (names.empty()) continue;
    if (block.section != section) lists += fmt::format(".SS {}\n", roff::plain(section = block.section));
    lists += fmt::format(".TP\n\\fB{}\\fR(3)\n{}\n", roff::plain(fmt::format("{}", fmt::join(names, ", "))),
                         roff::plain(summary_of(block.comment)));
    pages.push_back({names.front() + ".3", page_of(block, names, header, date)});
    for (size_t i = 1; i < names.size(); ++i)
      pages.push_back({names[i] + ".3", fmt::format(".so man3/{}.3\n", names.front())});
  }
  const std::string& head = blocks.empty() ? section : blocks.front().comment;
  const size_t conventions = head.find("\nConventions\n");
  const std::string name = page_name(header);
  const bool is_main = header.name == kMainHeader;
  std::string page =
      roff::header(name, 3, date) + fmt::format(".SH NAME\n{} \\- {}\n", roff::plain(name),
                                                is_main ? "library for burst\\-buffered output"
                                                        : roff::plain(summary_of(subject_of(head))));
  page += fmt::format(
      ".SH SYNOPSIS\n.nf\n#include <swale/{}.h>\n.PP\ncc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs "
      "swale)\n.fi\n",
      header.name);
  page += ".SH DESCRIPTION\n" + roff::paragraphs(head.substr(0, conventions));
  if (conventions != std::string::npos)
    page += ".SH CONVENTIONS\n" + roff::listing(std::string_view(head).substr(conventions + 13));
  page += ".SH FUNCTIONS AND TYPES\n" + lists;
  page +=
      is_main
          ? ".SH SEE ALSO\n.BR swale (1),\n.BR swale\\-meta\\-calls (3),\n.BR swale\\-tier\\-calls (3),\n.BR "
            "swale\\-iond\\-calls (3),\n.BR swale\\-options (7),\n.BR swale\\-directory (5)\n"
          : ".SH SEE ALSO\n.BR swale (3),\n.BR swale\\-options (7)\n";
  pages.push_back({name + ".3", page});
  return pages;
}

}  // namespace swale::tools
