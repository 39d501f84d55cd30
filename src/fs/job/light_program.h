// LightProgram: one program that opens files past the kernel (fs/log/light_format.h), as the server has it:
// its connection and its page, and what it has open. A request is answered the way that it came.
//
// Threads: one at a time; stop() on any. Invariants: (1) What it has open is closed when it is over. (2) A
// file that is open keeps its node, and so its bytes, without a name, too.
// Errors: errnos in answers; a message that nobody may send ends the connection, with a line in the log.
// Limits: kLightOpensMax files open at a time.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "fs/as_caller.h"
#include "fs/job/job_fs.h"
#include "fs/job/program_page.h"
#include "fs/log/light_format.h"
#include "io/descriptor.h"

namespace swale::fs {

class LightProgram;
enum class LightVia { kSocket, kPage };

// What programs have asked for, until the server does all of it at a time (JobFs::serve_light).
class LightBatch {
 public:
  static constexpr size_t kRequestsMax = 64;

  // The next request's place; null: it is full. It stays until serve().
  LightRequest* next() { return used_ < kRequestsMax ? &requests_[used_] : nullptr; }
  void take_next() { ++used_; }
  void add_open(LightProgram* program, uint32_t handle, LightVia via, const LightRequest& request);
  void add_end(JobFs::LightFile file) { ended_.push_back(std::move(file)); }
  // Programs hear what has become of their opens.
  void serve(JobFs& fs);

 private:
  struct Asker {
    LightProgram* program = nullptr;
    uint32_t handle = 0;
    LightVia via = LightVia::kSocket;
  };

  std::vector<LightRequest> requests_ = std::vector<LightRequest>(kRequestsMax);
  size_t used_ = 0;
  std::vector<JobFs::LightFile> ended_;
  std::vector<JobFs::LightOpen> wanted_;
  std::vector<Asker> askers_;  // of each of them
};

class LightProgram {
 public:
  // Without a page it asks by its socket alone.
  LightProgram(JobFs& fs, io::Descriptor socket, Credentials who, std::unique_ptr<ProgramPage> page)
      : fs_(fs), socket_(std::move(socket)), who_(std::move(who)), page_(std::move(page)) {}
  LightProgram(const LightProgram&) = delete;
  LightProgram& operator=(const LightProgram&) = delete;

  // Takes what has come, waits for nothing. False: the connection has ended: end().
  bool take(LightBatch* batch);
  // The same of its page. Each at most one request, and kLightClosesMax closes.
  bool take_from_page(LightBatch* batch);
  bool take_closes(LightBatch* batch);  // true
  // The open with this handle has been tried.
  void answer_open(uint32_t handle, LightVia via, JobFs::LightOpen* tried) noexcept;
  void end(LightBatch* batch);  // the last call
  void stop() noexcept;

  const Credentials& who() const { return who_; }
  int socket() const { return socket_.get(); }
  ProgramPage* page() const { return page_.get(); }

 private:
  struct Opened {
    JobFs::LightFile of;  // without a file: the handle is free, or promised
    std::string lent;
  };

  bool obey(LightRequest& request, size_t bytes, LightVia via, LightBatch* batch);
  LightAnswer look(const LightRequest& request);
  LightAnswer pass_on(const LightRequest& request, std::string* argument);
  uint32_t free_handle();  // 0: too many are open
  void close(uint32_t handle, LightBatch* batch);
  Opened* find(uint32_t handle);
  bool say(LightVia via, const LightAnswer& answer, Bytes argument = {}) const noexcept;

  JobFs& fs_;
  const io::Descriptor socket_;
  const Credentials who_;
  const std::unique_ptr<ProgramPage> page_;
  std::vector<Opened> opens_;   // by handle - 1
  std::vector<uint32_t> free_;  // handles
};

}  // namespace swale::fs
