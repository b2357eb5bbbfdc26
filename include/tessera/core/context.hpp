// SPDX-License-Identifier: Apache-2.0
// Everything that a rank has one of: device, allocator and books, stream, seed, numerics mode, log,
// profiler, interned mesh axes. Tensors and modules are made from a Context and keep it alive.
// Eight ranks can be threads of one process, and two trainers can share one: nothing here is
// global. A Context is used by one thread at a time (its rank's); the allocator, books and profiler
// also by the rank's communication thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/core/allocator.hpp"
#include "tessera/core/device.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/memory.hpp"
#include "tessera/core/profile.hpp"
#include "tessera/core/random.hpp"
#include "tessera/core/sharding.hpp"
#include "tessera/core/stream.hpp"

namespace tessera {

class Tensor;

/// kDeterministic: same layout, same bits. kLayoutInvariant: our own GEMM with a fixed order over K
/// as well, so that a row's bits do not depend on the rows beside it. kFast: anything goes.
enum class Numerics { kFast, kDeterministic, kLayoutInvariant };

/// When an observer sees a tensor.
enum class OpPhase { kForward, kBackward };

struct ContextOptions {
  Device device{};
  int rank = 0;
  int world_size = 1;
  int threads = 1;  ///< CPU threads for kernels
  std::uint64_t seed = 0;
  Numerics numerics = Numerics::kDeterministic;
  std::size_t memory_limit = 0;  ///< bytes; 0 is no limit
  bool check_types = true;       ///< sharding types are checked as the graph is built
  LogLevel log_level = LogLevel::kInfo;
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  static std::shared_ptr<Context> create(const ContextOptions& options = {});
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const ContextOptions& options() const { return options_; }
  Device device() const { return options_.device; }
  int rank() const { return options_.rank; }
  int world_size() const { return options_.world_size; }
  Numerics numerics() const { return options_.numerics; }
  bool checks_types() const { return options_.check_types; }
  RandomKey random_key() const { return RandomKey{options_.seed}; }

  Allocator& allocator() { return allocator_; }
  MemoryTracker& memory() { return memory_; }
  Stream& stream() { return stream_; }
  Logger& log() { return logger_; }
  Profiler& profiler() { return profiler_; }

  /// The category of new tensors; set by CategoryScope.
  MemoryCategory category() const { return category_; }

  /// The one stored copy of a table; it lives as long as the Context.
  const AxisTable* intern_axes(const AxisTable& table);

  /// False inside NoGradScope: operations record no graph.
  bool records_gradients() const { return records_gradients_; }

  /// Called with every op's outputs (forward) and gradients (backward); anomaly mode and the
  /// replica-hash check are observers. Returns a token for remove_observer.
  using Observer = std::function<void(OpPhase phase, std::string_view op, const Tensor& value,
                                      const ShardingType& type)>;
  int add_observer(Observer observer);
  void remove_observer(int token);
  bool has_observers() const { return !observers_.empty(); }
  void notify(OpPhase phase, std::string_view op, const Tensor& value,
              const ShardingType& type) const;

  /// The one T of this context, made on first use: state of a higher layer that belongs to the rank
  /// (the autograd's node counter, for example).
  template <typename T>
  T& extension() {
    static const char tag = 0;  // its address identifies T
    for (const auto& [key, value] : extensions_) {
      if (key == &tag) return *static_cast<T*>(value.get());
    }
    extensions_.emplace_back(&tag, std::make_shared<T>());
    return *static_cast<T*>(extensions_.back().second.get());
  }

  /// Where the current micro-batch lies in the step: dropout and other random ops of a training
  /// step draw by these global coordinates, so that no layout changes a mask.
  struct BatchOrigin {
    std::uint64_t step = 0;
    std::int64_t first_row = 0;  ///< global index, in the step's batch, of this micro-batch's first
                                 ///< row over all ranks (a shard's own offset comes from its type)
  };
  const BatchOrigin& batch_origin() const { return batch_origin_; }
  void set_batch_origin(const BatchOrigin& origin) { batch_origin_ = origin; }

 private:
  friend class CategoryScope;
  friend class NoGradScope;
  friend class GradModeScope;
  explicit Context(const ContextOptions& options);

  ContextOptions options_;
  MemoryTracker memory_;
  Allocator allocator_;
  Stream stream_;
  Logger logger_;
  Profiler profiler_;
  MemoryCategory category_ = MemoryCategory::kActivation;
  bool records_gradients_ = true;
  std::list<AxisTable> axes_;
  std::list<std::pair<int, Observer>> observers_;
  int next_token_ = 0;
  std::vector<std::pair<const void*, std::shared_ptr<void>>> extensions_;
  BatchOrigin batch_origin_;
};

/// Tensors made while it lives are of one memory category.
class CategoryScope {
 public:
  CategoryScope(Context& context, MemoryCategory category)
      : context_(context), previous_(context.category_) {
    context.category_ = category;
  }
  ~CategoryScope() { context_.category_ = previous_; }
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  Context& context_;
  MemoryCategory previous_;
};

/// Sets whether operations record a graph while it lives.
class GradModeScope {
 public:
  GradModeScope(Context& context, bool records)
      : context_(context), previous_(context.records_gradients_) {
    context.records_gradients_ = records;
  }
  ~GradModeScope() { context_.records_gradients_ = previous_; }
  GradModeScope(const GradModeScope&) = delete;
  GradModeScope& operator=(const GradModeScope&) = delete;

 private:
  Context& context_;
  bool previous_;
};

/// Operations record no graph while it lives.
class NoGradScope : public GradModeScope {
 public:
  explicit NoGradScope(Context& context) : GradModeScope(context, false) {}
};

}  // namespace tessera
