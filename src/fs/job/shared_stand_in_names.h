// Names of the files of SharedStandIns (shared_stand_ins.h).
#pragma once

#include <string_view>

namespace swale::fs {

inline constexpr std::string_view kIsMade = ".new";
inline constexpr std::string_view kBaseSuffix = ".base";
inline constexpr std::string_view kTailSuffix = ".tail";
inline constexpr std::string_view kPlaceSuffix = ".at";

}  // namespace swale::fs
