// Log: messages for people. Log once, at the origin of a failure, with the exact cause; code that passes the
// Status on does not log it again.
//
// Logging never throws: a message for which there is no memory, or whose sink throws, is dropped.
//
// A message is one line of plain text, whatever it quotes (base/plain_text.h): for stderr as for sinks.
//
// Messages of SWALE_LOG's level (debug, info, warn, error, off; default warn) and above go to stderr, or to
// the sink that the host application has set.
//
// Threads: thread-safe; sinks are called one at a time and must not log.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string_view>
#include <utility>

namespace swale {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarn = 2, kError = 3, kOff = 4 };

using LogSink = std::function<void(LogLevel level, std::string_view message)>;

void set_log_sink(LogSink sink);  // an empty one means stderr again
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
void log_message(LogLevel level, std::string_view message);
void log_formatted(LogLevel level, fmt::string_view format, fmt::format_args args) noexcept;

template <class... Args>
void log_at(LogLevel level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  log_formatted(level, format, fmt::make_format_args(args...));
}
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) noexcept {
  log_at(LogLevel::kDebug, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) noexcept {
  log_at(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) noexcept {
  log_at(LogLevel::kWarn, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) noexcept {
  log_at(LogLevel::kError, format, std::forward<Args>(args)...);
}

}  // namespace swale
