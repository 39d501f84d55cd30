// All options of the library in one list, as `swale config`, swale-options(7) and docs/options.md show them. The rows are
// those of src/capi/options.cc; nothing is said twice.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"

namespace swale::tools {

struct TableRow {
  OptionRow row;
  std::vector<std::string_view> calls;  // that take it: "job", "write", "read"
};

// Each option once, in the order of the tables.
std::vector<TableRow> option_table();
std::vector<OptionRow> option_rows(const std::vector<TableRow>& table);

// "swale_job_open, swale_dir_open"
std::string calls_text(const TableRow& row);

}  // namespace swale::tools
