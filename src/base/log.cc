#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/plain_text.h"

namespace swale {
namespace {

constexpr std::array<std::string_view, 5> kLevelNames = {"debug", "info", "warn", "error", "off"};

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

class Log {
 public:
  // Created at the first message. Never destroyed, so that threads which outlive main may still log. Not in
  // spdlog's registry, which belongs to the host application.
  static Log& instance() {
    static Log* const log = new Log();
    return *log;
  }

  bool enabled(LogLevel level) const {
    return level != LogLevel::kOff && level >= level_.load(std::memory_order_relaxed);
  }
  void set_level(LogLevel level) { level_.store(level, std::memory_order_relaxed); }

  void set_sink(LogSink sink) {
    const MutexLock lock(mutex_);
    sink_ = std::move(sink);
  }

  void write(LogLevel level, std::string_view message) {
    const MutexLock lock(mutex_);
    if (sink_) {
      sink_(level, message);
    } else {
      logger_.log(spdlog_level(level), spdlog::string_view_t(message.data(), message.size()));
    }
  }

 private:
  Log() : logger_("swale", std::make_shared<spdlog::sinks::stderr_sink_st>()) {
    logger_.set_level(spdlog::level::trace);  // this file filters by level itself
    const char* wanted = std::getenv("SWALE_LOG");
    if (wanted == nullptr) return;
    for (size_t i = 0; i < kLevelNames.size(); ++i) {
      if (wanted != kLevelNames[i]) continue;
      set_level(static_cast<LogLevel>(i));
      return;
    }
    logger_.warn("SWALE_LOG is '{}': expected debug, info, warn, error or off; taking warn",
                 plain_text(wanted));
  }

  std::atomic<LogLevel> level_{LogLevel::kWarn};
  Mutex mutex_;
  LogSink sink_ GUARDED_BY(mutex_);
  spdlog::logger logger_ GUARDED_BY(mutex_);
};

}  // namespace

void set_log_sink(LogSink sink) { Log::instance().set_sink(std::move(sink)); }
void set_log_level(LogLevel level) { Log::instance().set_level(level); }
bool log_enabled(LogLevel level) { return Log::instance().enabled(level); }

void log_message(LogLevel level, std::string_view message) {
  if (log_enabled(level)) Log::instance().write(level, plain_text(message));
}

void log_formatted(LogLevel level, fmt::string_view format, fmt::format_args args) noexcept {
  try {
    if (log_enabled(level)) log_message(level, fmt::vformat(format, args));
  } catch (...) {  // the message is dropped: nothing can report it
  }
}

}  // namespace swale
