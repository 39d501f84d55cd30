#include "tools/options.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/plain_text.h"
#include "capi/options.h"
#include "tools/engine.h"

namespace swale::tools {
namespace {

int output_errno = 0;  // the errno of the first failed write to stdout

void note_output_failure() {
  if (output_errno == 0) output_errno = errno;
}

}  // namespace

std::string whole_path(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
}

void flush_output() {
  if (std::fflush(stdout) != 0) note_output_failure();
}

int fail(const Status& status) {
  flush_output();
  complain_text(status.message());
  return status.code() == Code::kInvalidArgument ? kExitUsage : kExitFailure;
}

bool is_own_limit(const Status& status) { return status.code() == Code::kResourceExhausted; }

Status own_limit_among(std::span<const Status> problems) {
  const auto found = std::find_if(problems.begin(), problems.end(), is_own_limit);
  return found == problems.end() ? Status() : *found;
}

void complain_text(std::string_view text) { fmt::print(stderr, "swale: {}\n", plain_text(text)); }
void repeat_complaint(std::string_view line) { fmt::print(stderr, "{}\n", plain_text(line)); }

void print_bytes(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size()) note_output_failure();
}

void print(std::string_view text) {
  is_plain(text, TextUse::kPage) ? print_bytes(text) : print_bytes(plain_text(text, TextUse::kPage));
}

void print_line(std::string_view text) { print_bytes(plain_text(text) + "\n"); }

void print_json_text(std::string_view text) {
  is_plain(text, TextUse::kJson) ? print_bytes(text) : print_bytes(plain_text(text, TextUse::kJson));
}

void print_records(Layout layout, std::string_view records) {
  if (layout == Layout::kRaw) return print_bytes(records);
  layout == Layout::kJson ? print_json_text(records) : print(records);
}

std::string json_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void print_json(const Json& json) { print_json_text(json_line(json)); }

Json key_json(Bytes key, Notation notation, std::optional<run::KeyType> type) {
  std::string text = show_key(key, notation, type);
  return shows_number(key, notation, type) ? Json::parse(text) : Json(std::move(text));
}

int finish_output(int exit_code) {
  flush_output();
  if (std::ferror(stdout) == 0 && output_errno == 0) return exit_code;
  complain("writing to the standard output: {}", std::strerror(output_errno));
  return kExitFailure;
}

void Common::add_path(OptionSet command) {
  command.add_option("PATH", path, "the massive directory (the one that contains swale.json)")
      .required()
      .type_name("DIR");
}

void Common::add_json(OptionSet command) {
  command.add_flag("--json", json, "print JSON for other programs");
}

void Common::add_epoch(OptionSet command, const std::string& help) {
  command.add_option("-e,--epoch", epoch, help).at_least(0).type_name("N");
}

void Common::add_notation(OptionSet command, bool with_raw) {
  OptionSet group = command.add_choice("notation",
                                       "How keys and values are printed; by default as text where it is "
                                       "printable, else in hex");
  group.add_flag("--hex", hex, "in hex");
  group.add_flag("--u64", u64, "keys of 8 bytes as little-endian numbers; values as by default");
  if (with_raw) group.add_flag("--raw", raw, "only values, as unchanged bytes without separators");
}

void Common::add_typed(OptionSet command) {
  command.add_flag("-t,--typed", typed, "show values as the numbers of the schema");
}

void Common::add_output(OptionSet command) {
  add_json(command);
  add_typed(command);
  add_notation(command, /*with_raw=*/true);
  command
      .add_option("-f,--fields", fields,
                  "columns, separated by commas: fields of the schema, epoch, step, time, key, value, bytes, "
                  "u64(key), or what is computed from them")
      .type_name("LIST");
  command
      .add_option("--format", format,
                  "of the output: text (default), csv, json (as --json) or raw (as --raw)")
      .one_of({"text", "csv", "json", "raw"})
      .type_name("FORMAT");
}

Result<Layout> Common::layout() const {
  std::vector<std::string_view> wanted;
  if (raw) wanted.push_back("raw");
  if (json) wanted.push_back("json");
  if (!format.empty()) wanted.push_back(format);
  if (wanted.empty()) return Layout::kText;
  for (const std::string_view other : wanted) {
    if (other != wanted.front())
      return invalid_argument("output is {} or {}: give one format", wanted.front(), other);
  }
  return wanted.front() == "raw"    ? Layout::kRaw
         : wanted.front() == "json" ? Layout::kJson
         : wanted.front() == "csv"  ? Layout::kCsv
                                    : Layout::kText;
}

Notation Common::notation() const {
  return raw ? Notation::kRaw : hex ? Notation::kHex : u64 ? Notation::kU64 : Notation::kAuto;
}

Result<io::PosixOptions> Common::storage() {
  SWALE_RETURN_IF_ERROR(capi::check_process_variables());
  return capi::storage_options(capi::Call::kRead, "", capi::process_environment);
}

Result<const Engine*> Common::engine() const {
  SWALE_ASSIGN_OR_RETURN(const io::PosixOptions with, storage());
  io::PosixDevice device(with, path);
  return engine_of(device, path);
}

Result<std::unique_ptr<OpenDirectory>> open_imd(const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const io::PosixOptions with, Common::storage());
  SWALE_ASSIGN_OR_RETURN(const imd::ReaderOptions options,
                         capi::reader_options("", capi::process_environment));
  auto opened = std::make_unique<OpenDirectory>(with, path);
  if (opened->device.open(path, io::OpenMode::kRead).ok())
    return invalid_argument("{}: is a file; give the massive directory, the one that contains swale.json",
                            path);
  SWALE_RETURN_IF_ERROR(expect_engine(opened->device, path, kImdEngine));
  SWALE_ASSIGN_OR_RETURN(opened->reader, imd::Reader::open(opened->device, path, options));
  return opened;
}

}  // namespace swale::tools
