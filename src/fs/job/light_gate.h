// LightGate: files that are made past the kernel, and changes of names that come through it.
//
// The kernel's locks of directories keep a mkdir, an unlink or a rename apart from a create of the same name;
// they do not see creates that pass it by. So such a change closes the gate, and waits for the creates that
// have passed. A create never waits: while the gate is closed it goes through the kernel. It looks at the
// gate before it counts itself, too: else those that come again and again would keep a change waiting.
//
//   create:   const LightGate::Pass pass(gate_); if (!pass.open()) return EAGAIN;
//   change:   const LightGate::Closed closed(gate_);
//
// Threads: any. Invariant: no create is between its Pass's making and end while a Closed is made.
#pragma once

#include <atomic>
#include <cstdint>

namespace swale::fs {

class LightGate {
 public:
  class Pass {
   public:
    explicit Pass(LightGate& gate) : gate_(gate), counts_(gate.closed_.load() == 0) {
      if (!counts_) return;
      gate_.passed_.fetch_add(1);
      open_ = gate_.closed_.load() == 0;
    }
    ~Pass() {
      if (counts_ && gate_.passed_.fetch_sub(1) == 1 && gate_.closed_.load() > 0) gate_.passed_.notify_all();
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    bool open() const { return open_; }

   private:
    LightGate& gate_;
    const bool counts_;
    bool open_ = false;
  };

  class Closed {
   public:
    explicit Closed(LightGate& gate) : gate_(gate) {
      gate_.closed_.fetch_add(1);
      for (uint32_t passed = gate_.passed_.load(); passed > 0; passed = gate_.passed_.load())
        gate_.passed_.wait(passed);
    }
    ~Closed() { gate_.closed_.fetch_sub(1); }
    Closed(const Closed&) = delete;
    Closed& operator=(const Closed&) = delete;

   private:
    LightGate& gate_;
  };

 private:
  std::atomic<uint32_t> passed_ = 0, closed_ = 0;
};

}  // namespace swale::fs
