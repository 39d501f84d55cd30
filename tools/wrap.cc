#include "tools/wrap.h"

#include <fmt/format.h>

namespace swale::tools {

std::string wrap(std::string_view text, size_t width, std::string_view indent) {
  std::string wrapped;
  std::string line;
  const auto end_line = [&] {
    wrapped += fmt::format("{}{}\n", indent, line);
    line.clear();
  };
  while (!text.empty()) {
    if (text.starts_with("\n\n")) {
      end_line();
      wrapped += '\n';
      text.remove_prefix(2);
      continue;
    }
    if (text.front() == ' ' || text.front() == '\n') {
      text.remove_prefix(1);
      continue;
    }
    const std::string_view word = text.substr(0, text.find_first_of(" \n"));
    if (!line.empty() && indent.size() + line.size() + 1 + word.size() > width) end_line();
    line += fmt::format("{}{}", line.empty() ? "" : " ", word);
    text.remove_prefix(word.size());
  }
  if (!line.empty()) end_line();
  return wrapped;
}

}  // namespace swale::tools
