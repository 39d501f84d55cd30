// Whether files are to be opened past the kernel.
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "preload/light.h"
#include "preload/messages.h"

namespace swale::preload {
namespace {

// They enter the kernel by themselves, which answers EBADF for a placeholder.
constexpr const char* kInline[] = {"liburing.so", "liburing-ffi.so", "libaio.so"};

int note_inline(dl_phdr_info* info, size_t, void* found) {
  const char* const slash = ::strrchr(info->dlpi_name, '/');
  const char* const name = slash == nullptr ? info->dlpi_name : slash + 1;
  for (const char* each : kInline) {
    if (::strncmp(name, each, ::strlen(each)) != 0) continue;
    *static_cast<const char**>(found) = name;  // it stays for as long as the library
    return 1;
  }
  return 0;
}

}  // namespace

bool wants_light() noexcept {
  const char* const wanted = ::getenv("SWALE_FS_DESCRIPTORS");
  if (wanted == nullptr || *wanted == '\0') return false;
  if (::strcmp(wanted, "light") != 0) {
    tell("SWALE_FS_DESCRIPTORS=%s: there is no such value, and it changes nothing: set light, or unset it",
         wanted);
    return false;
  }
  const char* library = nullptr;
  ::dl_iterate_phdr(note_inline, &library);
  if (library == nullptr) return true;
  tell(
      "SWALE_FS_DESCRIPTORS=light is of no effect in a process with %s, which makes calls that nobody sees: "
      "the kernel opens its files",
      library);
  return false;
}

}  // namespace swale::preload
