#include "tools/option_table.h"

#include <algorithm>
#include <utility>

#include "capi/options.h"

namespace swale::tools {

std::vector<TableRow> option_table() {
  std::vector<TableRow> table;
  for (const auto& [call, rows] : {std::pair{"job", capi::job_rows()}, std::pair{"write", capi::write_rows()},
                                   std::pair{"read", capi::read_rows()}}) {
    for (const OptionRow& row : rows) {
      const auto same = [&](const TableRow& other) { return other.row.name == row.name; };
      auto found = std::find_if(table.begin(), table.end(), same);
      if (found == table.end()) found = table.insert(table.end(), {row, {}});
      found->calls.emplace_back(call);
    }
  }
  return table;
}

std::vector<OptionRow> option_rows(const std::vector<TableRow>& table) {
  std::vector<OptionRow> rows;
  rows.reserve(table.size());
  for (const TableRow& row : table) rows.push_back(row.row);
  return rows;
}

std::string calls_text(const TableRow& row) {
  std::string text;
  for (const std::string_view call : row.calls) {
    if (!text.empty()) text += ", ";
    text += call == "job" ? "swale_job_open" : call == "write" ? "swale_dir_open" : "swale_reader_open";
  }
  return text;
}

}  // namespace swale::tools
