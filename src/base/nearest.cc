#include "base/nearest.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace swale {
namespace {

// Levenshtein: the least number of letters to insert, delete or replace.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> known) {
  // Cut the word before comparing, so that the work is bounded.
  word = word.substr(0, 100);
  std::string_view best;
  size_t least = SIZE_MAX;
  for (const std::string_view one : known) {
    const size_t distance = edit_distance(word, one);
    if (distance >= least) continue;
    least = distance;
    best = one;
  }
  return best;
}

}  // namespace swale
