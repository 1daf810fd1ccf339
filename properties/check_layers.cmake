# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=DIR [-DGENERATED=room/a.h;room/b.h] -P check_layers.cmake
# Reads every include of every .h and .cc of the rooms under ROOT and fails when one
#   - includes a room that its own room must not see,
#   - is quoted but not of the form "room/file" (system and library headers take <>), or
#   - names a file that does not exist, unless it is listed in GENERATED.
cmake_minimum_required(VERSION 3.25)

set(ROOMS core reference optimized audit properties experiments reports cli bench)

# What each room may include. properties/faults is a room of its own, "faults" below.
set(MAY_core core)
set(MAY_reference core reference)
set(MAY_optimized core optimized)
set(MAY_audit core reference optimized audit)
set(MAY_faults core audit faults)
set(MAY_properties core reference optimized audit properties faults experiments reports)
set(MAY_experiments core reference optimized audit experiments faults)
set(MAY_reports core reports)
set(MAY_cli core reference optimized audit faults experiments reports bench cli)
set(MAY_bench core reference optimized audit bench)

# The room of a path relative to ROOT.
function(room_of path output)
  if(path MATCHES "^properties/faults/")
    set(room faults)
  else()
    string(REGEX REPLACE "/.*" "" room "${path}")
  endif()
  set(${output} "${room}" PARENT_SCOPE)
endfunction()

# Adds "file:line: rule" to `violations`; `directive` is where in `content` it was found.
function(violation directive rule)
  string(FIND "${content}" "${directive}" position)
  string(SUBSTRING "${content}" 0 ${position} before)
  string(REGEX REPLACE "[^\n]" "" newlines "${before}")
  string(LENGTH "${newlines}" line)
  math(EXPR line "${line} + 1")
  math(EXPR count "${violation_count} + 1")
  set(violations "${violations}  ${file}:${line}: ${rule}\n" PARENT_SCOPE)
  set(violation_count ${count} PARENT_SCOPE)
endfunction()

set(violations "")
set(violation_count 0)
set(file_count 0)
set(include_count 0)
string(JOIN "|" room_pattern ${ROOMS})
# Highway's HWY_TARGET_INCLUDE is an include in all but name.
set(include_pattern "\n[ \t]*#[ \t]*(include|define[ \t]+HWY_TARGET_INCLUDE)[ \t]*")

foreach(directory IN LISTS ROOMS)
  file(GLOB_RECURSE files RELATIVE "${ROOT}" "${ROOT}/${directory}/*.h" "${ROOT}/${directory}/*.cc")
  list(FILTER files EXCLUDE REGEX "^properties/layers_fixture/")
  foreach(file IN LISTS files)
    math(EXPR file_count "${file_count} + 1")
    room_of("${file}" room)
    file(READ "${ROOT}/${file}" content)
    # Brackets, semicolons and backslashes would disturb CMake's lists; no include needs them.
    string(REGEX REPLACE "[][;\\]" " " content "\n${content}")
    string(REGEX MATCHALL "${include_pattern}([\"]|<(${room_pattern})/)[^\n]*" directives "${content}")
    foreach(directive IN LISTS directives)
      math(EXPR include_count "${include_count} + 1")
      string(REGEX REPLACE "${include_pattern}[\"<]([^\">]*)[\">].*" "\\2" included "${directive}")
      if(NOT included MATCHES "^(${room_pattern})/" OR included MATCHES "(^|/)\\.\\.?/")
        violation("${directive}" "\"${included}\" is not of the form \"room/file\"")
        continue()
      endif()
      room_of("${included}" target)
      if(NOT target IN_LIST MAY_${room})
        violation("${directive}" "${room} must not include ${target} (\"${included}\")")
      endif()
      if(NOT EXISTS "${ROOT}/${included}" AND NOT included IN_LIST GENERATED)
        violation("${directive}" "\"${included}\" does not exist")
      endif()
    endforeach()
  endforeach()
endforeach()

if(file_count EQUAL 0)
  message(FATAL_ERROR "no sources under ROOT=${ROOT}")
elseif(NOT violation_count EQUAL 0)
  message(FATAL_ERROR "${violation_count} violations of the layers:\n${violations}")
endif()
message(STATUS "${include_count} includes in ${file_count} files respect the layers")
