# SPDX-License-Identifier: Apache-2.0
# Layers, the tables that are generated from file stems, the program, and installation.

# tessera_add_layer(<name> LEVEL <n> [DEPENDS <layer>...] [LINK <lib>...] [PRIVATE <lib>...] [BACKENDS])
# The static library tessera_<name> (alias tessera::<name>) from src/<name>/**/*.cpp, or an INTERFACE
# library while there is no source. ops takes kernels/ as well. With BACKENDS, src/<name>/backends/<x>.cpp
# is built unless the <x>.cmake beside it switches it off.
function(tessera_add_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "BACKENDS" "LEVEL" "DEPENDS;LINK;PRIVATE")
  set(target tessera_${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${name}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/src/cli/main\\.cpp$")
  if(name STREQUAL "ops")
    tessera_kernel_sources(kernels)
    list(APPEND sources ${kernels})
  endif()
  if(arg_BACKENDS)
    list(FILTER sources EXCLUDE REGEX "/src/${name}/backends/")
    tessera_find_backends(${name} stems backend_sources backend_libraries)
    list(APPEND sources ${backend_sources})
    list(APPEND arg_PRIVATE ${backend_libraries})
  endif()

  if(sources)
    add_library(${target} STATIC ${sources})
    set(visibility PUBLIC)
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src/${name}")
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:tessera_options> ${arg_PRIVATE})
    if(TESSERA_OPENMP)
      target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX)
    endif()
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  else()
    add_library(${target} INTERFACE)
    set(visibility INTERFACE)
  endif()
  add_library(tessera::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} ${visibility} cxx_std_20)
  target_include_directories(${target} ${visibility}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} ${visibility} ${arg_LINK})
  if(name STREQUAL "core" AND TESSERA_CUDA)
    target_compile_definitions(${target} ${visibility} TESSERA_CUDA=1)
  endif()
  foreach(lower IN LISTS arg_DEPENDS)
    get_property(lower_level GLOBAL PROPERTY TESSERA_LEVEL_${lower})
    if("${lower_level}" STREQUAL "" OR NOT lower_level LESS arg_LEVEL)
      message(FATAL_ERROR "${name} (level ${arg_LEVEL}) depends on ${lower}, which is not a lower layer")
    endif()
    target_link_libraries(${target} ${visibility} tessera_${lower})
  endforeach()

  if(sources AND name STREQUAL "ops")
    tessera_configure_kernels(${target})
  endif()
  if(sources AND arg_BACKENDS)
    tessera_write_stem_table(${target} TESSERA_COMM_BACKENDS src/${name}/backends "${stems}")
  endif()
  set_property(GLOBAL PROPERTY TESSERA_LEVEL_${name} ${arg_LEVEL})
  set_property(GLOBAL PROPERTY TESSERA_DEPENDS_${name} ${arg_DEPENDS})
  set_property(GLOBAL APPEND PROPERTY TESSERA_LAYERS ${name})
endfunction()

