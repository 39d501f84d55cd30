#include "tools/option_table.h"

#include <algorithm>

namespace swale::tools {

std::string_view short_name(capi::Call call) {
  return call == capi::Call::kJob     ? "job"
         : call == capi::Call::kWrite ? "write"
         : call == capi::Call::kRead  ? "read"
         : call == capi::Call::kMeta  ? "meta"
         : call == capi::Call::kIond  ? "iond"
                                      : "tier";
}

std::vector<TableRow> option_table() {
  std::vector<TableRow> table;
  for (const capi::Call call : capi::kCalls) {
    for (const OptionRow& row : capi::rows_of(call)) {
      const auto same = [&](const TableRow& other) { return other.row.name == row.name; };
      auto found = std::find_if(table.begin(), table.end(), same);
      if (found == table.end()) found = table.insert(table.end(), {row, {}});
      found->calls.push_back(call);
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

std::vector<std::string_view> short_calls(const TableRow& row) {
  std::vector<std::string_view> words;
  for (const capi::Call call : row.calls) words.push_back(short_name(call));
  return words;
}

std::string calls_text(const TableRow& row) {
  std::string text;
  for (const capi::Call call : row.calls) {
    if (!text.empty()) text += ", ";
    text += capi::call_name(call);
  }
  return text;
}

}  // namespace swale::tools
