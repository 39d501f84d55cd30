#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "capi/handles.h"
#include "capi/options.h"
#include "capi/structs.h"
#include "imd/read/opening_ahead.h"

namespace swale::capi {

Status check_epoch(const swale_reader* reader, const char* call, int64_t epoch) {
  const auto count = static_cast<int64_t>(reader->reader->manifest_now()->epochs.size());
  if (epoch == SWALE_ALL_EPOCHS || (epoch >= 0 && epoch < count)) return {};
  if (epoch < 0) {
    return invalid_argument("{}: epoch {}: expected a number from 0 or SWALE_ALL_EPOCHS (-1)", call, epoch);
  }
  return error(Code::kNotFound, Scope::kOperation,
               "{}: no epoch {}: {} has {} committed epochs, numbered from 0", call, epoch,
               reader->reader->directory(), count);
}

}  // namespace swale::capi

using swale::Bytes;
using swale::Status;
using swale::capi::check_epoch;
using swale::capi::guarded;

extern "C" {

int swale_reader_open(const char* path, const char* options, swale_reader** reader) {
  return guarded([&]() -> Status {
    if (path == nullptr) return swale::capi::null_argument("swale_reader_open", "path");
    if (reader == nullptr) return swale::capi::null_argument("swale_reader_open", "reader");
    SWALE_RETURN_IF_ERROR(swale::capi::check_process_variables());
    SWALE_ASSIGN_OR_RETURN(
        const swale::io::PosixOptions storage,
        swale::capi::storage_options(swale::capi::Call::kRead, swale::capi::text_or_empty(options),
                                     swale::capi::process_environment));
    const auto state = std::make_shared<swale::capi::ReaderState>(storage, path);
    auto ahead = std::make_unique<swale::imd::OpeningAhead>(state->device, path);
    SWALE_ASSIGN_OR_RETURN(
        const swale::imd::ReaderOptions settings,
        swale::capi::reader_options(swale::capi::text_or_empty(options), swale::capi::process_environment));
    SWALE_ASSIGN_OR_RETURN(state->reader,
                           swale::imd::Reader::open(state->device, path, settings, std::move(ahead)));
    auto handle = std::make_unique<swale_reader>();
    handle->reader = std::shared_ptr<swale::imd::Reader>(state, state->reader.get());
    const swale::run::Schema& schema = handle->reader->manifest().schema;
    handle->schema = schema.fields_text();
    if (schema.key)
      handle->key_type = swale::run::key_text(schema.key).data();  // from a literal, so it ends with a NUL
    *reader = handle.release();
    return {};
  });
}

void swale_reader_close(swale_reader* reader) { delete reader; }

int swale_reader_set_partitioner(swale_reader* reader, const char* name, swale_partition_fn fn,
                                 void* context) {
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument("swale_reader_set_partitioner", "reader");
    if (name == nullptr) return swale::capi::null_argument("swale_reader_set_partitioner", "name");
    if (fn == nullptr) return swale::capi::null_argument("swale_reader_set_partitioner", "fn");
    return reader->reader->set_partitioner({name, fn, context});
  });
}

int swale_reader_refresh(swale_reader* reader, int* changed) {
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument("swale_reader_refresh", "reader");
    SWALE_ASSIGN_OR_RETURN(const swale::imd::Reader::Refreshed refreshed, reader->reader->refresh());
    if (changed != nullptr) {
      *changed =
          (refreshed.added ? SWALE_REFRESH_ADDED : 0) | (refreshed.dropped ? SWALE_REFRESH_DROPPED : 0);
    }
    return {};
  });
}

int64_t swale_reader_epoch_count(const swale_reader* reader) {
  if (reader != nullptr) return static_cast<int64_t>(reader->reader->manifest_now()->epochs.size());
  swale::capi::report(swale::capi::null_argument("swale_reader_epoch_count", "reader"));
  return -1;
}

