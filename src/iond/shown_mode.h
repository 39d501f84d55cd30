// The mode of a file or directory as clients see it. The server must be able to use what it serves, so on
// disk its owner always can: a mode that forbids that is kept in an attribute beside it.
//
// Threads: free functions. Errors: of the backing file system, with the path. Format: docs/formats/iond.md.
#pragma once

#include <string>
#include <string_view>

#include "iond/iond_messages.h"
#include "iond/named_files.h"

namespace swale::iond {

inline constexpr const char* kModeAttribute = "user.swale.mode";

// What the owner has on disk in any case.
uint32_t owners_bits(FileKind kind);
// EPERM: more than permission bits.
Status check_iond_mode(std::string_view path, uint32_t mode);
// Of a descriptor (O_PATH also) whose mode on disk is `mode`.
uint32_t shown_mode(const io::Descriptor& of, uint32_t mode);
Status set_shown_mode(const io::Descriptor& of, const std::string& path, FileKind kind, uint32_t mode);
// Of what was made with the owner's bits for this request: kIondExactMode, or less the umask.
Status give_mode(const io::Descriptor& made, const std::string& path, const IondRequest& request);

}  // namespace swale::iond
