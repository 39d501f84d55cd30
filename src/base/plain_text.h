// plain_text: text that somebody else chose, made safe for a terminal or a log. Names of files, keys, the
// content of locks and manifests, error texts that quote them: a terminal would obey what stands in them
// (move the cursor, set its title, answer as if its user had typed), and a line feed would forge a line of a
// log.
//
// Everything that leaves the process for people passes here, once, at the few places that print: the log
// (base/log.cc), swale_last_error (capi/boundary.cc), and `print`, `print_json` and `tell` of the command
// (tools/options.h). scripts/check-prints.py finds prints that do not. Raw output (--raw) is for programs and
// does not pass.
//
// What is escaped:
//   C0 and DEL           "\x1b"; "\n", "\r", "\t" for these three
//   C1 (U+0080 to 9F)    "\u009b"
//   marks of direction   "\u202e": U+061C, 200E, 200F, 202A to 202E, 2066 to 2069; and U+2028, 2029, which
//                        end a line
//   bytes not in UTF-8   "\xff"
// A backslash stays as it is: escaping a text twice changes nothing, and a text with the four characters
// "\x1b" in it is harmless. Who needs the exact bytes asks for them: keys have --hex and JSON.
//
// Threads: free functions. Cost: one pass without a branch per byte over text that needs nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace swale {

enum class TextUse : uint8_t {
  kLine,  // a line: line feeds and tabs are escaped, too
  kPage,  // lines and tables: line feeds and tabs stay
  // JSON text: escapes are JSON's ("\u001b", "\u202e"), bytes not in UTF-8 are "\ufffd"; line feeds and tabs
  // stay
  kJson,
};

// Whether plain_text would return the text as it is.
bool is_plain(std::string_view text, TextUse use = TextUse::kLine);

std::string plain_text(std::string_view text, TextUse use = TextUse::kLine);

// Whether the text is UTF-8, of any characters.
bool is_utf8(std::string_view text);

}  // namespace swale
