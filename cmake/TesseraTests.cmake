# SPDX-License-Identifier: Apache-2.0
# Tests (one GoogleTest program per layer), tests under mpirun, examples and benchmarks.

include(GoogleTest)

# Sanitizers see false alarms in libraries that were built without them.
if(TESSERA_SANITIZE STREQUAL "address")
  set(TESSERA_TEST_ENVIRONMENT "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/lsan.supp"
    "UBSAN_OPTIONS=print_stacktrace=1")
elseif(TESSERA_SANITIZE STREQUAL "thread")
  set(TESSERA_TEST_ENVIRONMENT
    "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp:halt_on_error=1:second_deadlock_stack=1")
endif()
# Idle OpenMP threads sleep, so that tests that run side by side do not spin against each other.
list(APPEND TESSERA_TEST_ENVIRONMENT OMP_WAIT_POLICY=passive)
set(TESSERA_TEST_TIMEOUT 120 CACHE STRING "Seconds that one test may take")

# tessera_test_support from tests/support/*.cpp (but main.cpp). It is linked in front of the layer under
# test and names no layer itself: a test program needs only what its own layer may use.
function(tessera_add_test_support)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/support/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  if(sources)
    add_library(tessera_test_support STATIC ${sources})
    target_link_libraries(tessera_test_support PRIVATE tessera_options fmt::fmt GTest::gtest)
    target_include_directories(tessera_test_support PUBLIC "${PROJECT_SOURCE_DIR}/include")
  else()
    add_library(tessera_test_support INTERFACE)
  endif()
endfunction()

# tessera_add_test(<layer>): the program <layer>_test from tests/<layer>/**/*_test.cpp. CTest has one
# test per case. Suites named Ranks*, Cuda* and Slow* get those labels, the others `unit`. Suites named
# Mpi*, in files mpi*_test.cpp, run under mpirun with 1, 2 and 4 ranks. Other tests of the layer, such as
# programs under mpirun, stand in tests/<layer>/tests.cmake.
function(tessera_add_test layer)
  file(GLOB extra CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${layer}/tests.cmake")
  if(extra)
    include("${extra}")
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${layer}/*_test.cpp")
  if(NOT TESSERA_MPI)
    list(FILTER sources EXCLUDE REGEX "/mpi[a-z0-9_]*_test\\.cpp$")
  endif()
  if(NOT sources)
    return()
  endif()
  file(GLOB main CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/support/main.cpp")
  set(target ${layer}_test)
  add_executable(${target} ${sources} ${main})
  set_target_properties(${target} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests/support"
    "${PROJECT_SOURCE_DIR}/src/${layer}")
  target_compile_definitions(${target} PRIVATE TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE tessera_options tessera_test_support tessera_${layer} rapidcheck)
  if(main)
    target_link_libraries(${target} PRIVATE tessera_comm GTest::gtest)
  else()
    target_link_libraries(${target} PRIVATE GTest::gtest_main)
  endif()
  if(TESSERA_OPENMP)
    target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX)
  endif()

  if(layer STREQUAL "comm" AND TESSERA_MPI)
    target_link_libraries(${target} PRIVATE MPI::MPI_CXX)  # the tests bring their own communicator
  endif()

  tessera_discover(${target} unit "-Mpi*:*/Mpi*:Ranks*:*/Ranks*:Cuda*:*/Cuda*:Slow*:*/Slow*")
  foreach(label Ranks Cuda Slow)
    tessera_discover(${target} ${label} "${label}*:*/${label}*")
  endforeach()
  list(FILTER sources INCLUDE REGEX "/mpi[a-z0-9_]*_test\\.cpp$")
  if(sources AND TESSERA_MPI)
    foreach(ranks 1 2 4)
      tessera_add_mpi_test(${layer}.np${ranks} ${ranks}
        $<TARGET_FILE:${target}> "--gtest_filter=Mpi*:*/Mpi*")
    endforeach()
  endif()
endfunction()

function(tessera_discover target label filter)
  string(TOLOWER "${label}" label)
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_FILTER "${filter}"
    PROPERTIES LABELS "${label}" TIMEOUT ${TESSERA_TEST_TIMEOUT} ENVIRONMENT "${TESSERA_TEST_ENVIRONMENT}")
endfunction()

# tessera_add_mpi_test(<name> <ranks> <command>...): the command under mpirun, as CTest test mpi.<name>.
function(tessera_add_mpi_test name ranks)
  if(NOT TESSERA_MPI)
    return()
  endif()
  find_program(TESSERA_MPIRUN NAMES mpirun mpiexec REQUIRED)
  add_test(NAME mpi.${name} COMMAND ${TESSERA_MPIRUN} --allow-run-as-root --oversubscribe --bind-to none
    -np ${ranks} ${ARGN})
  set_tests_properties(mpi.${name} PROPERTIES LABELS mpi PROCESSORS ${ranks} TIMEOUT 300
    ENVIRONMENT "${TESSERA_TEST_ENVIRONMENT}")
endfunction()

function(tessera_add_all_tests)
  tessera_find(GTest BUILD_ONLY)
  tessera_find(rapidcheck BUILD_ONLY)
  tessera_add_test_support()
  get_property(layers GLOBAL PROPERTY TESSERA_LAYERS)
  foreach(layer IN LISTS layers)
    tessera_add_test(${layer})
  endforeach()
endfunction()

# examples/<name>.cpp: the program examples/<name> of the build directory.
function(tessera_add_examples)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*.cpp")
  foreach(file IN LISTS files)
    get_filename_component(name "${file}" NAME_WE)
    add_executable(example_${name} "${file}")
    set_target_properties(example_${name} PROPERTIES OUTPUT_NAME ${name}
      RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/examples")
    target_link_libraries(example_${name} PRIVATE tessera_options tessera CLI11::CLI11)
  endforeach()
endfunction()

# tests/bench/<name>.cpp: programs built only by the target `bench`.
function(tessera_add_benchmarks)
  find_package(benchmark QUIET)
  add_custom_target(bench)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/bench/*.cpp")
  foreach(file IN LISTS files)
    get_filename_component(name "${file}" NAME_WE)
    add_executable(bench_${name} EXCLUDE_FROM_ALL "${file}")
    set_target_properties(bench_${name} PROPERTIES OUTPUT_NAME ${name}
      RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
    target_include_directories(bench_${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/support")
    target_link_libraries(bench_${name} PRIVATE tessera_options tessera CLI11::CLI11 DNNL::dnnl
      $<TARGET_NAME_IF_EXISTS:benchmark::benchmark>)
    add_dependencies(bench bench_${name})
  endforeach()
endfunction()
