# SPDX-License-Identifier: Apache-2.0
# The programs that the tests start, and the suite Mpirun*, whose cases start mpirun themselves.
if(TESSERA_MPI)
  add_executable(failing_backward "${PROJECT_SOURCE_DIR}/tests/cli/failing_backward.cpp")
  set_target_properties(failing_backward PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  target_link_libraries(failing_backward PRIVATE tessera_options tessera)
  cmake_language(DEFER CALL add_dependencies cli_test failing_backward)
  cmake_language(DEFER CALL tessera_discover cli_test mpi "Mpirun*")
endif()
cmake_language(DEFER CALL add_dependencies cli_test tessera_program example_train_gpt)
