// attach_to_server: how a process comes to its log (attach_format.h): reads whose tree a file is of, connects
// to the server of the node, and maps the log that it sends.
//
// Threads: any, and signal handlers: system calls only. Errors: negative errno, and a line that says what
// failed. Waits for the server for at most kAnswerSeconds.
// Needs: libc only: no C++ run time (the client's half goes into a preload library).
#pragma once

#include <cstddef>

#include "fs/log/attach_format.h"
#include "fs/log/log_writer.h"

namespace swale::fs {

inline constexpr int kAnswerSeconds = 30;

// The value of kAttachAttribute, cut into its parts. They stand in the value, which must stay.
struct AttachPlace {
  uint32_t version = 0;
  const char* node = "";
  const char* socket = "";
};
// 0, EUCLEAN (it is no such value), or EPROTO: of another version.
int parse_attach_place(char* value, size_t bytes, AttachPlace* place) noexcept;

// What the caller keeps for as long as it writes: the end of the connection is the end of the log.
struct ServerConnection {
  AttachToken token;
  int socket = -1;  // the caller closes it
};
// A socket to the server at `socket_path`, with a deadline of kAnswerSeconds for each message. The server is
// this user's. The caller closes it.
int connect_to_server(const char* socket_path, int* socket, LogTrouble* trouble) noexcept;
int attach_to_server(const char* socket_path, LogWriter* writer, ServerConnection* connection,
                     LogTrouble* trouble) noexcept;

}  // namespace swale::fs
