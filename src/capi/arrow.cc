#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/plain_text.h"
#include "base/processors.h"
#include "capi/arrow_export.h"
#include "capi/arrow_import.h"
#include "capi/error_place.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "query/record_stream.h"

struct swale_cancel {
  std::shared_ptr<std::atomic<bool>> flag = std::make_shared<std::atomic<bool>>(false);
};

namespace swale::capi {
namespace {

constexpr char kCall[] = "swale_reader_stream";
constexpr char kNoMemoryForStreamError[] = "no memory left, not even for this error's text";

// What failed, and where, with the texts that the caller sees.
struct Told {
  int code = SWALE_OK;
  std::string text;
  const char* fixed = nullptr;  // replaces the text if not null
  ErrorPlace place;

  void set(int failed, std::string_view message) noexcept {
    code = failed;
    try {
      text = plain_text(message);
      place = place_in(text);
      fixed = nullptr;
    } catch (...) {
      fixed = kNoMemoryForStreamError;
      place = {};
    }
  }
  const char* message() const { return fixed != nullptr ? fixed : text.c_str(); }
  void show(swale_error_info* info) const {
    fill_struct(info, {.struct_bytes = 0,
                       .code = code,
                       .message = message(),
                       .file = place.file.c_str(),
                       .offset = place.offset,
                       .epoch = place.epoch,
                       .partition = place.partition});
  }
};

// A query on its way, or its only batch.
struct StreamState {
  std::vector<query::Column> columns;
  std::unique_ptr<query::RecordStream> records;
  std::optional<query::Batch> batch;
  Told told;
};

StreamState& state_of(const ArrowArrayStream* stream) {
  return *static_cast<StreamState*>(stream->private_data);
}

// Runs `body` as a call of the stream; its failure is the stream's own.
template <class Body>
int stream_call(ArrowArrayStream* stream, Body&& body) noexcept {
  const Status status = contain(std::forward<Body>(body));
  if (status.ok()) return 0;
  state_of(stream).told.set(static_cast<int>(status.code()), status.message());
  return status.posix_error();
}

int stream_schema(ArrowArrayStream* stream, ArrowSchema* out) {
  return stream_call(stream, [&]() -> Status {
    export_schema(state_of(stream).columns, out);
    return {};
  });
}

int stream_next(ArrowArrayStream* stream, ArrowArray* out) {
  return stream_call(stream, [&]() -> Status {
    StreamState& state = state_of(stream);
    std::optional<query::Batch> batch = std::exchange(state.batch, std::nullopt);
    if (state.records) {
      SWALE_ASSIGN_OR_RETURN(batch, state.records->next());
    }
    *out = {};  // without release: the end
    if (batch) export_batch(state.columns, std::move(*batch), out);
    return {};
  });
}

const char* stream_error(ArrowArrayStream* stream) {
  const Told& told = state_of(stream).told;
  return told.code == SWALE_OK ? nullptr : told.message();
}

void stream_release(ArrowArrayStream* stream) {
  std::unique_ptr<StreamState> state(&state_of(stream));
  stream->release = nullptr;
  stream->private_data = nullptr;
  // In a child made by fork it would wait for its parent's threads.
  if (state->records && !state->records->is_of_this_process()) static_cast<void>(state.release());
}

void give_stream(std::unique_ptr<StreamState> state, ArrowArrayStream* stream) {
  *stream = {.get_schema = &stream_schema,
             .get_next = &stream_next,
             .get_last_error = &stream_error,
             .release = &stream_release,
             .private_data = state.release()};
}

// The records of `top` as rows.
Result<std::optional<query::Batch>> batch_of(const imd::EpochEntry& epoch, const imd::TopResult& top,
                                             const std::vector<query::Column>& columns) {
  query::BatchBuilder builder(columns);
  for (const imd::TopResult::Record& record : top.records) {
    SWALE_RETURN_IF_ERROR(builder.append({epoch.epoch, epoch.step, epoch.time, record.key, record.value}));
  }
  return builder.rows() == 0 ? std::optional<query::Batch>() : std::optional(builder.take());
}

Result<std::vector<EpochNumber>> epochs_of(const swale_reader* reader, const swale_query& query) {
  std::vector<EpochNumber> epochs;
  if (query.epochs == nullptr) {
    const size_t count = reader->reader->manifest_now()->epochs.size();
    for (uint32_t epoch = 0; epoch < count; ++epoch) epochs.emplace_back(epoch);
    return epochs;
  }
  for (size_t i = 0; i < query.epoch_count; ++i) {
    const int64_t epoch = query.epochs[i];
    if (epoch < 0) return invalid_argument("{}: epochs[{}] is {}: expected 0 or more", kCall, i, epoch);
    SWALE_RETURN_IF_ERROR(check_epoch(reader, kCall, epoch));
    epochs.emplace_back(static_cast<uint32_t>(epoch));
  }
  return epochs;
}

Result<std::vector<std::string>> keys_of(const swale_query& query) {
  if (query.key_bytes == nullptr && query.key_count != 0) return null_argument(kCall, "query->key_bytes");
  std::vector<std::string> keys;
  keys.reserve(query.key_count);
  for (size_t i = 0; i < query.key_count; ++i) {
    SWALE_ASSIGN_OR_RETURN(const Bytes key,
                           bytes_argument(kCall, "query->keys[...]", query.keys[i], query.key_bytes[i]));
    keys.emplace_back(key);
  }
  return keys;
}

Result<std::vector<query::Column>> columns_of(const run::Schema& schema, const swale_query& query) {
  if (query.columns == nullptr) return query::all_columns(schema);
  std::vector<std::string> names;
  for (size_t i = 0; i < query.column_count; ++i) {
    if (query.columns[i] == nullptr) return null_argument(kCall, "query->columns[...]");
    names.emplace_back(query.columns[i]);
  }
  return query::choose_columns(schema, names);
}

Result<query::StreamQuery> stream_query(const swale_reader* reader, const swale_query& query) {
  const std::shared_ptr<const imd::Manifest> manifest = reader->reader->manifest_now();
  if (query.reserved != 0)
    return invalid_argument("{}: query->reserved is {}: set all members to 0", kCall, query.reserved);
  query::StreamQuery made;
  SWALE_ASSIGN_OR_RETURN(made.epochs, epochs_of(reader, query));
  if (query.keys != nullptr) {
    SWALE_ASSIGN_OR_RETURN(made.keys, keys_of(query));
  }
  SWALE_ASSIGN_OR_RETURN(made.columns, columns_of(manifest->schema, query));
  if (query.where != nullptr) {
    Result<query::Expression> where = query::Expression::parse_condition(query.where, manifest->schema);
    if (!where.ok()) return where.status().with_context("where");
    made.where.emplace(std::move(*where));
  }
  if (query.batch_rows != 0) made.batch_rows_max = query.batch_rows;
  made.threads =
      query.threads != 0 ? query.threads : std::min(usable_processors(), query::RecordStream::kThreadsMax);
  made.part = query.part;
  if (query.parts != 0 || query.part != 0) made.parts = query.parts;
  if (query.cancel != nullptr) made.cancel = query.cancel->flag;
  if (query.progress != nullptr) {
    made.progress = [fn = query.progress, context = query.progress_context](uint64_t done, uint64_t total) {
      return fn(context, done, total) == 0;
    };
  }
  return made;
}

}  // namespace
}  // namespace swale::capi

