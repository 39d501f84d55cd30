#include "preload/massive_pattern.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace swale::preload {
namespace {

constexpr char kVariable[] = "SWALE_FS_MASSIVE";
constinit char start[PATH_MAX] = "";  // of a relative pattern; empty: nobody knows

__attribute__((constructor)) void note_start() {
  const char* const pattern = ::getenv(kVariable);
  if (pattern == nullptr || *pattern == '/') return;
  if (::getcwd(start, sizeof start) == nullptr || *start != '/') *start = '\0';
}

// Without "./" before it and slashes behind it. False: it is too long.
bool simple(const char* path, char (&out)[PATH_MAX]) {
  while (path[0] == '.' && path[1] == '/')
    for (++path; *path == '/';) ++path;
  size_t bytes = ::strnlen(path, sizeof out);
  if (bytes == sizeof out) return false;
  while (bytes > 1 && path[bytes - 1] == '/') --bytes;
  memcpy(out, path, bytes);
  out[bytes] = '\0';
  return true;
}

// The names up to the one with the first wildcard, followed as a path. False: nothing is there.
bool follow_names(const char* pattern, size_t bytes, char (&out)[PATH_MAX]) {
  char names[2 * PATH_MAX];
  const char* const before = *pattern == '/' ? "" : start;
  if (*pattern != '/' && *start == '\0') return false;
  ::snprintf(names, sizeof names, "%s%s%.*s", before, *before == '\0' ? "" : "/", static_cast<int>(bytes),
             pattern);
  return ::realpath(names, out) != nullptr;
}

}  // namespace

bool matches_pattern(const char* given, const char* place) noexcept {
  char pattern[PATH_MAX], path[PATH_MAX], folder[PATH_MAX];
  const char* const value = ::getenv(kVariable);
  if (value == nullptr || !simple(value, pattern) || !simple(given, path)) return false;
  if (::fnmatch(pattern, path, FNM_PATHNAME) == 0) return true;
  const char* const wild = ::strpbrk(pattern, "*?[\\");
  size_t names = wild == nullptr ? strlen(pattern) : static_cast<size_t>(wild - pattern);
  while (wild != nullptr && names > 0 && pattern[names - 1] != '/') --names;
  if (!follow_names(pattern, names, folder)) return false;
  if (wild == nullptr) return strcmp(folder, place) == 0;
  const size_t above = strcmp(folder, "/") == 0 ? 0 : strlen(folder);
  return ::strncmp(folder, place, above) == 0 && place[above] == '/' &&
         ::fnmatch(pattern + names, place + above + 1, FNM_PATHNAME) == 0;
}

}  // namespace swale::preload
