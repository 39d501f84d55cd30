#include "stage/manifest.h"

#include <algorithm>
#include <charconv>

namespace swale::stage {
namespace {

constexpr std::string_view kChecksum = "crc32c:";
constexpr std::string_view kHex = "0123456789abcdef";

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

template <class Number>
bool parse_hex(std::string_view digits, Number* number) {
  const auto [stop, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), *number, 16);
  return failed == std::errc() && stop == digits.data() + digits.size();
}

// One line of a manifest, from left to right.
class LineReader {
 public:
  LineReader(std::string_view line, const std::string& place) : line_(line), place_(place) {}

  // "": the line is over.
  Result<std::string> word() {
    while (at_ < line_.size() && is_blank(line_[at_])) ++at_;
    if (at_ == line_.size() || line_[at_] == '#') return std::string();
    return line_[at_] == '"' ? quoted() : plain();
  }

 private:
  Result<std::string> plain() {
    const size_t begin = at_;
    while (at_ < line_.size() && !is_blank(line_[at_]) && line_[at_] != '"') ++at_;
    if (at_ < line_.size() && line_[at_] == '"') return wrong("a double quote inside of a word");
    return std::string(line_.substr(begin, at_ - begin));
  }

  Result<std::string> quoted() {
    std::string word;
    for (++at_; at_ < line_.size() && line_[at_] != '"'; ++at_) {
      if (line_[at_] != '\\') {
        word.push_back(line_[at_]);
        continue;
      }
      if (!escape(&word)) return wrong("an escape other than \\\" \\\\ \\n \\r \\t \\xHH");
    }
    if (at_ == line_.size()) return wrong("no double quote that ends the path");
    ++at_;
    if (at_ < line_.size() && !is_blank(line_[at_])) return wrong("no blank after the closing double quote");
    if (word.empty()) return wrong("an empty path");
    return word;
  }

  // Leaves at_ on the last byte of the escape.
  bool escape(std::string* word) {
    if (++at_ == line_.size()) return false;
    constexpr std::string_view kNames = "\"\\nrt", kBytes = "\"\\\n\r\t";
    if (const size_t named = kNames.find(line_[at_]); named != std::string_view::npos) {
      word->push_back(kBytes[named]);
      return true;
    }
    uint8_t byte = 0;
    if (line_[at_] != 'x' || line_.size() - at_ < 3 || !parse_hex(line_.substr(at_ + 1, 2), &byte) ||
        byte == 0)
      return false;
    word->push_back(static_cast<char>(byte));
    at_ += 2;
    return true;
  }

  Status wrong(std::string_view what) const {
    return invalid_argument("{}, column {}: {}", place_, at_ + 1, what);
  }

  const std::string_view line_;
  const std::string& place_;
  size_t at_ = 0;
};

Result<std::optional<ManifestLine>> parse_line(std::string_view text, const std::string& place) {
  LineReader reader(text, place);
  ManifestLine line;
  SWALE_ASSIGN_OR_RETURN(line.source, reader.word());
  if (line.source.empty()) return std::optional<ManifestLine>();
  SWALE_ASSIGN_OR_RETURN(line.destination, reader.word());
  if (line.destination.empty())
    return invalid_argument("{}: expected SOURCE DESTINATION, found one path; quote a path with blanks",
                            place);
  SWALE_ASSIGN_OR_RETURN(const std::string checksum, reader.word());
  if (checksum.empty()) return std::optional(std::move(line));
  uint32_t crc = 0;
  if (!checksum.starts_with(kChecksum) || checksum.size() != kChecksum.size() + 8 ||
      !parse_hex(std::string_view(checksum).substr(kChecksum.size()), &crc)) {
    return invalid_argument(
        "{}: expected crc32c: and eight hexadecimal digits, found \"{}\"; quote a path "
        "with blanks",
        place, checksum);
  }
  line.crc = crc;
  SWALE_ASSIGN_OR_RETURN(const std::string more, reader.word());
  if (!more.empty()) return invalid_argument("{}: expected the end of the line, found \"{}\"", place, more);
  return std::optional(std::move(line));
}

std::string quoted_if_needed(std::string_view path) {
  const bool plain = !path.starts_with('#') && std::all_of(path.begin(), path.end(), [](char c) {
    return c > ' ' && c <= '~' && c != '"' && c != '\\';
  });
  if (plain) return std::string(path);
  std::string text = "\"";
  for (const char c : path) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == '"' || c == '\\') {
      text.append({'\\', c});
    } else if (c == '\n') {
      text.append("\\n");
    } else if (byte < ' ' || byte == 0x7f) {
      text.append({'\\', 'x', kHex[byte >> 4], kHex[byte & 15]});
    } else {
      text.push_back(c);
    }
  }
  return text + '"';
}

}  // namespace

Result<std::vector<ManifestLine>> parse_manifest(Bytes text, const std::string& name) {
  std::vector<ManifestLine> lines;
  uint64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string place = fmt::format("{}: line {}", name, ++number);
    if (line.find('\0') != std::string_view::npos)
      return invalid_argument("{}: a zero byte; is this a manifest?", place);
    SWALE_ASSIGN_OR_RETURN(std::optional<ManifestLine> found, parse_line(line, place));
    if (!found) continue;
    found->line = number;
    lines.push_back(*std::move(found));
  }
  return lines;
}

std::string manifest_line(std::string_view source, std::string_view destination,
                          std::optional<uint32_t> crc) {
  std::string line = quoted_if_needed(source) + " " + quoted_if_needed(destination);
  if (crc) line += " " + checksum_text(*crc);
  return line + "\n";
}

std::string checksum_text(uint32_t crc) { return fmt::format("{}{:08x}", kChecksum, crc); }

}  // namespace swale::stage
