# In the preset "checked": for all but the layers and the simulator, which the tests keep busy. A third less
# to compile. (Half-optimised, gcc warns of variables that it has not seen to be set.)
set(SWALE_QUICK_TO_COMPILE)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(SWALE_QUICK_TO_COMPILE $<$<CONFIG:RelWithDebInfo>:-O1>
    $<$<CONFIG:RelWithDebInfo>:-Wno-maybe-uninitialized>)
endif()

# swale_layer(NAME SOURCES... [DEPS targets...]): one folder of src/ as an object library swale_NAME.
# Every *_test.cc beside the sources becomes part of the test program NAME_test, labelled "fast".
function(swale_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;TEST_SOURCES;TEST_DEPS" ${ARGN})
  add_library(swale_${name} STATIC ${ARG_SOURCES})
  target_include_directories(swale_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(swale_${name} PUBLIC ${ARG_DEPS} PRIVATE swale_build_flags)
  if(SWALE_TESTS AND ARG_TEST_SOURCES)
    swale_test(${name}_test SOURCES ${ARG_TEST_SOURCES} DEPS swale_${name} ${ARG_TEST_DEPS})
  endif()
endfunction()

# swale_test(NAME SOURCES... DEPS... [LABEL fast|slow|long] [TIMEOUT seconds] [COST seconds]): a GoogleTest
# program run by ctest as one test. With a cost it starts among the first, so that no long one runs alone at
# the end.
function(swale_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT;COST" "SOURCES;DEPS;ARGS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL fast)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)  # ends what hangs; a machine with a load of 8 takes minutes for the largest
  endif()
  if(SWALE_SANITIZE)  # up to twenty times slower
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 10")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main swale_build_flags)
  target_compile_options(${name} PRIVATE ${SWALE_QUICK_TO_COMPILE})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
  if(ARG_COST)
    set_tests_properties(${name} PROPERTIES COST ${ARG_COST})
  endif()
endfunction()
