// What the sockets have in common at which programs of a node meet its server.
// Threads: any.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "io/descriptor.h"

namespace swale::fs {

inline constexpr int kMeetAgainMs = 100;  // after what could not be done now

// A socket of that name in a folder that must be this user's alone; *folder is opened. One that a killed
// server has left is replaced: the caller is the node's only server.
Result<io::Descriptor> listen_for_programs(const std::string& folder, const char* name,
                                           io::Descriptor* opened_folder);

// The next program that waits, and who it is. Invalid: none, or one of another user, which is told in the
// log. `end`: readable when nobody is to be waited for.
io::Descriptor accept_program(const io::Descriptor& listener, const io::Descriptor& end, ucred* who);

// Calls `step` again and again, until it returns false. What it throws is told in the log, and it is called
// again a little later, unless `end` is readable.
void meet_programs(const io::Descriptor& end, const std::function<bool()>& step) noexcept;

// One message, with descriptors if there are any. Whom it does not reach is not told: a program hears of it
// by the end of its connection. `flags`: of sendmsg, beside MSG_NOSIGNAL.
inline constexpr size_t kPassedMax = 4;
void say_to_program(const io::Descriptor& to, Bytes message, std::span<const int> passed, int flags) noexcept;

// Makes an eventfd readable.
void ring(const io::Descriptor& event) noexcept;

// Readable when the process has ended. Invalid: the kernel has no such thing.
io::Descriptor descriptor_of_process(pid_t process);

}  // namespace swale::fs
