#include "capi/arrow_import.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>

#include "capi/arrow_export.h"

namespace swale::capi {
namespace {

using query::Column;

// N of "w:N" or "+w:N"; none for another format.
std::optional<uint64_t> fixed_size(std::string_view format, std::string_view prefix) {
  if (!format.starts_with(prefix)) return std::nullopt;
  uint64_t size = 0;
  const char* const end = format.data() + format.size();
  const auto [read, failure] = std::from_chars(format.data() + prefix.size(), end, size);
  return failure == std::errc() && read == end ? std::optional(size) : std::nullopt;
}

// Of text or bytes: whether offsets have 64 bits; none for another format.
std::optional<bool> offsets_are_wide(std::string_view format, bool text_only) {
  if (format == "u" || (format == "z" && !text_only)) return false;
  if (format == "U" || (format == "Z" && !text_only)) return true;
  return std::nullopt;
}

Status wrong_type(const Column& column, const ArrowSchema& told, std::string_view wanted) {
  return invalid_argument("column \"{}\" has the Arrow type \"{}\", and the directory wants {}: cast it",
                          column.name, told.format, wanted);
}

std::string_view name_of(const ArrowSchema& column) { return column.name == nullptr ? "" : column.name; }

bool has_nulls(const ArrowArray& array) {
  return array.null_count != 0 && array.n_buffers > 0 && array.buffers[0] != nullptr;
}

// A buffer without bytes may be NULL.
const char* bytes_of(const ArrowArray& array, size_t buffer) {
  const void* const bytes = array.buffers[buffer];
  return bytes == nullptr ? "" : static_cast<const char*>(bytes);
}

Status check_batch(const ArrowSchema& columns, const ArrowArray& batch) {
  if (columns.release == nullptr || batch.release == nullptr)
    return invalid_argument("the Arrow schema or batch was released");
  if (columns.format == nullptr || std::string_view(columns.format) != "+s")
    return invalid_argument("expected a batch of columns (Arrow type \"+s\"), got \"{}\"",
                            columns.format == nullptr ? "" : columns.format);
  if (columns.n_children != batch.n_children)
    return invalid_argument("the Arrow schema has {} columns and the batch {}: expected those of the batch",
                            columns.n_children, batch.n_children);
  if (batch.length < 0 || batch.offset < 0)
    return invalid_argument("the batch has {} rows from row {}: expected 0 or more", batch.length,
                            batch.offset);
  if (has_nulls(batch)) return invalid_argument("rows of the batch are null: append those that are not");
  return {};
}

// The numbers of a column of lists.
Result<const ArrowArray*> numbers_of_list(const Column& column, const ArrowSchema& told,
                                          const ArrowArray& array) {
  if (told.n_children != 1 || array.n_children != 1 ||
      std::string_view(told.children[0]->format) != arrow_format(column.number)) {
    return wrong_type(column, *told.children[0], arrow_format(column));
  }
  const ArrowArray& numbers = *array.children[0];
  if (has_nulls(numbers))
    return invalid_argument("column \"{}\": numbers of a list are null: a field has them all, or is missing",
                            column.name);
  return &numbers;
}

}  // namespace

Bytes ArrowRows::Source::at(uint64_t row) const {
  const uint64_t item = first + row;
  if (offsets == nullptr) return {data + item * bytes, bytes};
  if (wide) {
    const auto* const ends = static_cast<const int64_t*>(offsets) + item;
    return {data + ends[0], static_cast<size_t>(ends[1] - ends[0])};
  }
  const auto* const ends = static_cast<const int32_t*>(offsets) + item;
  return {data + ends[0], static_cast<size_t>(ends[1] - ends[0])};
}

Result<ArrowRows::Source> ArrowRows::source_of(const Column& column, std::optional<run::KeyType> key_type,
                                               const ArrowSchema& told, const ArrowArray& array,
                                               const ArrowArray& parent) {
  const std::string_view format = told.format;
  if (told.dictionary != nullptr)
    return invalid_argument("column \"{}\" is a dictionary: decode it first", column.name);
  Source source;
  source.name = column.name;
  source.first = static_cast<uint64_t>(array.offset + parent.offset);
  source.offset = column.offset;
  if (has_nulls(array)) source.validity = static_cast<const uint8_t*>(array.buffers[0]);
  if (column.type == Column::Type::kNumber) {
    if (format != arrow_format(column)) return wrong_type(column, told, arrow_format(column));
    const ArrowArray* numbers = &array;
    source.bytes = column.bytes();
    if (column.count > 1) {
      SWALE_ASSIGN_OR_RETURN(numbers, numbers_of_list(column, told, array));
    }
    source.data = bytes_of(*numbers, 1);
    if (column.count > 1)
      source.data += static_cast<uint64_t>(numbers->offset) * run::type_bytes(column.number);
    return source;
  }
  const bool text = column.source == Column::Source::kKey && key_type == run::KeyType::kText;
  if (const std::optional<bool> wide = offsets_are_wide(format, text)) {
    source.wide = *wide;
    source.offsets = array.buffers[1];
    source.data = bytes_of(array, 2);
    return source;
  }
  if (const std::optional<uint64_t> size = fixed_size(format, "w:"); size && !text) {
    source.bytes = *size;
    source.data = bytes_of(array, 1);
    return source;
  }
  return wrong_type(column, told, text ? "text (\"u\", \"U\")" : "bytes (\"z\", \"Z\", \"w:N\") or text");
}

Result<ArrowRows> ArrowRows::open(const run::Schema& schema, const ArrowSchema& columns,
                                  const ArrowArray& batch) {
  SWALE_RETURN_IF_ERROR(check_batch(columns, batch));
  ArrowRows rows(static_cast<uint64_t>(batch.length));
  rows.any_length_ = schema.any_length;
  rows.assembled_.assign(schema.value_bytes(), '\0');
  std::vector<std::string> given;
  for (int64_t i = 0; i < columns.n_children; ++i) given.emplace_back(name_of(*columns.children[i]));
  // Refuses names that the directory does not know, and those that come twice.
  SWALE_ASSIGN_OR_RETURN(const std::vector<Column> known, query::choose_columns(schema, given));
  const auto is_value = [](const Column& column) { return column.source == Column::Source::kValue; };
  if (!schema.empty() && std::any_of(known.begin(), known.end(), is_value))
    return invalid_argument("column \"value\": this directory has fields; leave it out");
  for (const Column& column : query::all_columns(schema)) {
    if (column.source == Column::Source::kEpoch || column.source == Column::Source::kStep ||
        column.source == Column::Source::kTime)
      continue;
    const auto found = std::find(given.begin(), given.end(), column.name);
    if (found == given.end())
      return invalid_argument("the batch has no column \"{}\"; it has {}", column.name,
                              fmt::join(given, ", "));
    const auto at = static_cast<size_t>(found - given.begin());
    SWALE_ASSIGN_OR_RETURN(Source source,
                           source_of(column, schema.key, *columns.children[at], *batch.children[at], batch));
    if (column.source == Column::Source::kKey) {
      rows.key_ = std::move(source);
    } else if (column.source == Column::Source::kValue) {
      rows.value_ = std::move(source);
    } else {
      rows.fields_.push_back(std::move(source));
    }
  }
  return rows;
}

Result<ArrowRows::Row> ArrowRows::row(uint64_t index) {
  if (key_.is_null(index)) return invalid_argument("row {}: the key is null", index);
  SWALE_ASSIGN_OR_RETURN(const Bytes value, value_of(index));
  return Row{key_.at(index), value};
}

Result<Bytes> ArrowRows::value_of(uint64_t row) {
  if (value_) {
    if (value_->is_null(row)) return invalid_argument("row {}: the value is null", row);
    return value_->at(row);
  }
  const Source* missing = nullptr;
  for (const Source& field : fields_) {
    if (field.is_null(row)) {
      if (!any_length_) {
        return invalid_argument("row {}: {} is null, and values of this directory have all fields", row,
                                field.name);
      }
      if (missing == nullptr) missing = &field;
      continue;
    }
    if (missing != nullptr) {
      return invalid_argument("row {}: {} is null and {} is not: a value may only end early", row,
                              missing->name, field.name);
    }
    std::memcpy(assembled_.data() + field.offset, field.data + (field.first + row) * field.bytes,
                field.bytes);
  }
  return Bytes(assembled_.data(), missing == nullptr ? assembled_.size() : missing->offset);
}

}  // namespace swale::capi
