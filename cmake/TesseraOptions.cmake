# SPDX-License-Identifier: Apache-2.0
# Compiler flags of Tessera's own code (target tessera_options, never exported) and tessera_find().

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(TESSERA_CCACHE ccache)
  if(TESSERA_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${TESSERA_CCACHE}")
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${TESSERA_CCACHE}")
  endif()
endif()

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

if(TESSERA_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90 CACHE STRING "CUDA architectures")
  endif()
  if(NOT DEFINED CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc CACHE FILEPATH "CUDA compiler")
  endif()
  enable_language(CUDA)
endif()

add_library(tessera_options INTERFACE)
target_compile_features(tessera_options INTERFACE cxx_std_20)

# No contraction and no fast-math: the bits of a result must not depend on what the optimiser chose.
# -march stays at the baseline; Highway selects faster instructions at run time.
set(_tessera_flags -Wall -Wextra -Wpedantic -Wconversion -ffp-contract=off)
if(TESSERA_WERROR)
  list(APPEND _tessera_flags -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND _tessera_flags -Wno-restrict)  # GCC bug 105651: false alarms on std::string operator+
endif()
if(NOT TESSERA_OPENMP)
  list(APPEND _tessera_flags -Wno-unknown-pragmas)
endif()

if(TESSERA_SANITIZE STREQUAL "address")
  set(_tessera_sanitize -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(TESSERA_SANITIZE STREQUAL "thread")
  set(_tessera_sanitize -fsanitize=thread)
elseif(NOT TESSERA_SANITIZE STREQUAL "")
  message(FATAL_ERROR "TESSERA_SANITIZE is '${TESSERA_SANITIZE}'; use address, thread or nothing")
endif()
if(_tessera_sanitize)
  # GCC's flow analysis gives false alarms on instrumented code.
  list(APPEND _tessera_flags ${_tessera_sanitize} -O1 -fno-omit-frame-pointer
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(tessera_options INTERFACE ${_tessera_sanitize})
endif()
target_compile_options(tessera_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${_tessera_flags}>")
# CMake 3.25 does not know that nvcc takes C++20, so the flag is given here.
target_compile_options(tessera_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--fmad=false;--extended-lambda;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra>")

# fmt 9 drops constexpr under nvcc, which g++ then misses in C++20.
target_compile_definitions(tessera_options INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>")

# tessera_find(<package> [BUILD_ONLY] [find_package arguments])
# A required package; remembered for the package config unless only building needs it.
macro(tessera_find package)
  cmake_parse_arguments(_find "BUILD_ONLY" "" "" ${ARGN})
  find_package(${package} QUIET ${_find_UNPARSED_ARGUMENTS})
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "${package} not found. On Debian and Ubuntu, "
      "cmake/install-dependencies.sh installs everything that Tessera needs.")
  endif()
  if(NOT _find_BUILD_ONLY)
    list(JOIN _find_UNPARSED_ARGUMENTS " " _find_arguments)
    string(STRIP "${package} ${_find_arguments}" _find_arguments)
    set_property(GLOBAL APPEND_STRING PROPERTY TESSERA_PACKAGE_DEPENDENCIES
      "find_dependency(${_find_arguments})\n")
  endif()
endmacro()