int swale_reader_epoch_info(const swale_reader* reader, int64_t epoch, swale_epoch_info* info) {
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument("swale_reader_epoch_info", "reader");
    SWALE_RETURN_IF_ERROR(swale::capi::check_struct("swale_reader_epoch_info", "info", info));
    if (epoch < 0)
      return swale::invalid_argument("swale_reader_epoch_info: epoch {}: expected 0 or more", epoch);
    SWALE_RETURN_IF_ERROR(check_epoch(reader, "swale_reader_epoch_info", epoch));
    const std::shared_ptr<const swale::imd::Manifest> manifest = reader->reader->manifest_now();
    if (epoch >= static_cast<int64_t>(manifest->epochs.size())) {
      return swale::error(swale::Code::kNotFound, swale::Scope::kOperation,
                          "swale_reader_epoch_info: epoch {} of {} was dropped", epoch,
                          reader->reader->directory());
    }
    const swale::imd::EpochEntry& entry = manifest->epochs[static_cast<size_t>(epoch)];
    swale::capi::fill_struct(info, {.struct_bytes = 0,
                                    .epoch = epoch,
                                    .step = entry.step,
                                    .time = entry.time,
                                    .records = entry.records});
    return {};
  });
}

int swale_reader_attributes(swale_reader* reader, int what, int64_t epoch, char* json, size_t json_bytes,
                            size_t* needed) {
  const char* const call = "swale_reader_attributes";
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument(call, "reader");
    if (json == nullptr && json_bytes != 0) return swale::capi::null_argument(call, "json");
    if (what != SWALE_DESCRIBED_DIRECTORY && what != SWALE_DESCRIBED_EPOCH)
      return swale::invalid_argument("{}: what {}: expected a swale_described, 0 or 1", call, what);
    SWALE_RETURN_IF_ERROR(check_epoch(reader, call, epoch));
    if (what == SWALE_DESCRIBED_EPOCH && epoch == SWALE_ALL_EPOCHS)
      return swale::invalid_argument("{}: attributes are of one epoch; give its number", call);
    SWALE_ASSIGN_OR_RETURN(const std::string found, what == SWALE_DESCRIBED_EPOCH
                                                        ? reader->reader->epoch_attributes(epoch)
                                                        : reader->reader->directory_attributes(epoch));
    if (needed != nullptr) *needed = found.size() + 1;
    if (json_bytes <= found.size()) {
      return swale::invalid_argument("{}: json_bytes {}: the attributes take {} bytes", call, json_bytes,
                                     found.size() + 1);
    }
    std::copy_n(found.c_str(), found.size() + 1, json);
    return {};
  });
}

int swale_reader_get(swale_reader* reader, const void* key, size_t key_bytes, int64_t epoch,
                     swale_values** values) {
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument("swale_reader_get", "reader");
    if (values == nullptr) return swale::capi::null_argument("swale_reader_get", "values");
    SWALE_ASSIGN_OR_RETURN(const Bytes view,
                           swale::capi::bytes_argument("swale_reader_get", "key", key, key_bytes));
    SWALE_RETURN_IF_ERROR(check_epoch(reader, "swale_reader_get", epoch));
    auto handle = std::make_unique<swale_values>();
    SWALE_ASSIGN_OR_RETURN(handle->values, reader->reader->get(view, epoch));
    *values = handle.release();
    return {};
  });
}

size_t swale_values_count(const swale_values* values) {
  return values == nullptr ? 0 : values->values.size();
}

int swale_values_at(const swale_values* values, size_t index, int64_t* epoch, const void** value,
                    size_t* value_bytes) {
  return guarded([&]() -> Status {
    if (values == nullptr) return swale::capi::null_argument("swale_values_at", "values");
    if (index >= values->values.size()) {
      return swale::invalid_argument("swale_values_at: index {}: there are {} values", index,
                                     values->values.size());
    }
    const swale::imd::Value& found = values->values[index];
    if (epoch != nullptr) *epoch = found.epoch;
    if (value != nullptr) *value = found.bytes.data();
    if (value_bytes != nullptr) *value_bytes = found.bytes.size();
    return {};
  });
}

void swale_values_free(swale_values* values) { delete values; }

