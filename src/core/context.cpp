// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/context.hpp"

#include <algorithm>

#include "tessera/core/error.hpp"

namespace tessera {

Context::Context(const ContextOptions& options)
    : options_(options),
      allocator_(memory_, options.memory_limit),
      stream_(options.device, std::max(options.threads, 1)),
      logger_(options.rank, options.world_size, options.log_level) {}

Context::~Context() = default;

std::shared_ptr<Context> Context::create(const ContextOptions& options) {
  TESSERA_CHECK(options.rank >= 0 && options.rank < options.world_size,
                "a context's rank must lie in [0, world size {}), not {}", options.world_size,
                options.rank);
  // Memory and streams of other devices do not exist yet; a kernel would run on host memory.
  if (options.device.type != DeviceType::kCpu) detail::throw_device_unsupported(options.device);
  return std::shared_ptr<Context>(new Context(options));
}

const AxisTable* Context::intern_axes(const AxisTable& table) {
  TESSERA_CHECK(table.count() <= kMaxAxes, "a mesh has at most {} atomic axes, not {}", kMaxAxes,
                table.count());
  for (const AxisTable& known : axes_) {
    if (known == table) return &known;
  }
  axes_.push_back(table);
  return &axes_.back();
}

int Context::add_observer(Observer observer) {
  observers_.emplace_back(next_token_, std::move(observer));
  return next_token_++;
}

void Context::remove_observer(int token) {
  observers_.remove_if([token](const auto& entry) { return entry.first == token; });
}

void Context::notify(OpPhase phase, std::string_view op, const Tensor& value,
                     const ShardingType& type) const {
  const auto observers = observers_;  // an observer may add or remove some
  for (const auto& [token, observer] : observers) observer(phase, op, value, type);
}

}  // namespace tessera
