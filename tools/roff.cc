#include "tools/roff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tools/man_pages.h"
#include "tools/wrap.h"

namespace swale::tools::roff {
namespace {

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::string plain(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '\\') {
      safe += "\\e";
    } else if (c == '-') {
      safe += "\\-";
    } else if ((c == '.' || c == '\'') && (safe.empty() || safe.back() == '\n')) {
      safe += fmt::format("\\&{}", c);
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string paragraphs(std::string_view text) {
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find("\n\n"), rest.size());
    if (!out.empty()) out += ".PP\n";
    out += plain(wrap(rest.substr(0, end), 78));
    rest.remove_prefix(std::min(end + 2, rest.size()));
  }
  return out;
}

std::string listing(std::string_view text) { return fmt::format(".nf\n{}\n.fi\n", plain(text)); }

std::string header(const std::string& name, int section, const std::string& date) {
  return fmt::format(".TH {} {} {} \"swale {}\" \"Swale\"\n", plain(upper(name)), section, date,
                     swale_version_text());
}

}  // namespace swale::tools::roff
