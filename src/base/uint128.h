// Uint128: the compiler's 128-bit integer, which strict ISO mode accepts only when it is marked as an
// extension.
#pragma once

namespace swale {

__extension__ typedef unsigned __int128 Uint128;

}  // namespace swale
