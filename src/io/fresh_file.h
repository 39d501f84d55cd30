// create_fresh: a temporary file under a name that a crash may have left behind, or that another user has
// planted: whatever has the name is removed first, so nothing that a link leads to is opened or cut.
//
// Threads: any. Errors: those of the device; kAlreadyExists if somebody makes the name again each time.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "io/device.h"

namespace swale::io {

// Empty, open for reading and writing.
Result<std::unique_ptr<File>> create_fresh(Device& device, const std::string& path);

}  // namespace swale::io
