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

# The same texts one at a time. The model's random weights give bytes that are no text, so that only files can hold them.
file(WRITE "${WORK}/one_by_one.sh" [=[
for text in "Hello" "A page of keys" "once more" "x" "and a fifth"; do
  printf %s "$text"
  "$1" run "$2" --device cpu:f32 --raw -p "$text" -n 16 --temperature 0 || exit 1
done > "$3"
]=])
run(sh "${WORK}/one_by_one.sh" "${prefix}/bin/backplane" "${WORK}/model.gguf" "${WORK}/expected.txt")
execute_process(COMMAND "${WORK}/build/complete" "${WORK}/model.gguf" cpu:f32 "${prefix}/lib/backplane/plugins"
  "Hello" "A page of keys" "once more" "x" "and a fifth"
  OUTPUT_FILE "${WORK}/got.txt" ERROR_VARIABLE errors RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR NOT errors MATCHES "5 texts, ([0-9]+) steps")
  message(FATAL_ERROR "the example failed (${status}): ${errors}")
endif()
# Five texts of 16 tokens, four at a time: far fewer steps than one after another.
if(CMAKE_MATCH_1 GREATER 50)
  message(FATAL_ERROR "the texts were not computed together: ${errors}")
endif()
file(SIZE "${WORK}/got.txt" size)
if(size LESS 100)
  message(FATAL_ERROR "the example wrote only ${size} bytes")
endif()
run("${CMAKE_COMMAND}" -E compare_files "${WORK}/expected.txt" "${WORK}/got.txt")
file(REMOVE_RECURSE "${WORK}")
