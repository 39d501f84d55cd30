# The clang of the presets: version 16 as in Debian 12, else 19 as in Debian 13, else the one without a
# number.
find_program(SWALE_CLANG NAMES clang-16 clang-19 clang REQUIRED)
string(REGEX REPLACE "clang([^/]*)$" "clang++\\1" SWALE_CLANGXX "${SWALE_CLANG}")
set(CMAKE_C_COMPILER "${SWALE_CLANG}")
set(CMAKE_CXX_COMPILER "${SWALE_CLANGXX}")
