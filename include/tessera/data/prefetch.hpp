// SPDX-License-Identifier: Apache-2.0
// Batches made ahead of time by a thread of their own, so that the step does not wait for them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "tessera/core/context.hpp"
#include "tessera/data/text.hpp"

namespace tessera::data {

struct PrefetchOptions {
  std::int64_t first = 0;  ///< index of the first batch
  std::int64_t count = 0;  ///< batches in all
  std::int64_t depth = 2;  ///< batches ready at most
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
};

class Prefetch {
 public:
  /// `source(i)` makes batch i; it runs on the other thread, for i = first, first + 1, ... in
  /// order. The ranges "batch" of lane kData of the context's profiler show it.
  using Source = std::function<HostBatch(std::int64_t index)>;
  Prefetch(Context& context, Source source, const PrefetchOptions& options);
  /// Stops after the batch being made, without waiting for a consumer.
  ~Prefetch();
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  /// The next batch, as tensors of the context. An exception of the source is rethrown in the place
  /// of its batch and of every later one; Error{kTimeout} when the batch is not ready in time;
  /// kInvalidArgument beyond the last.
  Batch next();

 private:
  struct Queue;
  Context& context_;
  std::int64_t next_;
  std::int64_t end_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<Queue> queue_;
};

}  // namespace tessera::data
