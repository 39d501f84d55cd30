// Which empty directories SWALE_FS_MASSIVE=GLOB makes massive: it matches the path that the program gave, or,
// whatever links lead there, the directory itself. For that the pattern's folders up to its first wildcard
// are followed as a path is, and the rest is compared with what is below. A relative pattern begins at the
// working directory in which the program was started.
//
// Threads: any.
#pragma once

namespace swale::preload {

// `place` is the directory's own path, without links.
bool matches_pattern(const char* given, const char* place) noexcept;

}  // namespace swale::preload
