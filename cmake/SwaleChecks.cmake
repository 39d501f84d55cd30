# The checks of the tree itself, as tests: they are quick, and each shows that it can fail.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
function(swale_check name script)
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/${script} ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS fast TIMEOUT 60)
endfunction()
swale_check(layers check-layers.py)
swale_check(layers_canary check-layers.py --self-test)
swale_check(run_tests_canary run-tests.py --self-test)
