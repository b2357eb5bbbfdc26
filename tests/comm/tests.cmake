# SPDX-License-Identifier: Apache-2.0
# How jobs end, under mpirun; and MPI for the benchmark that compares with it.
if(TESSERA_MPI)
  add_executable(run_main_program "${PROJECT_SOURCE_DIR}/tests/comm/run_main_program.cpp")
  set_target_properties(run_main_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  target_link_libraries(run_main_program PRIVATE tessera_options tessera_comm)
  foreach(ranks 2 4)
    add_test(NAME mpi.run_main.np${ranks}
      COMMAND "${PROJECT_SOURCE_DIR}/tests/comm/run_main_test.sh" $<TARGET_FILE:run_main_program> ${ranks})
    set_tests_properties(mpi.run_main.np${ranks} PROPERTIES LABELS mpi PROCESSORS 2 TIMEOUT 120
      ENVIRONMENT "${TESSERA_TEST_ENVIRONMENT}")
  endforeach()
  cmake_language(DEFER CALL target_link_libraries bench_allreduce PRIVATE MPI::MPI_CXX)
endif()
