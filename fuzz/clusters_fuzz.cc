// Clusters: the first byte chooses between the list, with a right checksum behind it, and a series. What
// decodes encodes to bytes that decode to the same; a series' values lie within it.
#include <fmt/format.h>

#include "base/crc32c.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "imd/format/cluster_list.h"
#include "imd/format/series.h"
#include "imd/format/series_values.h"

namespace swale::clusters_fuzz {
namespace {

constexpr uint32_t kEpochs = 1'000;

void read_list(Bytes input) {
  std::string file(input);
  file += fmt::format("\"crc32c\":\"{:08x}\"}}\n", crc32c(input));
  const auto list = imd::ClusterList::decode(file, "sealed");
  if (!list.ok()) return fuzz::require(list.status().message().find("sealed") == 0);
  const auto again = imd::ClusterList::decode(list->encode(), "again");
  fuzz::require(again.ok() && *again == *list);
}

// Of parts that are joined nothing is given twice.
void join_values(Bytes input) {
  imd::SeriesValues values(kEpochs);
  uint64_t given = 0;
  for (int time = 0; time < 2; ++time)
    values.take("key", input, [&](const imd::SeriesValue& value) { given += value.bytes.size(); });
  fuzz::require(given <= 2 * input.size());
}

void read_series(Bytes input) {
  join_values(input);
  uint64_t bytes = 0;
  std::string built;
  imd::SeriesBuilder builder([&](Bytes series) {
    built.assign(series);
    return Status();
  });
  const bool known = imd::walk_series(input, kEpochs, [&](const imd::SeriesValue& value) {
    fuzz::require(value.index < kEpochs);
    // Values of columns lie elsewhere.
    fuzz::require(imd::has_columns(input) ||
                  (value.bytes.data() >= input.data() &&
                   value.bytes.data() + value.bytes.size() <= input.data() + input.size()));
    bytes += value.bytes.size();
    Bytes stored;
    Bytes rest;
    if (imd::split_resolved(value.bytes, &stored, &rest))
      fuzz::require(stored.size() + rest.size() < value.bytes.size());
    fuzz::require(builder.add(value.index, value.kind, value.bytes).ok());
  });
  imd::SeriesTally tally(kEpochs);
  const bool counted = tally.take("key", input);
  fuzz::require(known || !counted);
  if (!known || input.size() > imd::kSeriesBytesMax / 2) return;
  fuzz::require(bytes < input.size() && builder.finish().ok());
  imd::SeriesTally again(kEpochs);
  fuzz::require(again.take("key", built) == counted);
  for (uint32_t i = 0; i < kEpochs && counted; ++i) fuzz::require(again.tallies()[i] == tally.tallies()[i]);
}

}  // namespace

SWALE_FUZZ_TARGET(clusters_fuzz) {
  Bytes input = fuzz::as_bytes(data, size);
  if (input.empty()) return 0;
  const bool list = input[0] % 2 == 0;
  input.remove_prefix(1);
  list ? read_list(input) : read_series(input);
  return 0;
}

}  // namespace swale::clusters_fuzz