using swale::Status;
using swale::capi::guarded;

extern "C" {

int swale_cancel_make(swale_cancel** cancel) {
  return guarded([&]() -> Status {
    if (cancel == nullptr) return swale::capi::null_argument("swale_cancel_make", "cancel");
    *cancel = std::make_unique<swale_cancel>().release();
    return {};
  });
}

void swale_cancel_now(swale_cancel* cancel) {
  if (cancel != nullptr) cancel->flag->store(true, std::memory_order_relaxed);
}

void swale_cancel_free(swale_cancel* cancel) { delete cancel; }

int swale_reader_stream(swale_reader* reader, const swale_query* query, struct ArrowArrayStream* stream) {
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument(swale::capi::kCall, "reader");
    if (stream == nullptr) return swale::capi::null_argument(swale::capi::kCall, "stream");
    SWALE_RETURN_IF_ERROR(swale::capi::check_struct(swale::capi::kCall, "query", query));
    SWALE_ASSIGN_OR_RETURN(swale::query::StreamQuery made,
                           swale::capi::stream_query(reader, swale::capi::take_struct(*query)));
    auto state = std::make_unique<swale::capi::StreamState>();
    state->columns = made.columns;
    SWALE_ASSIGN_OR_RETURN(state->records, swale::query::RecordStream::open(reader->reader, std::move(made)));
    swale::capi::give_stream(std::move(state), stream);
    return {};
  });
}

