# The network: ports and shared memory of jobs on one node. Frames of strangers are tried in
# src/net/fabric/strangers_test.cc, planted folders in src/net/meeting/rendezvous_base_test.cc.
set(library "")
if(NOT SWALE_SANITIZE)  # clients of I/O servers load the library into Python, which has no sanitizer
  set(library $<TARGET_FILE:swale>)
endif()
add_test(NAME security_net_ports
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/net_ports_test.py $<TARGET_FILE:fault_writer>
    $<TARGET_FILE:meta_ranks> $<TARGET_FILE:swale_cli> ${library})
set_tests_properties(security_net_ports PROPERTIES LABELS fast TIMEOUT 900)

# security_net_mpi_ports(IMPLEMENTATION LAUNCHER): the same under an MPI, which has ports of its own.
function(security_net_mpi_ports implementation launcher)
  find_program(MPICC_${implementation} mpicc.${implementation})
  find_program(LAUNCHER_${implementation} ${launcher})
  if(NOT MPICC_${implementation} OR NOT LAUNCHER_${implementation} OR SWALE_SANITIZE)
    message(STATUS "tests/security: the look at ports under ${implementation} is skipped (needs "
      "mpicc.${implementation}, ${launcher}, no sanitizer)")
    return()
  endif()
  set(program ${CMAKE_CURRENT_BINARY_DIR}/net_mpi_ports-${implementation})
  add_custom_command(OUTPUT ${program}
    COMMAND ${MPICC_${implementation}} -std=gnu11 -O2 -Wall -Wextra $<$<BOOL:${SWALE_WERROR}>:-Werror>
    -I${PROJECT_SOURCE_DIR}/include
      ${CMAKE_CURRENT_SOURCE_DIR}/net_mpi_ports.c $<TARGET_FILE:swale> -Wl,-rpath,$<TARGET_FILE_DIR:swale> -o
      ${program}
    DEPENDS swale net_mpi_ports.c ${PROJECT_SOURCE_DIR}/include/swale/swale.h
    ${PROJECT_SOURCE_DIR}/include/swale/swale_mpi.h
    COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(net_mpi_ports_${implementation} ALL DEPENDS ${program})
  add_test(NAME security_net_mpi_ports_${implementation}
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/net_mpi_ports_test.sh ${program}
    ${LAUNCHER_${implementation}} -n 4)
  set_tests_properties(security_net_mpi_ports_${implementation} PROPERTIES LABELS slow TIMEOUT 300
    PROCESSORS 2)
endfunction()
security_net_mpi_ports(openmpi mpirun.openmpi)
security_net_mpi_ports(mpich mpiexec.mpich)
