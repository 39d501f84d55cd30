// LightProgram: one program that makes files past the kernel (fs/log/light_format.h), as the server has it:
// its connection, and what it has open.
//
// Threads: serve() on one; stop() on any. Invariants: (1) What it has open is closed when serve returns.
// (2) A file that is open keeps its node, and so its bytes, without a name, too.
// Errors: errnos in answers; a message that nobody may send ends the connection, with a line in the log.
// Limits: kLightOpensMax files open at a time.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "fs/as_caller.h"
#include "fs/job/job_fs.h"
#include "fs/log/light_format.h"
#include "io/descriptor.h"

namespace swale::fs {

class LightProgram {
 public:
  LightProgram(JobFs& fs, io::Descriptor socket, Credentials who)
      : fs_(fs), socket_(std::move(socket)), who_(std::move(who)) {}
  LightProgram(const LightProgram&) = delete;
  LightProgram& operator=(const LightProgram&) = delete;

  void serve() noexcept;  // until the connection ends
  void stop() noexcept;
  bool over() const { return over_.load(); }

 private:
  struct Opened {
    std::unique_ptr<OpenFile> file;  // null: the handle is free
    Node* node = nullptr;
    std::string lent;
  };

  bool answer_next();  // false: the connection has ended
  LightAnswer obey(const LightRequest& request, size_t bytes);
  void create(const LightRequest& request, LightAnswer* answer);
  void stat(Opened& opened, LightAnswer* answer);
  void close(uint32_t handle);
  Opened* find(uint32_t handle);

  JobFs& fs_;
  const io::Descriptor socket_;
  const Credentials who_;
  std::vector<Opened> opens_;   // by handle - 1
  std::vector<uint32_t> free_;  // handles
  std::atomic<bool> over_ = false;
};

}  // namespace swale::fs
