// Massive directories by path: opendir begins an epoch, fopen, fwrite and fclose of a name in it append one
// value, and so do open, write and close (massive_files.h); closedir of a stream that was never read ends the
// epoch (docs/design/preload.md).
//
// An epoch's step is the last one + 1 and its time NaN, unless the directory's attributes user.swale.step and
// user.swale.time said more at opendir. They stay: a step that has been fails closedir with EINVAL, and so do
// ranks that differ, who are named.
//
// libswale has the engine. It is loaded at the first value, and joins the job of the launcher's environment.
//
// Names: a path leads into a massive directory if its folder has the device and inode of one that opendir has
// found in this process. While there is none, every call here is one load. A thread keeps the text of the
// last folder that matched, and forgets it when this process changes what names lead to.
//
// Threads: any; no signal handlers. Invariants: (1) libswale's own calls are the kernel's, whatever they
// name. (2) A child of fork has no engine: its calls fail with EPERM (massive_engine.h).
// Limits: kMassiveMax directories at a time, kSubfilesMax streams and as many descriptors.
#pragma once

#include <dirent.h>
#include <stdio.h>

#include <atomic>
#include <cstdint>

namespace swale::preload {

inline constexpr uint32_t kMassiveMax = 64;
inline constexpr uint32_t kSubfilesMax = 1024;
inline constexpr size_t kSubfileNameMax = 255;

extern std::atomic<uint32_t> massive_known;     // directories that opendir has found and nobody forgot
extern std::atomic<uint32_t> massive_subfiles;  // streams that were ever made

struct MassiveDirectory;

// The directory that `path`'s folder is (relative to descriptor `at`), or null; *name is its last component.
// `caller` is the return address of the program's call.
MassiveDirectory* massive_folder(int at, const char* path, const char** name, const void* caller) noexcept;

inline constexpr char kAppendedOnly[] = "values are appended only";  // why most calls are refused
inline constexpr char kNoPlaces[] = "a value has no places: it is written from its beginning to its end";
// Sets errno and logs what was refused.
void refuse_massive(const char* call, const char* path, int error, const char* why) noexcept;
void refuse_massive_name(const MassiveDirectory& directory, const char* name, const char* call, int error,
                         const char* why) noexcept;
// True, with errno set: a call that makes a file of a new name may not make it there.
bool refuse_made_name(const char* call, const char* path, const void* caller) noexcept;

// Whether an epoch has begun.
bool is_open_for_values(const MassiveDirectory& directory) noexcept;
// One value. 0, or -1 with errno.
int append_massive(MassiveDirectory& directory, const char* name, size_t name_bytes, const void* value,
                   size_t value_bytes) noexcept;

// True: `path` is a subfile, and *opened is what fopen returns.
bool open_subfile(const char* path, const char* mode, const void* caller, FILE** opened) noexcept;
// True: the stream is a subfile's, and *closed is what fclose returns.
bool close_subfile(FILE* stream, int* closed) noexcept;
// Whether opening with O_TRUNC appends (SWALE_FS_MASSIVE_TRUNCATE=append).
bool truncating_appends() noexcept;
// Null: `name` may be opened to append; else why not, with *error.
const char* wrong_name(const MassiveDirectory& directory, const char* name, int* error) noexcept;

extern "C" void swale_before_names();  // names may lead elsewhere after the call

}  // namespace swale::preload