int swale_reader_get_many(swale_reader* reader, const void* const* keys, const size_t* key_bytes,
                          size_t count, int64_t epoch, swale_record_fn fn, void* context, size_t* found) {
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument("swale_reader_get_many", "reader");
    if (keys == nullptr && count != 0) return swale::capi::null_argument("swale_reader_get_many", "keys");
    if (key_bytes == nullptr && count != 0)
      return swale::capi::null_argument("swale_reader_get_many", "key_bytes");
    if (fn == nullptr) return swale::capi::null_argument("swale_reader_get_many", "fn");
    SWALE_RETURN_IF_ERROR(check_epoch(reader, "swale_reader_get_many", epoch));
    std::vector<Bytes> views(count);
    for (size_t i = 0; i < count; ++i) {
      SWALE_ASSIGN_OR_RETURN(
          views[i], swale::capi::bytes_argument("swale_reader_get_many", "keys[...]", keys[i], key_bytes[i]));
    }
    SWALE_ASSIGN_OR_RETURN(
        const size_t found_count,
        reader->reader->get_many(views, epoch, [&](size_t index, uint32_t at, Bytes value) {
          return fn(context, at, keys[index], key_bytes[index], value.data(), value.size()) == 0;
        }));
    if (found != nullptr) *found = found_count;
    return {};
  });
}

int swale_reader_scan(swale_reader* reader, int64_t epoch, swale_record_fn fn, void* context) {
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument("swale_reader_scan", "reader");
    if (fn == nullptr) return swale::capi::null_argument("swale_reader_scan", "fn");
    SWALE_RETURN_IF_ERROR(check_epoch(reader, "swale_reader_scan", epoch));
    return reader->reader->scan(epoch, [&](uint32_t at, Bytes key, Bytes value) {
      return fn(context, at, key.data(), key.size(), value.data(), value.size()) == 0;
    });
  });
}

int swale_reader_scan_part(swale_reader* reader, int64_t epoch, uint32_t part, uint32_t parts,
                           swale_record_fn fn, void* context) {
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument("swale_reader_scan_part", "reader");
    if (fn == nullptr) return swale::capi::null_argument("swale_reader_scan_part", "fn");
    SWALE_RETURN_IF_ERROR(check_epoch(reader, "swale_reader_scan_part", epoch));
    return reader->reader->scan_part(epoch, part, parts, [&](uint32_t at, Bytes key, Bytes value) {
      return fn(context, at, key.data(), key.size(), value.data(), value.size()) == 0;
    });
  });
}

int swale_reader_keys(swale_reader* reader, int64_t epoch, swale_key_fn fn, void* context) {
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument("swale_reader_keys", "reader");
    if (fn == nullptr) return swale::capi::null_argument("swale_reader_keys", "fn");
    SWALE_RETURN_IF_ERROR(check_epoch(reader, "swale_reader_keys", epoch));
    return reader->reader->keys(epoch, [&](Bytes key) { return fn(context, key.data(), key.size()) == 0; });
  });
}

int swale_reader_sample(swale_reader* reader, int64_t epoch, size_t n, uint64_t seed, swale_key_fn fn,
                        void* context) {
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument("swale_reader_sample", "reader");
    if (fn == nullptr) return swale::capi::null_argument("swale_reader_sample", "fn");
    SWALE_RETURN_IF_ERROR(check_epoch(reader, "swale_reader_sample", epoch));
    return reader->reader->sample(epoch, n, seed,
                                  [&](Bytes key) { return fn(context, key.data(), key.size()) == 0; });
  });
}

const char* swale_reader_schema(const swale_reader* reader) {
  if (reader != nullptr) return reader->schema.c_str();
  swale::capi::report(swale::capi::null_argument("swale_reader_schema", "reader"));
  return "";
}

const char* swale_reader_key_type(const swale_reader* reader) {
  if (reader != nullptr) return reader->key_type;
  swale::capi::report(swale::capi::null_argument("swale_reader_key_type", "reader"));
  return "";
}

