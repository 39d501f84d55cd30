#include <memory>
#include <utility>

#include "capi/handles.h"
#include "capi/structs.h"

using swale::Status;
using swale::capi::guarded;

namespace {

void show(const swale::NamedCount& counter, swale_stat* stat) {
  swale::capi::fill_struct(stat, {.struct_bytes = 0,
                                  .name = counter.name.c_str(),
                                  .unit = counter.unit.c_str(),
                                  .help = counter.help.c_str(),
                                  .sum = counter.value.sum,
                                  .min = counter.value.min,
                                  .max = counter.value.max,
                                  .min_rank = counter.value.min_rank,
                                  .max_rank = counter.value.max_rank});
}

std::unique_ptr<swale_stats> handle_of(swale::Counters counters) {
  return std::make_unique<swale_stats>(swale_stats{std::move(counters)});
}

}  // namespace

extern "C" {

int swale_dir_stats(swale_dir* dir, swale_stats** stats) {
  return guarded([&]() -> Status {
    if (dir == nullptr) return swale::capi::null_argument("swale_dir_stats", "dir");
    if (stats == nullptr) return swale::capi::null_argument("swale_dir_stats", "stats");
    SWALE_RETURN_IF_ERROR(swale::capi::check_process("swale_dir_stats", *dir->state->job));
    *stats = handle_of(swale::Counters::of(dir->state->writer->metrics(), swale::imd::counter_rows(),
                                           dir->state->job->job->rank()))
                 .release();
    return {};
  });
}

int swale_reader_epoch_stats(swale_reader* reader, int64_t epoch, swale_stats** stats) {
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument("swale_reader_epoch_stats", "reader");
    if (stats == nullptr) return swale::capi::null_argument("swale_reader_epoch_stats", "stats");
    SWALE_RETURN_IF_ERROR(swale::capi::check_epoch(reader, "swale_reader_epoch_stats", epoch));
    SWALE_ASSIGN_OR_RETURN(const swale::imd::EpochStats found, reader->reader->epoch_stats(epoch));
    *stats = handle_of(found.counters()).release();
    return {};
  });
}

size_t swale_stats_count(const swale_stats* stats) {
  return stats == nullptr ? 0 : stats->counters.all().size();
}

int swale_stats_ranks(const swale_stats* stats) {
  return stats == nullptr ? 0 : static_cast<int>(stats->counters.ranks());
}

int swale_stats_at(const swale_stats* stats, size_t index, swale_stat* stat) {
  return guarded([&]() -> Status {
    SWALE_RETURN_IF_ERROR(swale::capi::check_struct("swale_stats_at", "stat", stat));
    if (index >= swale_stats_count(stats)) {
      return swale::invalid_argument("swale_stats_at: index {}: there are {} counters", index,
                                     swale_stats_count(stats));
    }
    show(stats->counters.all()[index], stat);
    return {};
  });
}

int swale_stats_find(const swale_stats* stats, const char* name, swale_stat* stat) {
  return guarded([&]() -> Status {
    if (name == nullptr) return swale::capi::null_argument("swale_stats_find", "name");
    SWALE_RETURN_IF_ERROR(swale::capi::check_struct("swale_stats_find", "stat", stat));
    const swale::NamedCount* const found = stats == nullptr ? nullptr : stats->counters.find(name);
    if (found != nullptr) {
      show(*found, stat);
      return {};
    }
    return swale::error(swale::Code::kNotFound, swale::Scope::kOperation,
                        "swale_stats_find: no counter is called \"{}\"", name);
  });
}

const char* swale_stats_json(swale_stats* stats) {
  if (stats == nullptr) {
    swale::capi::report(swale::capi::null_argument("swale_stats_json", "stats"));
    return nullptr;
  }
  const int made = guarded([&]() -> Status {
    if (stats->json.empty()) stats->json = stats->counters.json();
    return {};
  });
  return made == SWALE_OK ? stats->json.c_str() : nullptr;
}

void swale_stats_free(swale_stats* stats) { delete stats; }

}  // extern "C"
