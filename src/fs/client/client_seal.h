// Seals of files by their paths, for programs of a node: a sealed file is immutable on all nodes, for root
// too. A file is sealed by chmod to a mode without a right to write, and unsealed by one with such a right:
// these calls are that, and they know whether it has come about.
//
// Threads: any. Errors: kNotFound for a path that is on no tree; kBusy, with the processes, while a file is
// open to be written.
#pragma once

#include <string>

#include "base/status.h"

namespace swale::fs {

// Returns when the file is sealed; one that is sealed stays so. The server hears of a close a little after it
// has returned: this waits for that, and not for a writer that goes on.
Status seal_file(const std::string& path);
// Returns when no node answers from what it has kept of the sealed file: its owner may write it.
Status unseal_file(const std::string& path);
// Of an open file of a tree.
Result<bool> is_sealed(int fd, const std::string& path);

}  // namespace swale::fs
