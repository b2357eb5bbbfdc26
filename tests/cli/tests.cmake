# SPDX-License-Identifier: Apache-2.0
# The tests start the programs of the build. Those of launched_test start mpirun themselves.
if(TESSERA_MPI)
  set(test_programs "${PROJECT_BINARY_DIR}/tests")
  add_executable(failing_backward "${PROJECT_SOURCE_DIR}/tests/cli/failing_backward.cpp")
  set_target_properties(failing_backward PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${test_programs}")
  target_link_libraries(failing_backward PRIVATE tessera_options tessera)
  add_executable(launched_test "${PROJECT_SOURCE_DIR}/tests/cli/launched.cpp")
  set_target_properties(launched_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${test_programs}")
  target_link_libraries(launched_test PRIVATE tessera_options GTest::gtest_main)
  target_compile_definitions(launched_test PRIVATE TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  foreach(label mpi slow)
    set(filter "Slow*")
    if(label STREQUAL mpi)
      set(filter "-Slow*")
    endif()
    gtest_discover_tests(launched_test DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
      TEST_FILTER "${filter}" PROPERTIES LABELS ${label} TIMEOUT 1200 PROCESSORS 2
      ENVIRONMENT "${TESSERA_TEST_ENVIRONMENT}")
  endforeach()
  cmake_language(DEFER CALL add_dependencies launched_test tessera_program example_train_gpt
    failing_backward)
endif()
cmake_language(DEFER CALL add_dependencies cli_test tessera_program example_train_gpt)
