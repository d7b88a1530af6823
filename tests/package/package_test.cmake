# Installs the build to a new prefix, builds the installed template there as an author would, and checks that the loader
# and the installed program find it. All paths have spaces in them.
#   cmake -D BUILD=... -D WORK=... -D GENERATOR=... -D CC=... -D CXX=... -D LISTER=... -P package_test.cmake

set(prefix "${WORK}/an installation")
set(plugin "${WORK}/my plugin")
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "failed (${status}): ${ARGV}\n${output}\n${errors}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}")
foreach(file share/backplane/LICENSE share/backplane/GUIDE.md share/backplane/template/template.cc
        include/backplane/backplane_plugin.h include/backplane/backplane_plugin.hpp)
  if(NOT EXISTS "${prefix}/${file}")
    message(FATAL_ERROR "not installed: ${file}")
  endif()
endforeach()

# The header by itself, in both languages.
set(strict -Wall -Wextra -Wpedantic -Werror -fsyntax-only "-I${prefix}/include/backplane")
run("${CC}" -std=c11 ${strict} "${CMAKE_CURRENT_LIST_DIR}/header.c")
run("${CXX}" -std=c++20 ${strict} "${CMAKE_CURRENT_LIST_DIR}/header.cc")

file(COPY "${prefix}/share/backplane/template/" DESTINATION "${plugin}")
run("${CMAKE_COMMAND}" -S "${plugin}" -B "${plugin}/build" -G "${GENERATOR}" "-DCMAKE_PREFIX_PATH=${prefix}"
  "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Wshadow -Werror")
run("${CMAKE_COMMAND}" --build "${plugin}/build")

run("${LISTER}" "${plugin}/build")
if(NOT output MATCHES "(^|\n)template:0 available\n")
  message(FATAL_ERROR "the loader doesn't find the plugin built out of tree:\n${output}")
endif()

# Installed beside the others, it is found without --plugin.
run("${CMAKE_COMMAND}" --install "${plugin}/build" --prefix "${prefix}")
set(program "${prefix}/bin/backplane")
if(EXISTS "${program}")
  foreach(options "" "--plugin;${plugin}/build")
    run("${program}" devices --json ${options})
    string(JSON count LENGTH "${output}" devices)
    set(found OFF)
    math(EXPR last "${count} - 1")
    foreach(i RANGE ${last})
      string(JSON name GET "${output}" devices ${i} name)
      string(JSON available GET "${output}" devices ${i} available)
      if(name STREQUAL "template:0" AND available)
        set(found ON)
      endif()
    endforeach()
    if(NOT found)
      message(FATAL_ERROR "the installed program doesn't list template:0 as available:\n${output}")
    endif()
  endforeach()
endif()
file(REMOVE_RECURSE "${WORK}")
