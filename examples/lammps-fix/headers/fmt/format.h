// Names that LAMMPS's headers take from the version of {fmt} that LAMMPS is compiled with. Debian installs
// those headers without it, and the system's {fmt} has other names. The headers only declare functions with
// them, which this folder's code does not call: declarations suffice.
//
// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
#ifndef EXAMPLES_LAMMPS_FIX_HEADERS_FMT_FORMAT_H_
#define EXAMPLES_LAMMPS_FIX_HEADERS_FMT_FORMAT_H_

namespace fmt {

class string_view;
class format_args;
template <typename... Args, typename S>
format_args make_args_checked(const S& format, const Args&... args);
template <typename... Args>
format_args make_format_args(const Args&... args);

}  // namespace fmt

#endif  // EXAMPLES_LAMMPS_FIX_HEADERS_FMT_FORMAT_H_