# The kernel files of this build.
function(tessera_kernel_sources out)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/kernels/cpu/*.cpp")
  if(TESSERA_CUDA)
    file(GLOB cuda CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu")
    list(APPEND sources ${cuda})
  endif()
  set(${out} "${sources}" PARENT_SCOPE)
endfunction()

# CPU kernels are compiled for the baseline, AVX2 and AVX-512 on x86 and for NEON on ARM. The targets
# left out would double the time to compile and run nothing measurably faster.
function(tessera_configure_kernels target)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(${target} PRIVATE "HWY_DISABLED_TARGETS=(\
HWY_SSSE3|HWY_SSE4|HWY_AVX3_DL|HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)")
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  if(sources)
    find_package(CUDAToolkit REQUIRED)
    target_link_libraries(${target} PRIVATE CUDA::cudart CUDA::cublasLt)
    # Files named *_sm90.cu use instructions that only the architecture-specific target has.
    list(FILTER sources INCLUDE REGEX "_sm90\\.cu$")
    set_source_files_properties(${sources} PROPERTIES
      COMPILE_OPTIONS "-gencode=arch=compute_90a,code=sm_90a")
  endif()
endfunction()

# Reads <x>.cmake beside each backend <x>.cpp. The file finds its library and may set
#   TESSERA_BACKEND_ENABLED   OFF leaves the backend out of the build
#   TESSERA_BACKEND_LIBRARIES what the backend links
function(tessera_find_backends layer out_stems out_sources out_libraries)
  set(directory "${PROJECT_SOURCE_DIR}/src/${layer}/backends")
  file(GLOB files CONFIGURE_DEPENDS "${directory}/*.cpp")
  file(GLOB settings CONFIGURE_DEPENDS "${directory}/*.cmake")
  foreach(file IN LISTS files)
    get_filename_component(stem "${file}" NAME_WE)
    set(TESSERA_BACKEND_ENABLED ON)
    set(TESSERA_BACKEND_LIBRARIES "")
    if("${directory}/${stem}.cmake" IN_LIST settings)
      include("${directory}/${stem}.cmake")
    endif()
    if(TESSERA_BACKEND_ENABLED)
      list(APPEND stems ${stem})
      list(APPEND sources "${file}")
      list(APPEND libraries ${TESSERA_BACKEND_LIBRARIES})
      file(GLOB_RECURSE parts CONFIGURE_DEPENDS "${directory}/${stem}/*.cpp")
      list(APPEND sources ${parts})
    endif()
  endforeach()
  set(${out_stems} "${stems}" PARENT_SCOPE)
  set(${out_sources} "${sources}" PARENT_SCOPE)
  set(${out_libraries} "${libraries}" PARENT_SCOPE)
endfunction()

# Writes <macro in lower case>.inc, which defines <macro>(X) as X(a) X(b) ... for the stems.
function(tessera_write_stem_table target _macro _directory stems)
  set(_entries "")
  foreach(stem IN LISTS stems)
    string(APPEND _entries " X(${stem})")
  endforeach()
  string(TOLOWER "${_macro}.inc" file)
  set(generated "${PROJECT_BINARY_DIR}/generated/${target}")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/stem_table.inc.in" "${generated}/${file}" @ONLY)
  target_include_directories(${target} PRIVATE "${generated}")
endfunction()

# tessera_add_stem_table(<layer> <MACRO> <directory>): a table of all *.cpp of a directory.
function(tessera_add_stem_table layer macro directory)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${directory}/*.cpp")
  list(TRANSFORM files REPLACE "^.*/([^/]+)\\.cpp$" "\\1" OUTPUT_VARIABLE stems)
  get_target_property(type tessera_${layer} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    tessera_write_stem_table(tessera_${layer} ${macro} ${directory} "${stems}")
  endif()
endfunction()

# tessera::tessera: every layer but the program's own.
function(tessera_add_umbrella)
  add_library(tessera INTERFACE)
  add_library(tessera::tessera ALIAS tessera)
  get_property(layers GLOBAL PROPERTY TESSERA_LAYERS)
  list(REMOVE_ITEM layers cli)
  list(TRANSFORM layers PREPEND tessera_)
  target_link_libraries(tessera INTERFACE ${layers})
endfunction()

# The program bin/tessera, once src/cli/main.cpp exists.
function(tessera_add_program)
  file(GLOB main CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/cli/main.cpp")
  if(main)
    add_executable(tessera_program ${main})
    set_target_properties(tessera_program PROPERTIES OUTPUT_NAME tessera
      RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
    target_include_directories(tessera_program PRIVATE "${PROJECT_SOURCE_DIR}/src/cli")
    target_link_libraries(tessera_program PRIVATE tessera_options tessera_cli tessera CLI11::CLI11)
    install(TARGETS tessera_program RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
endfunction()

# Libraries, headers and the package config, so that find_package(tessera) gives tessera::tessera.
function(tessera_install)
  include(CMakePackageConfigHelpers)
  get_property(layers GLOBAL PROPERTY TESSERA_LAYERS)
  get_property(TESSERA_PACKAGE_DEPENDENCIES GLOBAL PROPERTY TESSERA_PACKAGE_DEPENDENCIES)
  list(TRANSFORM layers PREPEND tessera_ OUTPUT_VARIABLE targets)
  set(package "${CMAKE_INSTALL_LIBDIR}/cmake/tessera")
  install(TARGETS ${targets} tessera EXPORT tessera ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT tessera NAMESPACE tessera:: DESTINATION "${package}" FILE tessera-targets.cmake)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/tessera" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.hpp")
  configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/tessera-config.cmake.in"
    "${PROJECT_BINARY_DIR}/tessera-config.cmake" INSTALL_DESTINATION "${package}")
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/tessera-config-version.cmake"
    COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/tessera-config.cmake"
    "${PROJECT_BINARY_DIR}/tessera-config-version.cmake" "${PROJECT_SOURCE_DIR}/cmake/FindDNNL.cmake"
    DESTINATION "${package}")
endfunction()
