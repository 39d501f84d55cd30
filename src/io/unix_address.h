// unix_address: the address of a socket in a folder, by the folder's descriptor: an address has 107 bytes,
// paths have more.
// Threads: any. Errors: none; needs /proc. The descriptor must stay open until the call that uses the
// address.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdio>

#include "io/descriptor_path.h"

namespace swale::io {

inline sockaddr_un unix_address(const Descriptor& folder, const char* name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  ::snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", descriptor_path(folder).c_str(), name);
  return address;
}

inline const sockaddr* general(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

}  // namespace swale::io
