// ProgramPage: the page by which one program asks (fs/log/light_page.h), as the server has it. Whatever the
// program writes there, nothing but what is copied here is looked at.
//
// Threads: one at a time. Errors: of make: what the system refuses; then the program asks by its socket.
// Memory: 4 KiB a program.
#pragma once

#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/status.h"
#include "fs/log/light_page.h"
#include "io/descriptor.h"

namespace swale::fs {

class ProgramPage {
 public:
  static Result<std::unique_ptr<ProgramPage>> make();
  ~ProgramPage();
  ProgramPage(const ProgramPage&) = delete;
  ProgramPage& operator=(const ProgramPage&) = delete;

  const io::Descriptor& memory() const { return memory_; }
  const io::Descriptor& bell() const { return bell_; }

  // Whether take() or next_close() may find something.
  bool has_come() const {
    return page_->asked.load(std::memory_order_relaxed) != taken_ ||
           page_->closed.load(std::memory_order_relaxed) != closed_;
  }
  // The request that has come, and its length, which may be any. False: there is none.
  bool take(LightRequest* request, size_t* bytes);
  // Handles that are to be closed, at most kLightClosesMax; 0: no more for now.
  template <class Visit>
  void take_closes(const Visit& visit) {
    const uint32_t closed = page_->closed.load(std::memory_order_acquire);
    if (closed == closed_) return;
    closed_ = closed;
    for (std::atomic<uint32_t>& each : page_->closes) {
      if (each.load(std::memory_order_relaxed) == 0) continue;
      if (const uint32_t handle = each.exchange(0); handle != 0) visit(handle);
    }
  }
  // Of the request that was taken last.
  void answer(const LightAnswer& answer, Bytes argument) noexcept;
  // True: the page is looked at, and nobody needs to ring. After `false` it is to be looked at once more.
  void listen(bool listens) { page_->listens.store(listens ? 1 : 0); }

 private:
  ProgramPage() = default;

  io::Descriptor memory_;
  io::Descriptor bell_;
  LightPage* page_ = nullptr;
  uint32_t taken_ = 0;   // of `asked`
  uint32_t closed_ = 0;  // of `closed`
};

}  // namespace swale::fs
