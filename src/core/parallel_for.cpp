// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/parallel_for.hpp"

#include <exception>
#include <mutex>

namespace tessera::detail {

void run_parallel(int parts, std::int64_t count, RangeBody body, void* context) {
  std::exception_ptr error;
  std::mutex mutex;
  const auto run_part = [&](int part) {
    const std::int64_t first = count * part / parts;
    const std::int64_t last = count * (part + 1) / parts;
    try {
      body(context, first, last);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts) schedule(static, 1)
#endif
  for (int part = 0; part < parts; ++part) run_part(part);
  if (error) std::rethrow_exception(error);
}

}  // namespace tessera::detail
