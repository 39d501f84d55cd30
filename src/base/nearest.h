// nearest: the known word that a mistyped one most likely means, for error messages.
// Threads: a free function. Limits: looks at the first 100 letters of the word.
#pragma once

#include <span>
#include <string_view>

namespace swale {

// The known word with the fewest letters to insert, delete or replace; the first of equals. "" if `known` is
// empty.
std::string_view nearest(std::string_view word, std::span<const std::string_view> known);

}  // namespace swale
