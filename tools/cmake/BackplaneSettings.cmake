# Compiler settings shared by every target of the project, and the layout of the build tree.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

# The build tree mirrors an installation, so that the program finds its plugins the same way in both.
set(BACKPLANE_PLUGIN_DIR "lib/backplane/plugins")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(BACKPLANE_PLUGIN_OUTPUT_DIR "${PROJECT_BINARY_DIR}/${BACKPLANE_PLUGIN_DIR}")

find_program(BACKPLANE_CCACHE ccache)
if(BACKPLANE_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER "${BACKPLANE_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${BACKPLANE_CCACHE}")
endif()

# For C and C++ only: nvcc has options of its own.
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow>")
if(BACKPLANE_WERROR)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Werror>")
endif()
# g++ clears and copies structs of some hundred bytes with `rep` instructions, which take longer to begin than the work
# takes; the calls of a step are full of such structs.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:C,CXX>:-mmemset-strategy=libcall:-1:noalign;-mmemcpy-strategy=libcall:-1:noalign>")
endif()
if(BACKPLANE_SANITIZE)
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${BACKPLANE_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  # g++ then warns of the standard library's own code, std::regex for one.
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>")
  add_link_options(-fsanitize=${BACKPLANE_SANITIZE})
endif()

find_package(Threads REQUIRED)

# backplane_library(NAME SOURCES... ): a static library of the project, included from the repository root.
function(backplane_library name)
  add_library(${name} STATIC ${ARGN})
  add_library(Backplane::${name} ALIAS ${name})
  target_include_directories(${name} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/backplane>")
endfunction()

# backplane_test(NAME LABEL label SOURCES ... LIBRARIES ...): a GoogleTest program whose cases CTest lists one by one.
function(backplane_test name)
  cmake_parse_arguments(arg "" "LABEL" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    BACKPLANE_SOURCE_DIR="${PROJECT_SOURCE_DIR}" BACKPLANE_PLUGIN_OUTPUT_DIR="${BACKPLANE_PLUGIN_OUTPUT_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  gtest_discover_tests(${name} PROPERTIES LABELS "${arg_LABEL}" DISCOVERY_TIMEOUT 60)
endfunction()
