// The common parts of the subcommands of `swale`: exit codes, the directory, the ways of printing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "imd/read/reader.h"
#include "io/posix_device.h"
#include "tools/bytes_text.h"
#include "tools/command_line.h"
#include "tools/record_format.h"

namespace swale::tools {

using Json = nlohmann::ordered_json;

enum ExitCode {
  kExitOk = 0,
  kExitNotFound = 1,  // a key is missing; verify found problems; something is lost; a lock looks alive
  kExitUsage = 2,
  kExitFailure = 3,  // input/output error or damage
};

// Prints the failure to stderr and returns the exit code for it.
int fail(const Status& status);

// Whether it says that this process came to an end of its own (memory, a limit): nothing of the data it was
// reading.
bool is_own_limit(const Status& status);
// The first of them that is one: what was read is then incomplete. kOk: none is.
Status own_limit_among(std::span<const Status> problems);

// A key in JSON: a number if it is shown as one.
Json key_json(Bytes key, Notation notation, std::optional<run::KeyType> type);

// From the root, without "." and ".."; "" stays "".
std::string whole_path(const std::string& path);

// A line "swale: ..." on stderr, as plain text (base/plain_text.h).
void complain_text(std::string_view text);
void repeat_complaint(std::string_view line);  // another process of ours has begun it with its name
template <class... Args>
void complain(fmt::format_string<Args...> format, Args&&... args) {
  complain_text(fmt::format(format, std::forward<Args>(args)...));
}

// Writes to stdout, as plain text: lines and tables for people. Keeps the first failure and its reason for
// finish_output.
void print(std::string_view text);
// One line of plain text: a line feed within it is escaped, so that no name forges a line.
void print_line(std::string_view text);
// Bytes as they are: raw output, and what moves the cursor.
void print_bytes(std::string_view bytes);
// Text that is JSON already.
void print_json_text(std::string_view text);
std::string json_line(const Json& json);  // bytes that are no text are replaced
void print_json(const Json& json);        // one line
// Records as a RecordFormat of this layout wrote them.
void print_records(Layout layout, std::string_view records);
// Writes what was printed; finish_output tells if that fails.
void flush_output();
// Returns the command's exit code, or kExitFailure if a write to stdout has failed.
int finish_output(int exit_code);

struct OpenDirectory {
  OpenDirectory(const io::PosixOptions& storage, const std::string& path) : device(storage, path) {}

  io::PosixDevice device;
  std::unique_ptr<imd::Reader> reader;
};

// Opens a massive directory; kUnsupported if it is another engine's.
Result<std::unique_ptr<OpenDirectory>> open_imd(const std::string& path);

struct Engine;

// The options that most subcommands take.
struct Common {
  std::string path;
  std::optional<int64_t> epoch;
  bool json = false;
  bool hex = false;
  bool u64 = false;
  bool raw = false;
  bool typed = false;
  std::string format;  // "text", "csv", "json" or "raw"; "": as --json and --raw say
  std::string fields;

  void add_path(OptionSet command);
  void add_json(OptionSet command);
  void add_epoch(OptionSet command, const std::string& help);
  void add_notation(OptionSet command, bool with_raw);
  void add_typed(OptionSet command);
  // The layout of printed records, from --json, --raw and --format.
  void add_output(OptionSet command);

  Notation notation() const;
  // kInvalidArgument: the options choose two.
  Result<Layout> layout() const;
  Result<std::unique_ptr<OpenDirectory>> open() const { return open_imd(path); }
  // The engine that made the directory (engine.h).
  Result<const Engine*> engine() const;
  // The storage options of the environment (SWALE_IO_*), for commands that open no reader.
  static Result<io::PosixOptions> storage();
};

// Each adds a subcommand to the application; the chosen one sets `*run` to its action.
using Run = std::function<int()>;
void add_info(CLI::App& app, Run* run);
void add_ls(CLI::App& app, Run* run);
void add_get(CLI::App& app, Run* run);
void add_scan(CLI::App& app, Run* run);
void add_keys(CLI::App& app, Run* run);
void add_top(CLI::App& app, Run* run);
void add_stats(CLI::App& app, Run* run);
void add_verify(CLI::App& app, Run* run);
void add_optimize(CLI::App& app, Run* run);
void add_repair(CLI::App& app, Run* run);
void add_unlock(CLI::App& app, Run* run);
void add_mkdir(CLI::App& app, Run* run);
void add_check(CLI::App& app, Run* run);
void add_mount(CLI::App& app, Run* run);
void add_tier(CLI::App& app, Run* run);
void add_iond_mount(CLI::App& app, Run* run);
void add_tier_mount(CLI::App& app, Run* run);
void add_tier_stats(CLI::App& app, Run* run);
void add_tier_measure(CLI::App& app, Run* run);
void add_tier_trace(CLI::App& app, Run* run);
void add_iond(CLI::App& app, Run* run);
void add_run(CLI::App& app, Run* run);
void add_serve(CLI::App& app, Run* run);
void add_start(CLI::App& app, Run* run);  // and stop, status
void add_fs(CLI::App& app, Run* run);
void add_stage(CLI::App& app, Run* run);
void add_dump(CLI::App& app, Run* run);
void add_config(CLI::App& app, Run* run);
void add_completion(CLI::App& app, Run* run);

}  // namespace swale::tools
