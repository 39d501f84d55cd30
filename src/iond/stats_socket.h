// StatsSocket: a text of this moment for whoever connects to the socket DIRECTORY/stats: how `swale tier
// stats` asks a process that has no mountpoint.
//
// The text is sent, and the connection ends: nothing is read, so nobody can hold the thread up. A socket that
// a killed process has left is replaced; the caller holds the directory's lock, so no other process serves
// it.
//
// Threads: one of its own, which sleeps until somebody asks; it calls `text`. ask_stats_socket: any.
// Errors: of open: what the file system refuses (some have no sockets). A text that throws is no answer.
// Limits: texts of at most kStatsTextBytesMax. Paths may be longer than a socket's address.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "io/descriptor.h"

namespace swale::iond {

inline constexpr const char* kStatsSocket = "stats";
inline constexpr size_t kStatsTextBytesMax = 64 * 1024;

class StatsSocket {
 public:
  using Text = std::function<std::string()>;
  static Result<std::unique_ptr<StatsSocket>> open(const std::string& directory, Text text);
  ~StatsSocket();  // removes the socket
  StatsSocket(const StatsSocket&) = delete;
  StatsSocket& operator=(const StatsSocket&) = delete;

 private:
  StatsSocket() = default;
  void serve();

  Text text_;
  io::Descriptor directory_;
  io::Descriptor listener_;
  io::Descriptor end_;  // readable: serve returns
  std::thread thread_;
};

// kNotFound: the directory has no such socket. kUnavailable: it has one, of a process that was killed.
// kDeadlineExceeded: the process that has it does not answer within `patience`.
Result<std::string> ask_stats_socket(const std::string& directory, Nanos patience);

}  // namespace swale::iond
