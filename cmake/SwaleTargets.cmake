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

# swale_test(NAME SOURCES... DEPS... [LABEL fast|slow|long] [TIMEOUT seconds]): a GoogleTest program run by ctest as one test.
function(swale_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPS;ARGS" ${ARGN})
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
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()
