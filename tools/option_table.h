// All options of the library in one list, as in `swale config` and swale-options(7). The rows come from
// src/capi/options.h, which collects them from the code that they configure.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "capi/options.h"

namespace swale::tools {

struct TableRow {
  OptionRow row;
  std::vector<capi::Call> calls;  // the calls that take it
};

// A call as the command line and the tables name it: "job", "write", "read", "meta", "iond" or "tier".
std::string_view short_name(capi::Call call);

// Every option once, in the order of the tables.
std::vector<TableRow> option_table();
std::vector<OptionRow> option_rows(const std::vector<TableRow>& table);

// "job, write"; "swale_job_open, swale_dir_open"
std::vector<std::string_view> short_calls(const TableRow& row);
std::string calls_text(const TableRow& row);

}  // namespace swale::tools
