# What `cmake --install` puts where: libraries, headers, the pkg-config files and the CMake package.
# All of it can be moved to another prefix afterwards: paths are relative to the files that hold
# them. In the wheel, the lab's data comes along.

include_guard()
include(CMakePackageConfigHelpers)

set(heapfit_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/heapfit")
set(heapfit_pkgconfig_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

set(heapfit_installed heapfit heapfit_static heapfit-hardened heapfit-hardened_static)
if(HEAPFIT_POOLS)
  list(APPEND heapfit_installed heapfit-pools heapfit-pools_static)
endif()
install(TARGETS ${heapfit_installed} EXPORT heapfitTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(TARGET heapfit-record) # to be preloaded, not to be linked with
  install(TARGETS heapfit-record LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
set(heapfit_man_dir "${CMAKE_INSTALL_MANDIR}")
set(heapfit_man_sections 3 7)
if(HEAPFIT_WHEEL) # pip puts them where man looks for what belongs to the environment's programs
  set(heapfit_man_dir "${SKBUILD_DATA_DIR}/share/man")
  list(APPEND heapfit_man_sections 1) # the commands are the lab's
else()
  install(FILES "${PROJECT_SOURCE_DIR}/allocator/gdb/heapfit.py" DESTINATION "${CMAKE_INSTALL_DATADIR}/heapfit/gdb")
endif()
foreach(section IN LISTS heapfit_man_sections)
  file(GLOB pages CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/docs/man/*.${section}")
  install(FILES ${pages} DESTINATION "${heapfit_man_dir}/man${section}")
endforeach()

# ------------------------------------------------------------------ CMake package

install(EXPORT heapfitTargets NAMESPACE heapfit:: DESTINATION "${heapfit_cmake_dir}")
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/heapfitConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/package/heapfitConfig.cmake"
  INSTALL_DESTINATION "${heapfit_cmake_dir}")
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/package/heapfitConfigVersion.cmake"
  COMPATIBILITY SameMajorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/package/heapfitConfig.cmake"
  "${PROJECT_BINARY_DIR}/package/heapfitConfigVersion.cmake"
  DESTINATION "${heapfit_cmake_dir}")

# --------------------------------------------------------------------- pkg-config

if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  message(FATAL_ERROR
    "CMAKE_INSTALL_LIBDIR and CMAKE_INSTALL_INCLUDEDIR must be relative to CMAKE_INSTALL_PREFIX")
endif()
file(RELATIVE_PATH pc_prefix "/prefix/${heapfit_pkgconfig_dir}" "/prefix")
string(REGEX REPLACE "/$" "" pc_prefix "\${pcfiledir}/${pc_prefix}")
set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
foreach(pc IN ITEMS heapfit heapfit-static)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/${pc}.pc.in"
    "${PROJECT_BINARY_DIR}/package/${pc}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/package/${pc}.pc" DESTINATION "${heapfit_pkgconfig_dir}")
endforeach()

# ------------------------------------------------------------ the lab's data (wheel)

if(HEAPFIT_WHEEL)
  foreach(folder IN ITEMS workloads studies traces)
    if(IS_DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}")
      install(DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}" DESTINATION "${CMAKE_INSTALL_DATADIR}"
        PATTERN "__pycache__" EXCLUDE)
    endif()
  endforeach()
  # The sources of the PHP extension, which the PHP workloads build: beside the workloads, as in a
  # checkout.
  foreach(folder IN ITEMS allocator include integrations/php)
    get_filename_component(parent "${folder}" DIRECTORY)
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}"
      DESTINATION "${CMAKE_INSTALL_DATADIR}/${parent}"
      USE_SOURCE_PERMISSIONS
      PATTERN "tests" EXCLUDE
      PATTERN "CMakeLists.txt" EXCLUDE)
  endforeach()
  # HTTP and listening, which the ad server has from the example server.
  set(example examples/request-server)
  install(
    FILES "${example}/http.cpp" "${example}/http.hpp" "${example}/loopback.cpp" "${example}/loopback.hpp"
      "${example}/system.hpp"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/${example}")
endif()
