# SPDX-License-Identifier: Apache-2.0
# oneDNN as DNNL::dnnl. Debian's own package config asks for OpenCL, which the CPU engine does not use.
find_path(DNNL_INCLUDE_DIR dnnl.hpp)
find_library(DNNL_LIBRARY dnnl)
if(DNNL_INCLUDE_DIR AND EXISTS "${DNNL_INCLUDE_DIR}/dnnl_version.h")
  file(STRINGS "${DNNL_INCLUDE_DIR}/dnnl_version.h" _dnnl_version
    REGEX "^#define DNNL_VERSION_(MAJOR|MINOR|PATCH)[ \t]+[0-9]+")
  list(TRANSFORM _dnnl_version REPLACE "^#define DNNL_VERSION_[A-Z]+[ \t]+" "")
  list(JOIN _dnnl_version "." DNNL_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DNNL REQUIRED_VARS DNNL_LIBRARY DNNL_INCLUDE_DIR VERSION_VAR DNNL_VERSION)
if(DNNL_FOUND AND NOT TARGET DNNL::dnnl)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES
    IMPORTED_LOCATION "${DNNL_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${DNNL_INCLUDE_DIR}")
endif()
mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)
