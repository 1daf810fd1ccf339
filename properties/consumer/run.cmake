# SPDX-License-Identifier: Apache-2.0
# cmake -DBUILD_DIR= -DSOURCE_DIR= -DWORK_DIR= -DCXX= -DCC= -P run.cmake
# Installs the build under WORK_DIR, compiles the example plug-in there with the compiler CC, then
# configures, builds and runs the consumer project against it with the compiler CXX. SOURCE_DIR is
# the root of Attest's sources. Any failure is fatal.
cmake_minimum_required(VERSION 3.25)

foreach(name BUILD_DIR SOURCE_DIR WORK_DIR CXX CC)
  if("${${name}}" STREQUAL "")
    message(FATAL_ERROR "${name} is not set")
  endif()
endforeach()

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed (${result}): ${ARGV}")
  endif()
endfunction()

# The value of a cache entry of the build (the consumer links with the same flags, sanitizers
# included).
function(cached name output)
  file(STRINGS "${BUILD_DIR}/CMakeCache.txt" line REGEX "^${name}:" LIMIT_COUNT 1)
  string(REGEX MATCH "^[^=]*=(.*)$" line "${line}")
  set(${output} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()
cached(CMAKE_GENERATOR generator)
cached(CMAKE_CXX_FLAGS flags)

# Installed in one place and moved to another: the package must be relocatable.
set(prefix "${WORK_DIR}/prefix")
file(REMOVE_RECURSE "${WORK_DIR}")
run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${WORK_DIR}/staged")
file(RENAME "${WORK_DIR}/staged" "${prefix}")

file(GLOB_RECURSE installed RELATIVE "${prefix}" "${prefix}/*")
foreach(wanted bin/attest share/doc/attest/LICENSE share/doc/attest/NOTICE include/attest/core/dtype.h
    include/attest/plugin.h libexec/attest/attest_plugin_host share/attest/examples/attention_plugin.c
    share/attest/cases/use_lite/long_L0.safetensors share/attest/cases/use_lite/NOTICE
    share/attest/cases/onnx/NOTICE share/attest/cases/onnx/test_attention_4d_with_qk_matmul/model.onnx
    share/attest/adapters/attest_adapter.py)
  if(NOT wanted IN_LIST installed)
    message(FATAL_ERROR "${wanted} was not installed")
  endif()
endforeach()
foreach(file IN LISTS installed)
  if(file MATCHES "-inl\\.h$")
    message(FATAL_ERROR "${file} is an implementation detail, but was installed")
  endif()
  if(file MATCHES "\\.cmake$")
    file(READ "${prefix}/${file}" text)
    foreach(directory "${BUILD_DIR}" "${SOURCE_DIR}" "${WORK_DIR}")
      string(FIND "${text}" "${directory}/" position)
      if(NOT position EQUAL -1)
        message(FATAL_ERROR "${file} names ${directory}")
      endif()
    endforeach()
  endif()
endforeach()
run("${prefix}/bin/attest" --help)

# The example plug-in needs a C compiler and the installed header, and the installed host loads it.
run("${CC}" -std=c99 -pedantic -Wall -Werror -O2 -fPIC -shared -I "${prefix}/include"
  "${prefix}/share/attest/examples/attention_plugin.c" -o "${WORK_DIR}/attention_plugin.so" -lm)
file(WRITE "${WORK_DIR}/requests" "{\"info\":true}\n")
execute_process(COMMAND "${prefix}/libexec/attest/attest_plugin_host" "${WORK_DIR}/attention_plugin.so"
  INPUT_FILE "${WORK_DIR}/requests" OUTPUT_VARIABLE answer RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR NOT answer MATCHES "\"name\":\"attention_plugin\"")
  message(FATAL_ERROR "the plug-in host failed (${result}): ${answer}")
endif()

run("${CMAKE_COMMAND}" -G "${generator}" -S "${SOURCE_DIR}/properties/consumer" -B "${WORK_DIR}/build"
  "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=${flags}"
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
run("${CMAKE_COMMAND}" --build "${WORK_DIR}/build")
run("${WORK_DIR}/build/consumer")
