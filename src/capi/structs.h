// Structs that cross the C interface: the caller gives the size of its version of the struct (struct_bytes,
// the first member), so that later versions can add members at the end.
//
// Threads: free functions.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstring>

#include "capi/boundary.h"
#include "iond/named_files.h"
#include "swale/swale_iond.h"

namespace swale::capi {

// DO NOT CHANGE THESE NUMBERS: they are the sizes in version 0.1, which programs use.
template <class T>
inline constexpr size_t kFirstBytes = 0;
template <>
inline constexpr size_t kFirstBytes<swale_comm> = 32;
template <>
inline constexpr size_t kFirstBytes<swale_stat> = 64;
template <>
inline constexpr size_t kFirstBytes<swale_epoch_info> = 40;
template <>
inline constexpr size_t kFirstBytes<swale_top_record> = 64;
template <>
inline constexpr size_t kFirstBytes<swale_top_stats> = 56;
template <>
inline constexpr size_t kFirstBytes<swale_attributes> = 48;
template <>
inline constexpr size_t kFirstBytes<swale_query> = 112;
template <>
inline constexpr size_t kFirstBytes<swale_error_info> = 56;

// kInvalidArgument if the pointer is NULL or if struct_bytes is no size of any version.
template <class T>
Status check_struct(const char* call, const char* argument, const T* given) {
  static_assert(kFirstBytes<T> != 0 && kFirstBytes<T> <= sizeof(T));
  if (given == nullptr) return null_argument(call, argument);
  if (given->struct_bytes >= kFirstBytes<T>) return {};
  return invalid_argument("{}: {}->struct_bytes is {}: set it to the size of the struct before the call",
                          call, argument, given->struct_bytes);
}

// Copies the members that the caller's version has to the caller. Requires check_struct.
template <class T>
void fill_struct(T* out, T value) {
  assert(out->struct_bytes >= kFirstBytes<T>);
  value.struct_bytes = std::min(out->struct_bytes, sizeof(T));
  std::memcpy(out, &value, value.struct_bytes);
}

// The caller's struct; members that its version lacks are zero. Requires check_struct.
template <class T>
T take_struct(const T& given) {
  assert(given.struct_bytes >= kFirstBytes<T>);
  T taken = {};
  std::memcpy(&taken, &given, std::min(given.struct_bytes, sizeof(T)));
  return taken;
}

// Of a file of a tiered write buffer or of I/O servers, which count no truncates and seal nothing.
inline void show_attributes(const iond::FileAttributes& found, swale_attributes* attributes) {
  const bool directory = found.kind == iond::FileKind::kDirectory;
  fill_struct(attributes, {.struct_bytes = 0,
                           .size = found.size,
                           .generation = 0,
                           .mode = found.mode | (directory ? uint32_t{SWALE_IOND_DIRECTORY} : 0),
                           .sealed = 0,
                           .created_ns = found.created_ns,
                           .modified_ns = found.modified_ns});
}

}  // namespace swale::capi
