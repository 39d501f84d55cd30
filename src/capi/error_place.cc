#include "capi/error_place.h"

#include <charconv>

namespace swale::capi {
namespace {

constexpr std::string_view kOffset = ": offset ";

// The number right after the first `word`; -1: there is none.
int64_t number_after(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const char* const begin = text.data() + at + word.size();
    int64_t number = -1;
    const auto [stop, failure] = std::from_chars(begin, text.data() + text.size(), number);
    if (failure == std::errc() && stop != begin && number >= 0) return number;
  }
  return -1;
}

// The last part of a chain "a: b: c" that looks like a path.
std::string_view last_path(std::string_view chain) {
  while (!chain.empty()) {
    const size_t colon = chain.rfind(": ");
    const std::string_view part = colon == std::string_view::npos ? chain : chain.substr(colon + 2);
    if (part.find('/') != std::string_view::npos) return part;
    chain = colon == std::string_view::npos ? std::string_view() : chain.substr(0, colon);
  }
  return {};
}

}  // namespace

ErrorPlace place_in(std::string_view message) {
  ErrorPlace place;
  place.offset = number_after(message, kOffset);
  size_t end = message.find(kOffset);
  if (place.offset < 0) {
    // Without an offset the file stands before the first sentence.
    end = message.find(": ");
    while (end != std::string_view::npos && last_path(message.substr(0, end)).empty())
      end = message.find(": ", end + 1);
  }
  if (end != std::string_view::npos) place.file = last_path(message.substr(0, end));
  place.epoch = number_after(message, "epoch ");
  place.partition = number_after(message, "partition ");
  if (place.partition < 0) place.partition = number_after(place.file, "/part-");
  return place;
}

}  // namespace swale::capi