int swale_reader_top_stream(swale_reader* reader, const char* field, int64_t epoch, size_t k, int end,
                            struct ArrowArrayStream* stream) {
  swale_top* found = nullptr;
  if (stream == nullptr)
    return swale::capi::report(swale::capi::null_argument("swale_reader_top_stream", "stream"));
  if (const int code = swale_reader_top(reader, field, epoch, k, end, &found); code != SWALE_OK) return code;
  const std::unique_ptr<swale_top> top(found);
  return guarded([&]() -> Status {
    const std::shared_ptr<const swale::imd::Manifest> manifest = reader->reader->manifest_now();
    const auto number = static_cast<size_t>(epoch);
    if (number >= manifest->epochs.size()) {
      return swale::error(swale::Code::kAborted, swale::Scope::kOperation,
                          "swale_reader_top_stream: epoch {} of {} was dropped", epoch,
                          reader->reader->directory());
    }
    auto state = std::make_unique<swale::capi::StreamState>();
    state->columns = swale::query::all_columns(manifest->schema);
    SWALE_ASSIGN_OR_RETURN(state->batch,
                           swale::capi::batch_of(manifest->epochs[number], top->result, state->columns));
    swale::capi::give_stream(std::move(state), stream);
    return {};
  });
}

int swale_dir_append_many(swale_dir* dir, const void* keys, size_t key_bytes, ptrdiff_t key_stride,
                          const void* values, size_t value_bytes, ptrdiff_t value_stride, size_t count,
                          size_t* appended) {
  const auto* key = static_cast<const char*>(keys);
  const auto* value = static_cast<const char*>(values);
  size_t done = 0;
  int code = SWALE_OK;
  const bool given = dir != nullptr && key != nullptr && value != nullptr;
  swale::imd::Writer* const writer = given ? dir->state->writer.get() : nullptr;
  for (; done < count; ++done) {
    // As swale_dir_append begins, without a call for each record.
    if (writer == nullptr || !writer->append_quickly({key, key_bytes}, {value, value_bytes}))
      code = swale_dir_append(dir, key, key_bytes, value, value_bytes);
    if (code != SWALE_OK) break;
    if (key != nullptr) key += key_stride;
    if (value != nullptr) value += value_stride;
  }
  if (appended != nullptr) *appended = done;
  return code;
}

int swale_dir_append_arrow(swale_dir* dir, const struct ArrowSchema* schema, const struct ArrowArray* batch,
                           size_t* appended) {
  constexpr char kAppend[] = "swale_dir_append_arrow";
  size_t done = 0;
  const int code = guarded([&]() -> Status {
    if (dir == nullptr) return swale::capi::null_argument(kAppend, "dir");
    if (schema == nullptr) return swale::capi::null_argument(kAppend, "schema");
    if (batch == nullptr) return swale::capi::null_argument(kAppend, "batch");
    SWALE_RETURN_IF_ERROR(swale::capi::check_process(kAppend, *dir->state->job));
    swale::imd::Writer& writer = *dir->state->writer;
    swale::Result<swale::capi::ArrowRows> rows =
        swale::capi::ArrowRows::open(writer.schema(), *schema, *batch);
    if (!rows.ok()) return rows.status().with_context(kAppend);
    for (; done < rows->count(); ++done) {
      const swale::Result<swale::capi::ArrowRows::Row> row = rows->row(done);
      if (!row.ok()) return row.status().with_context(kAppend);
      if (!writer.append_quickly(row->key, row->value))
        SWALE_RETURN_IF_ERROR(writer.append(row->key, row->value));
    }
    return {};
  });
  if (appended != nullptr) *appended = done;
  return code;
}

int swale_last_error_info(swale_error_info* info) {
  thread_local swale::capi::Told told;
  // Not guarded: a failure of this call does not replace the one that it is asked for.
  if (!swale::capi::check_struct("swale_last_error_info", "info", info).ok()) return SWALE_INVALID_ARGUMENT;
  told.set(swale::capi::last_code(), swale::capi::last_error());
  told.show(info);
  return SWALE_OK;
}

int swale_stream_error(const struct ArrowArrayStream* stream, swale_error_info* info) {
  return guarded([&]() -> Status {
    SWALE_RETURN_IF_ERROR(swale::capi::check_struct("swale_stream_error", "info", info));
    if (stream == nullptr || stream->release != &swale::capi::stream_release)
      return swale::invalid_argument("swale_stream_error: not a stream of swale_reader_stream");
    swale::capi::state_of(stream).told.show(info);
    return {};
  });
}

}  // extern "C"
