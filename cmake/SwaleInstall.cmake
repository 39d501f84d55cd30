# What `cmake --install` puts where. The tree can be moved as a whole: the modules are found from libswale's
# own folder, the CMake package and swale.pc from theirs. Components: Runtime (what a compiled program needs),
# Development, Tools, Documentation. docs/design/installation.md tells why it is laid out so.
include(CMakePackageConfigHelpers)

# All that is installed, and no more: benchmarks, examples and the simulator stay unbuilt.
add_custom_target(swale_installed DEPENDS swale swale_tls swale_ucx swale_preload swale_cli)
if(TARGET swale_man)
  add_dependencies(swale_installed swale_man)
endif()

set(SWALE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/swale)

install(TARGETS swale EXPORT swale
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Runtime NAMELINK_COMPONENT Development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# In a folder with the version in its name: libswale.so.0 and a later libswale.so.1 may stand side by side,
# each with the modules of its own build.
install(TARGETS swale_tls swale_ucx
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/swale-${PROJECT_VERSION} COMPONENT Runtime)
install(TARGETS swale_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT Tools)
# For `swale run --preload`, of the same release.
install(TARGETS swale_preload
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/swale-${PROJECT_VERSION} COMPONENT Tools)

# A script: it needs Python and matplotlib only when it is run, and says so.
install(PROGRAMS tools/swale-stats-plot DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT Tools)
install(FILES tools/swale-stats-plot.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT Tools)

# The Fortran modules are installed as sources: .mod files belong to one compiler, and often to one version of
# it.
install(DIRECTORY include/swale DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT Development
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "*.f90")

install(EXPORT swale NAMESPACE swale:: FILE swaleTargets.cmake DESTINATION ${SWALE_CMAKE_DIR}
  COMPONENT Development)
configure_package_config_file(cmake/swaleConfig.cmake.in ${PROJECT_BINARY_DIR}/install/swaleConfig.cmake
  INSTALL_DESTINATION ${SWALE_CMAKE_DIR} PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
# The major version changes when callers must (swale.h).
write_basic_package_version_file(${PROJECT_BINARY_DIR}/install/swaleConfigVersion.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/install/swaleConfig.cmake
  ${PROJECT_BINARY_DIR}/install/swaleConfigVersion.cmake
  DESTINATION ${SWALE_CMAKE_DIR} COMPONENT Development)

# swale.pc says where it is by where it lies, except in /usr, where pkg-config knows the folders of the system
# only by their plain names.
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(SWALE_PC_PREFIX /usr)
else()
  file(RELATIVE_PATH SWALE_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(REGEX REPLACE "/$" "" SWALE_PC_PREFIX "\${pcfiledir}/${SWALE_PC_PREFIX}")
endif()
configure_file(cmake/swale.pc.in ${PROJECT_BINARY_DIR}/install/swale.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/install/swale.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT Development)

# Man pages and completions come from the command itself (target swale_man), where that target exists.
foreach(section 1 3 5 7)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section}
    COMPONENT Tools OPTIONAL
    FILES_MATCHING PATTERN "*.${section}")
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/completion/swale.bash RENAME swale
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT Tools OPTIONAL)
install(FILES ${PROJECT_BINARY_DIR}/completion/_swale
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT Tools OPTIONAL)
install(FILES ${PROJECT_BINARY_DIR}/completion/swale.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT Tools OPTIONAL)

# They name the command where this is installed to.
foreach(unit swale-tier@.service swale-tree@.service)
  install(CODE "set(BIN \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
    configure_file(\"${PROJECT_SOURCE_DIR}/packaging/systemd/${unit}\"
      \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/system/${unit}\" @ONLY)" COMPONENT Tools)
endforeach()

install(FILES LICENSE README.md CHANGELOG.md SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR}
  COMPONENT Documentation)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT Documentation
  FILES_MATCHING PATTERN "*.md" PATTERN "*.png" PATTERN "*.svg" PATTERN "*.csv")
# Where the pages look for them.
install(FILES packaging/systemd/swale-scratch.service DESTINATION ${CMAKE_INSTALL_DOCDIR}/packaging/systemd
  COMPONENT Documentation)
install(FILES examples/mpi/particles.c DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples/mpi
  COMPONENT Documentation)
install(FILES examples/fortran/particles.f90 DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples/fortran
  COMPONENT Documentation)
install(DIRECTORY examples/guide DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT Documentation)
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\"
  \"-DFOLDER=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}\"
  -P \"${PROJECT_SOURCE_DIR}/cmake/InstalledLinks.cmake\"
  COMMAND_ERROR_IS_FATAL ANY)" COMPONENT Documentation)
