# What an installation holds beside the program (tools/) and its plugins (backplane_add_plugin): what the author of
# another plugin needs, which is headers, a CMake package, the template and the guide; and the engine as a library for
# programs that embed it.

include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Backplane")
set(share_dir "${CMAKE_INSTALL_DATADIR}/backplane")

install(TARGETS abi sdk EXPORT BackplaneTargets)
install(EXPORT BackplaneTargets NAMESPACE Backplane:: DESTINATION "${package_dir}")
install(DIRECTORY plugins/abi/ plugins/sdk/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/backplane"
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "released" EXCLUDE)

# find_package(Backplane COMPONENTS engine) gives the target Backplane::backplane. Its headers are included as they are
# here: core/engine/service.h, models/load.h, plugins/host/registry.h.
add_library(embedded INTERFACE)
set_target_properties(embedded PROPERTIES EXPORT_NAME backplane)
target_link_libraries(embedded INTERFACE models engine formats jinja plugin_host)
install(TARGETS embedded base text jinja formats kv sched device sample engine models plugin_host
  EXPORT BackplaneEngineTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}/backplane")
install(EXPORT BackplaneEngineTargets NAMESPACE Backplane:: DESTINATION "${package_dir}")
install(DIRECTORY core models DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/backplane" FILES_MATCHING PATTERN "*.h")
install(DIRECTORY plugins/abi plugins/host DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/backplane/plugins"
  FILES_MATCHING PATTERN "*.h" PATTERN "released" EXCLUDE)
install(DIRECTORY tools/example DESTINATION "${share_dir}")

configure_package_config_file(tools/cmake/BackplaneConfig.cmake.in "${PROJECT_BINARY_DIR}/BackplaneConfig.cmake"
  INSTALL_DESTINATION "${package_dir}" PATH_VARS share_dir)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/BackplaneConfigVersion.cmake"
  VERSION "${PROJECT_VERSION}" COMPATIBILITY SameMajorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/BackplaneConfig.cmake" "${PROJECT_BINARY_DIR}/BackplaneConfigVersion.cmake"
  tools/cmake/BackplaneAddPlugin.cmake
  DESTINATION "${package_dir}")

install(DIRECTORY plugins/template DESTINATION "${share_dir}")
install(FILES plugins/GUIDE.md plugins/VERSIONING.md LICENSE DESTINATION "${share_dir}")
