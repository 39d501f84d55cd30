// RecordFormat: prints a record's columns as a line of text, CSV or JSON, or as raw bytes. Fields have the
// types of the schema.
//
// Threads: immutable once made. Errors: kInvalidArgument for unknown columns.
// The step of an epoch that `swale repair` put there is missing; in raw output it is -2^63.
// A missing number is empty in text and CSV and null in JSON; NaN and infinity are null in JSON, too.
// Raw output has numbers as they are stored; epoch is a u4, step an i8 and time an f8, little-endian.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "query/expression.h"
#include "run/schema.h"
#include "tools/bytes_text.h"

namespace swale::tools {

enum class Layout { kText, kCsv, kJson, kRaw };

struct FormatOptions {
  Layout layout = Layout::kText;
  Notation notation = Notation::kAuto;  // for bytes
  bool typed = false;                   // values are shown as their fields
  std::string fields;                   // separated by ','; "": the default
  // The columns of text and JSON if no fields are given; CSV begins with the columns that are not values. A
  // field of the schema is given as NAME=[field]; its column is called NAME.
  std::vector<std::string> default_text;
  std::vector<std::string> default_json;
};

class RecordFormat {
 public:
  static Result<RecordFormat> make(const FormatOptions& options, const run::Schema& schema);

  // The first line of CSV; other layouts have none.
  std::string header() const;
  // False, and nothing is appended: the layout is kRaw and a field is missing.
  bool append(const query::RecordView& record, std::string* out) const;

 private:
  struct Column {
    std::string name;
    std::string json_name;  // in quotes
    query::Expression value;
  };

  explicit RecordFormat(const FormatOptions& options, const run::Schema& schema)
      : options_(options), schema_(schema) {}

  Status add_column(std::string_view text);
  Status add_columns(std::string_view list);
  void put(std::string name, query::Expression value);
  void append_cell(const Column& column, const query::RecordView& record, std::string* out) const;
  void append_json(const Column& column, const query::RecordView& record, std::string* out) const;
  bool append_raw(const query::RecordView& record, std::string* out) const;
  bool is_typed_value(const Column& column) const;

  FormatOptions options_;
  run::Schema schema_;
  std::vector<Column> columns_;
};

// "id=17 position=1,2,3", or as a JSON object.
std::string typed_value(Bytes value, const run::Schema& schema, bool json);

}  // namespace swale::tools
