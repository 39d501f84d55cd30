// Columns of series: bytes are taken as columns and as rows. What is either becomes the other one, and the
// same bytes again; the values that a walk gives are no longer than these.
#include <string>

#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "imd/format/series.h"
#include "imd/format/series_columns.h"

namespace swale::series_columns_fuzz {
namespace {

constexpr uint32_t kEpochs = 1'000;

MutableBytes bytes_of(std::string& text) { return {text.data(), text.size()}; }

void read_columns(Bytes input) {
  std::string rows(input.size(), '\0');
  const Bytes made = imd::make_rows(input, bytes_of(rows));
  if (!made.empty()) {
    fuzz::require(made == rows);
    imd::make_columns(bytes_of(rows));
    fuzz::require(rows == input);
  }
  uint64_t bytes = 0;
  const auto add = [&](const imd::SeriesValue& value) { bytes += value.bytes.size(); };
  const bool known = imd::walk_series(input, kEpochs, add);
  fuzz::require(bytes < input.size() || !known);
  fuzz::require(!known || !made.empty() || !imd::has_columns(input));
}

void read_rows(Bytes input) {
  if (!imd::walk_series(input, kEpochs, [](const imd::SeriesValue&) {})) return;
  std::string columns(input);
  if (imd::has_columns(input)) return;
  imd::make_columns(bytes_of(columns));
  if (!imd::has_columns(columns)) return fuzz::require(columns == input);
  std::string rows(input.size(), '\0');
  fuzz::require(imd::make_rows(columns, bytes_of(rows)) == input);
}

}  // namespace

SWALE_FUZZ_TARGET(series_columns_fuzz) {
  const Bytes input = fuzz::as_bytes(data, size);
  if (input.size() > imd::kSeriesBytesMax) return 0;
  read_columns(input);
  read_rows(input);
  return 0;
}

}  // namespace swale::series_columns_fuzz
