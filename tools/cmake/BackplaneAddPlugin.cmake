# backplane_add_plugin(NAME SOURCES file... DESCRIPTION "text" [LIBRARIES target...] [TUNE what...])
#
# Builds the plugin NAME: a loadable library backplane_NAME.so that exports its entry point and nothing else, with its
# manifest backplane_NAME.json beside it, both installed to lib/backplane/plugins. The target is called backplane_NAME.
# Backplane's own backends use it, and so do plugins elsewhere after find_package(Backplane). The files go to
# BACKPLANE_PLUGIN_OUTPUT_DIR where that is set, otherwise to CMAKE_LIBRARY_OUTPUT_DIRECTORY or the build folder.
# TUNE is what is worth trying on a machine: "threads", and options of the devices, such as "kernels=AVX2".

include_guard(GLOBAL)

# The major version of the contract, from the header itself; the installed package sets it.
if(NOT DEFINED BACKPLANE_ABI_MAJOR)
  set(_backplane_header "${CMAKE_CURRENT_LIST_DIR}/../../plugins/abi/backplane_plugin.h")
  file(STRINGS "${_backplane_header}" _backplane_line REGEX "^#define BP_ABI_MAJOR [0-9]+$")
  string(REGEX MATCH "[0-9]+$" BACKPLANE_ABI_MAJOR "${_backplane_line}")
endif()
set_property(GLOBAL PROPERTY BACKPLANE_ABI_MAJOR "${BACKPLANE_ABI_MAJOR}")

# Where the files of a plugin are installed, from the prefix.
function(_backplane_install_dir result)
  if(DEFINED BACKPLANE_PLUGIN_DIR)
    set(${result} "${BACKPLANE_PLUGIN_DIR}" PARENT_SCOPE)
  else()
    set(${result} "lib/backplane/plugins" PARENT_SCOPE)
  endif()
endfunction()

function(_backplane_output_dir result)
  if(DEFINED BACKPLANE_PLUGIN_OUTPUT_DIR)
    set(${result} "${BACKPLANE_PLUGIN_OUTPUT_DIR}" PARENT_SCOPE)
  elseif(DEFINED CMAKE_LIBRARY_OUTPUT_DIRECTORY)
    set(${result} "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}" PARENT_SCOPE)
  else()
    set(${result} "${CMAKE_BINARY_DIR}" PARENT_SCOPE)
  endif()
endfunction()

# Writes the manifest of a plugin whose library is FILE to PATH; further arguments are what is worth trying.
function(backplane_write_manifest path name file description)
  get_property(major GLOBAL PROPERTY BACKPLANE_ABI_MAJOR)
  string(REPLACE "\\" "\\\\" text "${description}")
  string(REPLACE "\"" "\\\"" text "${text}")
  set(tune "")
  if(ARGN)
    string(REPLACE ";" "\", \"" tune "${ARGN}")
    set(tune ",\n  \"tune\": [\"${tune}\"]")
  endif()
  file(CONFIGURE OUTPUT "${path}" @ONLY CONTENT
    "{\n  \"name\": \"@name@\",\n  \"abi_major\": @major@,\n  \"file\": \"@file@\",\n  \"description\": \"@text@\"@tune@\n}\n")
endfunction()

function(backplane_add_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "DESCRIPTION" "SOURCES;LIBRARIES;TUNE")
  if(NOT name MATCHES "^[A-Za-z0-9_-]+$")
    message(FATAL_ERROR "backplane_add_plugin: the name '${name}' has other characters than letters, digits, _ and -")
  endif()
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES OR NOT arg_DESCRIPTION)
    message(FATAL_ERROR "backplane_add_plugin(${name}): give SOURCES and DESCRIPTION, and nothing unknown")
  endif()

  set(target backplane_${name})
  add_library(${target} MODULE ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE Backplane::sdk ${arg_LIBRARIES})
  _backplane_output_dir(folder)
  set_target_properties(${target} PROPERTIES
    PREFIX "" SUFFIX ".so" LIBRARY_OUTPUT_DIRECTORY "$<1:${folder}>"
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    set(script "${CMAKE_CURRENT_BINARY_DIR}/manifest/${target}.map")  # also hides what the C++ library would export
    file(CONFIGURE OUTPUT "${script}" CONTENT "{ global: backplane_plugin_v*; local: *; };\n")
    target_link_options(${target} PRIVATE "LINKER:--version-script=${script}")
    if(NOT BACKPLANE_SANITIZE)  # a sanitizer's own symbols come from the program
      target_link_options(${target} PRIVATE "LINKER:--no-undefined")
    endif()
  endif()

  # The manifest appears together with the library, never before it: a plugin that isn't built yet is not listed.
  set(manifest "${CMAKE_CURRENT_BINARY_DIR}/manifest/${target}.json")
  backplane_write_manifest("${manifest}" "${name}" "${target}.so" "${arg_DESCRIPTION}" ${arg_TUNE})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${manifest}")
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM
    COMMAND "${CMAKE_COMMAND}" -E copy "${manifest}" "${folder}/${target}.json")

  if(NOT BACKPLANE_PLUGIN_SKIP_INSTALL)
    _backplane_install_dir(destination)
    install(TARGETS ${target} LIBRARY DESTINATION "${destination}")
    install(FILES "${manifest}" DESTINATION "${destination}")
  endif()
endfunction()
