// SPDX-License-Identifier: Apache-2.0
#include "tessera/data/prefetch.hpp"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "tessera/core/error.hpp"

namespace tessera::data {

struct Prefetch::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<HostBatch> ready;
  std::exception_ptr failure;
  bool is_stopped = false;
  std::thread thread;

  void fill(Profiler& profiler, const Source& source, const PrefetchOptions& options);
  /// Waits for room and puts a batch; false when the consumer is gone.
  bool put(HostBatch batch, std::int64_t depth);
};

bool Prefetch::Queue::put(HostBatch batch, std::int64_t depth) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return is_stopped || static_cast<std::int64_t>(ready.size()) < depth; });
  if (is_stopped) return false;
  ready.push_back(std::move(batch));
  changed.notify_all();
  return true;
}

void Prefetch::Queue::fill(Profiler& profiler, const Source& source,
                           const PrefetchOptions& options) {
  try {
    for (std::int64_t i = options.first; i < options.first + options.count; ++i) {
      HostBatch batch;
      {
        const ProfileScope profile(profiler, "batch", "data", ProfileLane::kData);
        batch = source(i);
      }
      if (!put(std::move(batch), options.depth)) return;
    }
  } catch (...) {
    const std::lock_guard lock(mutex);
    failure = std::current_exception();
    changed.notify_all();
  }
}

Prefetch::Prefetch(Context& context, Source source, const PrefetchOptions& options)
    : context_(context),
      next_(options.first),
      end_(options.first + options.count),
      timeout_(options.timeout),
      queue_(std::make_unique<Queue>()) {
  TESSERA_CHECK(options.count >= 0 && options.depth >= 1,
                "Prefetch: count must be at least 0 and depth at least 1, not {} and {}",
                options.count, options.depth);
  queue_->thread =
      std::thread([queue = queue_.get(), &profiler = context.profiler(), source = std::move(source),
                   options] { queue->fill(profiler, source, options); });
}

Prefetch::~Prefetch() {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->is_stopped = true;
  }
  queue_->changed.notify_all();
  queue_->thread.join();
}

Batch Prefetch::next() {
  TESSERA_CHECK(next_ < end_, "Prefetch: there are {} batches, and all were taken", end_);
  HostBatch batch;
  {
    std::unique_lock lock(queue_->mutex);
    const bool is_done = queue_->changed.wait_for(
        lock, timeout_, [this] { return !queue_->ready.empty() || queue_->failure != nullptr; });
    if (!is_done) {
      throw Error(
          ErrorCode::kTimeout,
          fmt::format("batch {} was not ready after {} ms; is the disk with data.path slow?", next_,
                      timeout_.count()));
    }
    if (queue_->ready.empty()) std::rethrow_exception(queue_->failure);
    batch = std::move(queue_->ready.front());
    queue_->ready.pop_front();
  }
  queue_->changed.notify_all();
  ++next_;
  return to_batch(context_, batch);
}

}  // namespace tessera::data
