#include "base/contain.h"

#include <exception>
#include <new>
#include <system_error>

namespace swale {

Status status_of_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  } catch (const std::system_error& failed) {
    const bool exhausted = failed.code() == std::errc::resource_unavailable_try_again;  // threads
    return error(exhausted ? Code::kResourceExhausted : Code::kInternal, Scope::kOperation,
                 "the system refused: {}", failed.what());
  } catch (const std::exception& exception) {
    return error(Code::kInternal, Scope::kOperation, "unexpected exception: {}; please report it",
                 exception.what());
  } catch (...) {
    return Status(Code::kInternal, Scope::kOperation, "unexpected exception; please report it");
  }
}

}  // namespace swale
