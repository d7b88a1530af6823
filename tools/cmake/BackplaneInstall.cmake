# What an installation holds beside the program (tools/) and its plugins (backplane_add_plugin): all that the author of
# another plugin needs, which is headers, a CMake package, the template and the guide.

include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Backplane")
set(share_dir "${CMAKE_INSTALL_DATADIR}/backplane")

install(TARGETS abi sdk EXPORT BackplaneTargets)
install(EXPORT BackplaneTargets NAMESPACE Backplane:: DESTINATION "${package_dir}")
install(DIRECTORY plugins/abi/ plugins/sdk/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/backplane"
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "released" EXCLUDE)

configure_package_config_file(tools/cmake/BackplaneConfig.cmake.in "${PROJECT_BINARY_DIR}/BackplaneConfig.cmake"
  INSTALL_DESTINATION "${package_dir}" PATH_VARS share_dir NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/BackplaneConfigVersion.cmake"
  VERSION "${PROJECT_VERSION}" COMPATIBILITY SameMajorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/BackplaneConfig.cmake" "${PROJECT_BINARY_DIR}/BackplaneConfigVersion.cmake"
  tools/cmake/BackplaneAddPlugin.cmake
  DESTINATION "${package_dir}")

install(DIRECTORY plugins/template DESTINATION "${share_dir}")
install(FILES plugins/GUIDE.md plugins/VERSIONING.md LICENSE DESTINATION "${share_dir}")
