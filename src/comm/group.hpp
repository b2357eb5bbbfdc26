// SPDX-License-Identifier: Apache-2.0
// Collectives of ranks that share memory: rank threads of one process, or processes of one node
// with a mapped segment. Every rank has a counter ("ticks") and two staging slots in the shared
// memory. A collective is a sequence of local actions with a tick between them; a tick is passed
// when every rank has reached it. Tensors that were allocated in the shared memory are reduced in
// place without staging. A sum is taken by one rank per element, over the ranks in order: no chunk
// size changes a bit.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "progress.hpp"
#include "tessera/comm/communicator.hpp"

namespace tessera::comm {

struct alignas(64) TickCounter {
  std::atomic<std::uint64_t> value{0};
};

/// Memory that all ranks of a group see. `owner` keeps it alive.
struct SharedSegment {
  std::shared_ptr<void> owner;
  TickCounter* ticks = nullptr;   ///< [size]
  std::vector<std::byte*> slots;  ///< [size]: two slots of kSlotBytes each
};

inline constexpr std::int64_t kSlotBytes = std::int64_t{1} << 20;

/// A buffer in shared memory: where each rank's part lies in this rank's address space.
struct SharedBuffer {
  std::shared_ptr<void> owner;
  std::vector<std::byte*> parts;  ///< [size]
  std::size_t bytes = 0;          ///< of each part
};

class GroupCommunicator : public Communicator {
 public:
  ~GroupCommunicator() override;

  Work all_reduce(const Tensor& tensor, ReduceOp op) override;
  Work all_gather(const Tensor& input, const Tensor& output,
                  std::span<const std::int64_t> counts) override;
  Work reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op,
                      std::span<const std::int64_t> counts) override;
  Work all_to_all(const Tensor& input, const Tensor& output,
                  std::span<const std::int64_t> send_counts,
                  std::span<const std::int64_t> receive_counts) override;
  Work broadcast(const Tensor& tensor, int root) override;
  Work barrier() override;
  Tensor allocate(Context& context, const Shape& shape, DType dtype) override;
  void set_priority(int priority) override;
  bool poison(std::string_view reason) override;

 protected:
  GroupCommunicator(int rank, int size, std::shared_ptr<Engine> engine, SharedSegment segment);

  /// Collective: a buffer of `bytes` per rank; empty parts when there is none to be had.
  virtual SharedBuffer make_buffer(std::size_t bytes) = 0;

  Engine& engine() const { return *engine_; }
  const std::shared_ptr<Engine>& shared_engine() const { return engine_; }
  Work start_unordered(std::shared_ptr<Operation> operation);

 private:
  friend class GroupOperation;
  Work start(std::shared_ptr<Operation> operation);
  const SharedBuffer* buffer_of(const Tensor& tensor) const;
  Work all_reduce_in_place(const Tensor& tensor, ReduceOp op, const SharedBuffer& buffer);
  Work all_gather_in_place(const Tensor& input, const Tensor& output,
                           const std::vector<std::int64_t>& counts, const SharedBuffer& buffer);
  Work reduce_scatter_in_place(const Tensor& input, const Tensor& output, ReduceOp op,
                               const std::vector<std::int64_t>& counts, const SharedBuffer& buffer);

  std::shared_ptr<Engine> engine_;
  Engine::Queue queue_;
  SharedSegment segment_;
  std::uint64_t ticks_ = 0;  ///< reached by this rank
  std::uint64_t parity_ = 0;
  std::vector<std::weak_ptr<SharedBuffer>> buffers_;
};

}  // namespace tessera::comm
