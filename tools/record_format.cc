#include "tools/record_format.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/coding.h"

namespace swale::tools {
namespace {

constexpr char kPaddingName[] = "_";

std::vector<run::FieldPlace> places_of(const run::Field& field) {
  std::vector<run::FieldPlace> places;
  for (uint32_t i = 0; i < field.count; ++i) {
    places.push_back({field.count == 1 ? field.name : fmt::format("{}[{}]", field.name, i), field.type,
                      field.offset + i * run::type_bytes(field.type)});
  }
  return places;
}

// "" if the number is missing.
std::string number_text(const run::FieldPlace& place, Bytes value) {
  const run::FieldValue found = run::read_field(place, value);
  if (found.kind == run::FieldValue::Kind::kAbsent) return {};
  return found.kind == run::FieldValue::Kind::kNan ? "nan" : run::text_of(place.type, found.key);
}

// JSON has no word for NaN and infinity.
std::string json_number(const std::string& text) {
  const bool finite = text.find_first_not_of("0123456789+-.eE") == std::string::npos;
  return text.empty() || !finite ? "null" : text;
}

// Requires text without control characters, as show() and show_key() return it.
std::string json_string(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// A column is called as the user has written it, which may be any bytes.
std::string json_name(const std::string& name) {
  using nlohmann::json;
  return json(name).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string csv_cell(std::string text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string real_text(double number) { return std::isnan(number) ? "nan" : fmt::format("{}", number); }

std::string datum_text(const query::Expression& expression, const query::RecordView& record,
                       Notation notation) {
  if (const run::FieldPlace* place = expression.field()) return number_text(*place, record.value);
  const query::Datum datum = expression.evaluate(record);
  switch (datum.kind) {
    case query::Datum::Kind::kAbsent:
      return {};
    case query::Datum::Kind::kInteger:
      return query::decimal(datum.integer);
    case query::Datum::Kind::kReal:
      return real_text(datum.real);
    case query::Datum::Kind::kTruth:
      return datum.truth ? "true" : "false";
    case query::Datum::Kind::kBytes:
      return show_value(datum.bytes, notation);
  }
  return {};
}

// In numpy's terms: epoch <u4, step <i8, time <f8.
void append_epoch_number(std::string_view name, const query::RecordView& record, std::string* out) {
  if (name == "epoch") return append_u32(out, record.epoch);
  if (name == "step") return append_i64(out, record.step);
  append_double(out, record.time);
}

// Commas separate columns only outside of quotes and parentheses.
std::vector<std::string_view> split_columns(std::string_view list) {
  std::vector<std::string_view> parts;
  size_t start = 0;
  int depth = 0;
  char quote = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    const char c = i == list.size() ? ',' : list[i];
    if (i < list.size() && quote != 0) {
      if (c == quote) quote = 0;
      continue;
    }
    if (c == '"' || c == '\'') quote = c;
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (c != ',' || (depth > 0 && i < list.size())) continue;
    parts.push_back(list.substr(start, i - start));
    start = i + 1;
  }
  return parts;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

std::string typed_value(Bytes value, const run::Schema& schema, bool json) {
  std::string text = json ? "{" : "";
  for (const run::Field& field : schema.fields) {
    if (field.name == kPaddingName) continue;
    if (text.size() > (json ? 1 : 0)) text += json ? "," : " ";
    text += json ? fmt::format("{}:", json_string(field.name)) : field.name + "=";
    if (json && field.count != 1) text += "[";
    bool first = true;
    for (const run::FieldPlace& place : places_of(field)) {
      if (!std::exchange(first, false)) text += ",";
      const std::string number = number_text(place, value);
      text += json ? json_number(number) : number;
    }
    if (json && field.count != 1) text += "]";
  }
  return json ? text + "}" : text;
}

Result<RecordFormat> RecordFormat::make(const FormatOptions& options, const run::Schema& schema) {
  RecordFormat format(options, schema);
  if (options.typed && schema.empty()) {
    return invalid_argument(
        "values cannot be shown by type: the directory was made without a schema (imd.schema)");
  }
  if (!options.fields.empty()) {
    SWALE_RETURN_IF_ERROR(format.add_columns(options.fields));
    return format;
  }
  if (options.layout == Layout::kRaw) {
    SWALE_RETURN_IF_ERROR(format.add_column("value"));
    return format;
  }
  const bool fields = options.layout == Layout::kCsv && !schema.empty();
  for (const std::string& name :
       options.layout == Layout::kJson ? options.default_json : options.default_text) {
    if (fields && name == "value") continue;
    if (const size_t equals = name.find('='); equals != std::string::npos) {
      SWALE_ASSIGN_OR_RETURN(query::Expression field,
                             query::Expression::parse(name.substr(equals + 1), schema));
      format.put(name.substr(0, equals), std::move(field));
      continue;
    }
    // Even if the schema has a field of that name, the built-in column is meant.
    run::Schema keys;
    keys.key = schema.key;
    SWALE_ASSIGN_OR_RETURN(query::Expression builtin, query::Expression::parse(name, keys));
    format.put(name, std::move(builtin));
  }
  if (fields) {
    for (const run::Field& field : schema.fields) {
      if (field.name != kPaddingName) SWALE_RETURN_IF_ERROR(format.add_column("[" + field.name + "]"));
    }
  }
  return format;
}

Status RecordFormat::add_columns(std::string_view list) {
  for (const std::string_view part : split_columns(list)) SWALE_RETURN_IF_ERROR(add_column(trimmed(part)));
  return {};
}

// A field with n elements becomes n columns.
Status RecordFormat::add_column(std::string_view text) {
  std::string_view name = text;
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  const auto found = std::find_if(schema_.fields.begin(), schema_.fields.end(), [&](const run::Field& field) {
    return field.name == name && field.count != 1;
  });
  if (found != schema_.fields.end()) {
    for (uint32_t i = 0; i < found->count; ++i) {
      const std::string element = fmt::format("[{}][{}]", found->name, i);
      SWALE_ASSIGN_OR_RETURN(query::Expression value, query::Expression::parse(element, schema_));
      put(fmt::format("{}[{}]", found->name, i), std::move(value));
    }
    return {};
  }
  SWALE_ASSIGN_OR_RETURN(query::Expression value, query::Expression::parse(text, schema_));
  const bool stored = value.field() != nullptr || !value.bytes_name().empty() || !value.epoch_name().empty();
  if (options_.layout == Layout::kRaw && !stored) {
    return invalid_argument("\"{}\": raw output has fields, key, value, epoch, step and time alone", text);
  }
  const std::string_view called = value.field() == nullptr ? text : name;
  put(std::string(called), std::move(value));
  return {};
}

void RecordFormat::put(std::string name, query::Expression value) {
  std::string quoted = json_name(name);
  columns_.push_back({std::move(name), std::move(quoted), std::move(value)});
}

std::string RecordFormat::header() const {
  if (options_.layout != Layout::kCsv) return {};
  std::string line;
  for (const Column& column : columns_) {
    line += fmt::format("{}{}", &column == columns_.data() ? "" : ",", csv_cell(column.name));
  }
  return line + "\n";
}

bool RecordFormat::is_typed_value(const Column& column) const {
  return options_.typed && column.value.bytes_name() == "value";
}

void RecordFormat::append_cell(const Column& column, const query::RecordView& record,
                               std::string* out) const {
  std::string text = is_typed_value(column) ? typed_value(record.value, schema_, /*json=*/false)
                     : column.value.bytes_name() == "key"
                         ? show_key(record.key, options_.notation, schema_.key)
                         : datum_text(column.value, record, options_.notation);
  *out += options_.layout == Layout::kCsv ? csv_cell(std::move(text)) : text;
}

void RecordFormat::append_json(const Column& column, const query::RecordView& record,
                               std::string* out) const {
  *out += column.json_name;
  *out += ':';
  if (is_typed_value(column)) {
    *out += typed_value(record.value, schema_, /*json=*/true);
    return;
  }
  if (column.value.bytes_name() == "key") {
    const std::string key = show_key(record.key, options_.notation, schema_.key);
    *out += shows_number(record.key, options_.notation, schema_.key) ? key : json_string(key);
    return;
  }
  const std::string text = datum_text(column.value, record, options_.notation);
  const bool bytes =
      column.value.field() == nullptr && column.value.evaluate(record).kind == query::Datum::Kind::kBytes;
  const bool truth = text == "true" || text == "false";
  *out += bytes ? json_string(text) : truth ? text : json_number(text);
}

bool RecordFormat::append_raw(const query::RecordView& record, std::string* out) const {
  for (const Column& column : columns_) {
    const run::FieldPlace* place = column.value.field();
    if (place != nullptr && place->end() > record.value.size()) return false;
  }
  for (const Column& column : columns_) {
    const run::FieldPlace* place = column.value.field();
    if (place != nullptr) {
      out->append(record.value.substr(place->offset, run::type_bytes(place->type)));
    } else if (!column.value.epoch_name().empty()) {
      append_epoch_number(column.value.epoch_name(), record, out);
    } else {
      out->append(column.value.bytes_name() == "key" ? record.key : record.value);
    }
  }
  return true;
}

bool RecordFormat::append(const query::RecordView& record, std::string* out) const {
  if (options_.layout == Layout::kRaw) return append_raw(record, out);
  const bool json = options_.layout == Layout::kJson;
  if (json) *out += '{';
  bool first = true;
  for (const Column& column : columns_) {
    if (!std::exchange(first, false)) *out += json || options_.layout == Layout::kCsv ? ',' : '\t';
    if (json) {
      append_json(column, record, out);
    } else {
      append_cell(column, record, out);
    }
  }
  *out += json ? "}\n" : "\n";
  return true;
}

}  // namespace swale::tools
