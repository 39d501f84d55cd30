#include "fs/job/program_page.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace swale::fs {

Result<std::unique_ptr<ProgramPage>> ProgramPage::make() {
  const auto failed = [](std::string_view step) {
    return errno_status(errno, fmt::format("the page of a program: {}", step));
  };
  std::unique_ptr<ProgramPage> made(new ProgramPage);
  made->memory_ = io::Descriptor(::memfd_create("swale-light", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made->memory_.valid()) return failed("making it");
  const int memory = made->memory_.get();
  if (::ftruncate(memory, kLightPageBytes) != 0) return failed("its length");
  if (::fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return failed("sealing it");
  void* const mapped = ::mmap(nullptr, kLightPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (mapped == MAP_FAILED) return failed("mapping it");
  made->page_ = new (mapped) LightPage;
  made->bell_ = io::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made->bell_.valid()) return failed("an eventfd");
  return made;
}

ProgramPage::~ProgramPage() {
  if (page_ != nullptr) ::munmap(page_, kLightPageBytes);
}

bool ProgramPage::take(LightRequest* request, size_t* bytes) {
  const uint32_t asked = page_->asked.load(std::memory_order_acquire);
  if (asked == taken_) return false;
  taken_ = asked;
  *bytes = page_->request_bytes.load(std::memory_order_relaxed);
  std::memcpy(static_cast<void*>(request), &page_->request, std::min(*bytes, sizeof(*request)));
  return true;
}

void ProgramPage::answer(const LightAnswer& answer, Bytes argument) noexcept {
  argument = argument.substr(0, std::min(argument.size(), kLightArgumentMax));
  std::memcpy(page_->answer, &answer, sizeof(answer));
  if (!argument.empty()) std::memcpy(page_->answer + sizeof(answer), argument.data(), argument.size());
  page_->answer_bytes.store(static_cast<uint32_t>(sizeof(answer) + argument.size()),
                            std::memory_order_relaxed);
  page_->answered.store(taken_);
  if (page_->waits.load() == 0) return;
  page_->waits.store(0);
  ::syscall(SYS_futex, &page_->answered, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace swale::fs
