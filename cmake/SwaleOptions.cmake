# Build options, each with the reason it exists.
option(SWALE_TESTS "Build the tests" ON)
option(SWALE_BENCH "Build the benchmarks" ON)
option(SWALE_EXAMPLES "Build the examples whose needs (MPI, LAMMPS) are found" ON)
option(SWALE_FUZZ "Build the libFuzzer targets (clang only)" OFF)
# A new compiler has new warnings, some of them false: they stop the build only with compilers that CI has.
string(REGEX MATCH "^[0-9]+" compiler_major "${CMAKE_CXX_COMPILER_VERSION}")
set(tested_compilers "GNU 12" "GNU 14" "Clang 16")
set(compiler_is_tested OFF)
if("${CMAKE_CXX_COMPILER_ID} ${compiler_major}" IN_LIST tested_compilers)
  set(compiler_is_tested ON)
endif()
option(SWALE_WERROR "Warnings are errors (default: with the compilers that are tested)" ${compiler_is_tested})
set(SWALE_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize= (e.g. address,undefined or thread)")

add_library(swale_build_flags INTERFACE)
target_compile_options(swale_build_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual
  $<$<BOOL:${SWALE_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Kilobytes before gcc begins to collect garbage: a tenth of its time, for some 200 MB.
  target_compile_options(swale_build_flags INTERFACE "SHELL:--param ggc-min-heapsize=524288")
  # A source of more than so many instructions may grow by 40 % only by inlining. With gcc's 10,000 the calls
  # that go last are those of a record's hot path, when sources compile together: 3 % more instructions a
  # record.
  target_compile_options(swale_build_flags INTERFACE $<$<CONFIG:Release>:--param=large-unit-insns=1000000>)
  # gcc 12 warns of overlapping copies in its own std::string where CLI11 is inlined (gcc's bug 105651): 150
  # lines in a build.
  target_compile_options(swale_build_flags INTERFACE $<$<CONFIG:Release>:-Wno-restrict>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(swale_build_flags INTERFACE -Wthread-safety)
endif()
if(SWALE_SANITIZE)
  target_compile_options(swale_build_flags INTERFACE -fsanitize=${SWALE_SANITIZE} -fno-omit-frame-pointer -g)
  target_link_options(swale_build_flags INTERFACE -fsanitize=${SWALE_SANITIZE})
  if(SWALE_SANITIZE MATCHES "undefined")
    target_compile_options(swale_build_flags INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()
# Whether a test may define operator new itself: the run-time of ThreadSanitizer defines it, too, and wins.
if(SWALE_SANITIZE MATCHES "thread")
  set(SWALE_CAN_REPLACE_NEW OFF)
else()
  set(SWALE_CAN_REPLACE_NEW ON)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
