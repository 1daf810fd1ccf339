# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` lays down: the libraries and headers of the rooms that others may link, the
# attest command, what plug-ins need, the real-activation cases, and a package for find_package(Attest).
include(CMakePackageConfigHelpers)

set(ATTEST_INSTALL_ROOMS core reference optimized audit)
set(ATTEST_CONFIG_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/Attest")

# How a consumer finds the package of a namespace; the Find modules of cmake/ are installed beside.
set(ATTEST_FIND_nlohmann_json "nlohmann_json 3.11")
set(ATTEST_FIND_fmt "fmt 9")
set(ATTEST_FIND_OpenSSL "OpenSSL COMPONENTS Crypto")
set(ATTEST_FIND_Threads "Threads")
set(ATTEST_FIND_hwy "hwy")
set(ATTEST_FIND_MPFR "MPFR")
set(ATTEST_FIND_Arb "Arb")
set(ATTEST_FIND_LibZip "LibZip")
set(ATTEST_FIND_Boost "Boost 1.74")
set(ATTEST_FIND_Eigen3 "Eigen3 3.4 NO_MODULE")

set(ATTEST_FIND_DEPENDENCIES "")
foreach(room IN LISTS ATTEST_INSTALL_ROOMS)
  # A header-only library that a room uses in its own .cc files alone is no consumer's business.
  get_target_property(links attest_${room} INTERFACE_LINK_LIBRARIES)
  if(NOT links)
    set(links "")
  endif()
  list(FILTER links EXCLUDE REGEX "LINK_ONLY:(Boost|CLI11|Eigen3|Random123|nlohmann_json)::")
  set_property(TARGET attest_${room} PROPERTY INTERFACE_LINK_LIBRARIES "${links}")

  string(REGEX MATCHALL "[A-Za-z0-9_]+::" namespaces "${links}")
  list(TRANSFORM namespaces REPLACE "::" "")
  list(REMOVE_ITEM namespaces attest)
  foreach(namespace IN LISTS namespaces)
    if(NOT DEFINED ATTEST_FIND_${namespace})
      message(FATAL_ERROR "attest_${room} links ${namespace}::; say in AttestInstall.cmake how to find it")
    endif()
    string(APPEND ATTEST_FIND_DEPENDENCIES "find_dependency(${ATTEST_FIND_${namespace}})\n")
  endforeach()

  install(TARGETS attest_${room} EXPORT AttestTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/${room}/"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/attest/${room}"
    FILES_MATCHING PATTERN "*.h" PATTERN "*-inl.h" EXCLUDE PATTERN "abi" EXCLUDE
    PATTERN "onnx_*.h" EXCLUDE)
endforeach()
string(REGEX MATCHALL "[^\n]+" ATTEST_FIND_DEPENDENCIES "${ATTEST_FIND_DEPENDENCIES}")
list(REMOVE_DUPLICATES ATTEST_FIND_DEPENDENCIES)
list(JOIN ATTEST_FIND_DEPENDENCIES "\n" ATTEST_FIND_DEPENDENCIES)

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/AttestConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/AttestConfig.cmake" INSTALL_DESTINATION "${ATTEST_CONFIG_DIR}"
  NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/AttestConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(EXPORT AttestTargets NAMESPACE attest:: DESTINATION "${ATTEST_CONFIG_DIR}")
install(FILES
  "${PROJECT_BINARY_DIR}/AttestConfig.cmake"
  "${PROJECT_BINARY_DIR}/AttestConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindArb.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindLibZip.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindMPFR.cmake"
  DESTINATION "${ATTEST_CONFIG_DIR}")

install(TARGETS attest RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
# What writers of plug-ins need, and the program that hosts plug-ins.
install(FILES "${PROJECT_SOURCE_DIR}/audit/abi/attest/plugin.h"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/attest")
install(FILES "${PROJECT_SOURCE_DIR}/audit/examples/attention_plugin.c"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/attest/examples")
install(TARGETS attest_plugin_host RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/attest")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/NOTICE"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/attest")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/audit/adapters/"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/attest/adapters"
  FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/cases/" DESTINATION "${CMAKE_INSTALL_DATADIR}/attest/cases"
  FILES_MATCHING
    PATTERN "*.safetensors" PATTERN "*.onnx" PATTERN "*.pb" PATTERN "NOTICE" PATTERN "README.md"
    PATTERN "sentences.json"
    PATTERN "node_modules" EXCLUDE)
