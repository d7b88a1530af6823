# Installs the build, builds the example program against it, and compares what it prints with the program's own answers.
#   cmake -D BUILD=... -D WORK=... -D GENERATOR=... -D CXX=... -D WRITER=... -P this

cmake_minimum_required(VERSION 3.25)
set(prefix "${WORK}/backplane")
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")

function(run)
  execute_process(COMMAND ${ARGV} WORKING_DIRECTORY "${WORK}"
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "failed (${status}): ${ARGV}\n${output}\n${errors}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}")
run("${CMAKE_COMMAND}" -S "${prefix}/share/backplane/example" -B "${WORK}/build" -G "${GENERATOR}"
  -D "CMAKE_PREFIX_PATH=${prefix}" -D "CMAKE_CXX_COMPILER=${CXX}" -D CMAKE_BUILD_TYPE=Debug)
run("${CMAKE_COMMAND}" --build "${WORK}/build")
run("${WRITER}" "${WORK}/model.gguf")

# The same texts one at a time. The model's random weights may give bytes that are no text: they are compared too.
set(texts "Hello" "A page of keys" "once more" "x" "and a fifth")
set(expected "")
foreach(text IN LISTS texts)
  run("${prefix}/bin/backplane" run "${WORK}/model.gguf" --device cpu:f32 --raw -p "${text}" -n 16 --temperature 0)
  string(APPEND expected "${text}${output}")
endforeach()
run("${WORK}/build/complete" "${WORK}/model.gguf" cpu:f32 "${prefix}/lib/backplane/plugins" ${texts})
string(REGEX MATCH "5 texts, ([0-9]+) steps\n$" last "${output}")
if(NOT output STREQUAL "${expected}${last}" OR last STREQUAL "")
  message(FATAL_ERROR "the example says\n${output}\nand the program\n${expected}")
endif()
# Five texts of 16 tokens, four at a time: far fewer steps than one after another.
if(CMAKE_MATCH_1 GREATER 50)
  message(FATAL_ERROR "the texts were not computed together: ${last}")
endif()
file(REMOVE_RECURSE "${WORK}")