int swale_reader_top(swale_reader* reader, const char* field, int64_t epoch, size_t k, int end,
                     swale_top** top) {
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument("swale_reader_top", "reader");
    if (field == nullptr) return swale::capi::null_argument("swale_reader_top", "field");
    if (top == nullptr) return swale::capi::null_argument("swale_reader_top", "top");
    if (end != SWALE_TOP_LARGEST && end != SWALE_TOP_SMALLEST) {
      return swale::invalid_argument(
          "swale_reader_top: end {}: expected SWALE_TOP_LARGEST or SWALE_TOP_SMALLEST", end);
    }
    SWALE_RETURN_IF_ERROR(check_epoch(reader, "swale_reader_top", epoch));
    const auto which =
        end == SWALE_TOP_LARGEST ? swale::run::Extreme::kLargest : swale::run::Extreme::kSmallest;
    auto handle = std::make_unique<swale_top>();
    SWALE_ASSIGN_OR_RETURN(handle->result, reader->reader->top(epoch, field, k, which));
    *top = handle.release();
    return {};
  });
}

size_t swale_top_count(const swale_top* top) { return top == nullptr ? 0 : top->result.records.size(); }

int swale_top_at(const swale_top* top, size_t index, swale_top_record* record) {
  return guarded([&]() -> Status {
    SWALE_RETURN_IF_ERROR(swale::capi::check_struct("swale_top_at", "record", record));
    if (index >= swale_top_count(top)) {
      return swale::invalid_argument("swale_top_at: index {}: there are {} records", index,
                                     swale_top_count(top));
    }
    const swale::run::FieldPlace& field = top->result.field;
    const swale::imd::TopResult::Record& found = top->result.records[index];
    swale::capi::fill_struct(record, {.struct_bytes = 0,
                                      .key = found.key.data(),
                                      .key_bytes = found.key.size(),
                                      .value = found.value.data(),
                                      .value_bytes = found.value.size(),
                                      .field = found.value.data() + field.offset,
                                      .field_bytes = swale::run::type_bytes(field.type),
                                      .number = swale::run::number_of(field.type, found.number)});
    return {};
  });
}

int swale_top_get_stats(const swale_top* top, swale_top_stats* stats) {
  return guarded([&]() -> Status {
    if (top == nullptr) return swale::capi::null_argument("swale_top_get_stats", "top");
    SWALE_RETURN_IF_ERROR(swale::capi::check_struct("swale_top_get_stats", "stats", stats));
    const swale::imd::TopResult& result = top->result;
    swale::capi::fill_struct(stats, {.struct_bytes = 0,
                                     .nans = result.nans,
                                     .absent = result.absent,
                                     .bytes_read = result.bytes_read,
                                     .reads = result.reads,
                                     .blocks_read = result.blocks_read,
                                     .partitions_scanned = result.partitions_scanned});
    return {};
  });
}

void swale_top_free(swale_top* top) { delete top; }

int swale_reader_warm(swale_reader* reader, const int64_t* epochs, size_t count, uint64_t* bytes) {
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument("swale_reader_warm", "reader");
    if (epochs == nullptr && count != 0) return swale::capi::null_argument("swale_reader_warm", "epochs");
    const std::span<const int64_t> wanted(epochs, count);
    for (const int64_t epoch : wanted) SWALE_RETURN_IF_ERROR(check_epoch(reader, "swale_reader_warm", epoch));
    SWALE_ASSIGN_OR_RETURN(const uint64_t taken, reader->reader->warm(wanted));
    if (bytes != nullptr) *bytes = taken;
    return {};
  });
}

int swale_reader_count(swale_reader* reader, int64_t epoch, uint64_t* records) {
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument("swale_reader_count", "reader");
    if (records == nullptr) return swale::capi::null_argument("swale_reader_count", "records");
    SWALE_RETURN_IF_ERROR(check_epoch(reader, "swale_reader_count", epoch));
    SWALE_ASSIGN_OR_RETURN(*records, reader->reader->count(epoch));
    return {};
  });
}

int swale_reader_stats(const swale_reader* reader, swale_stats** stats) {
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument("swale_reader_stats", "reader");
    if (stats == nullptr) return swale::capi::null_argument("swale_reader_stats", "stats");
    *stats = std::make_unique<swale_stats>(swale_stats{reader->reader->stats().counters()}).release();
    return {};
  });
}

}  // extern "C"
