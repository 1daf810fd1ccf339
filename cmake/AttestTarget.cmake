# SPDX-License-Identifier: Apache-2.0
# How a room of the project is compiled.

# -ffp-contract=off: g++ fuses even intrinsic mul + add without it, and every
# derived bound counts roundings.
set(ATTEST_COMPILE_OPTIONS -ffp-contract=off -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns of overlapping copies inside std::string's operator+ (GCC bug 105651), and of loops
  # that would run 2^54 times if their bounds, which are arguments, were as large as a size can be.
  list(APPEND ATTEST_COMPILE_OPTIONS -Wno-restrict -Wno-aggressive-loop-optimizations)
endif()
if(ATTEST_WERROR)
  list(APPEND ATTEST_COMPILE_OPTIONS -Werror)
endif()

# attest_room(NAME SOURCES files... DEPENDS public libraries... PRIVATE libraries...)
# adds the static library attest_NAME, known to consumers as attest::NAME.
function(attest_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPENDS;PRIVATE" ${ARGN})
  add_library(attest_${name} STATIC ${ROOM_SOURCES})
  add_library(attest::${name} ALIAS attest_${name})
  set_target_properties(attest_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_options(attest_${name} PRIVATE ${ATTEST_COMPILE_OPTIONS})
  if(ATTEST_BUILD_FUZZERS)
    target_compile_options(attest_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
  endif()
  target_compile_features(attest_${name} PUBLIC cxx_std_20)
  target_include_directories(attest_${name} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/attest>")
  target_link_libraries(attest_${name} PUBLIC ${ROOM_DEPENDS} PRIVATE ${ROOM_PRIVATE})
endfunction()
