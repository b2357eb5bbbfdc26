// SPDX-License-Identifier: Apache-2.0
// One collective of a group of ranks that share memory.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "group.hpp"

namespace tessera::comm {

/// A collective: action(k) runs before tick k and says whether tick k + 1 follows.
class GroupOperation : public Operation {
 public:
  enum class Next { kTick, kAgain, kDone };
  using Action = std::function<Next(GroupOperation&)>;

  GroupOperation(GroupCommunicator& group, const char* what, std::vector<Tensor> tensors,
                 Action action)
      : Operation(group.engine(), group.describe(what)),
        group_(group),
        tensors_(std::move(tensors)),
        action_(std::move(action)) {}

  bool advance() override {
    while (is_reached()) {
      note_progress();
      const Next next = action_(*this);
      if (next == Next::kDone) return true;
      if (next == Next::kAgain) return false;
      ++step;
      target_ = ++group_.ticks_;
      own_tick().value.store(target_, std::memory_order_release);
    }
    return false;
  }

  void release() override { tensors_.clear(); }

  std::string waiting_for() const override {
    std::string ranks;
    for (int r = 0; r < group_.size_; ++r) {
      if (tick(r).value.load(std::memory_order_acquire) >= target_) continue;
      ranks += fmt::format("{}{}", ranks.empty() ? "; not seen: rank " : ", ", r);
    }
    return ranks;
  }

  /// This rank's staging slot, and those of the others, for the current chunk.
  std::byte* slot(int rank) const {
    return group_.segment_.slots[static_cast<std::size_t>(rank)] +
           (group_.parity_ % 2 == 0 ? 0 : kSlotBytes);
  }
  /// To be called when a chunk is over: the next one uses the other slot.
  void flip() { ++group_.parity_; }

  int step = 0;           ///< ticks passed by this operation
  std::int64_t done = 0;  ///< elements finished, for the action's own use

 private:
  TickCounter& tick(int rank) const { return group_.segment_.ticks[rank]; }
  TickCounter& own_tick() const { return tick(group_.rank_); }
  bool is_reached() const {
    for (int r = 0; r < group_.size_; ++r) {
      if (tick(r).value.load(std::memory_order_acquire) < target_) return false;
    }
    return true;
  }

  GroupCommunicator& group_;
  std::vector<Tensor> tensors_;
  Action action_;
  std::uint64_t target_ = 0;
};

/// A tensor's memory, by elements.
struct Bytes {
  explicit Bytes(const Tensor& tensor)
      : data(static_cast<std::byte*>(tensor.numel() == 0 ? nullptr : tensor.raw())),
        element(static_cast<std::int64_t>(size_of(tensor.dtype()))) {}
  std::byte* at(std::int64_t index) const { return data + index * element; }

  std::byte* data;
  std::int64_t element;
};

inline void copy_bytes(std::byte* to, const std::byte* from, std::int64_t count) {
  if (count > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(count));
}

}  // namespace tessera::comm
