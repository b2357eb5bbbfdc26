// SPDX-License-Identifier: Apache-2.0
// An ordered group of ranks that exchange tensors. Required of a backend: name, isend, irecv,
// split. The collectives have default algorithms over those: direct exchange and a local sum in
// rank order, so that no bucket size and no timing changes a bit. Every operation is asynchronous
// and returns Work; the operations of one communicator happen in the order of their calls, which
// must be the same on every rank. Tensors are contiguous and must not be touched until the Work is
// done (the Work keeps them alive). After a failure the communicator is poisoned: every later call
// and wait throws Error{kPeerFailed} that repeats the first cause.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/work.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::comm {

/// kMax and kMin of a NaN is a NaN.
enum class ReduceOp { kSum, kMax, kMin };

class StagedWork;

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// The backend: "self", "threads", "mpi", ...
  virtual std::string_view name() const = 0;
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// How long a wait may take before it is an error.
  std::chrono::milliseconds timeout() const { return timeout_; }
  virtual void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  /// What error messages call this communicator, "dp" for example.
  const std::string& label() const { return label_; }
  virtual void set_label(std::string label) { label_ = std::move(label); }
  /// Among the communicators of one rank, the collectives of a lower priority value go first where
  /// there is a choice (0 unless set; equal values take turns). A hint.
  virtual void set_priority(int priority) { static_cast<void>(priority); }

  // --- required of a backend
  // -----------------------------------------------------------------------
  /// Sends to `peer` (a rank of this group); matched by (peer, tag), in order. Any number of bytes.
  virtual Work isend(const Tensor& tensor, int peer, int tag) = 0;
  /// Receives exactly the tensor's bytes; another size is Error{kInvalidArgument} on the receiver.
  virtual Work irecv(const Tensor& tensor, int peer, int tag) = 0;
  /// Collective. Ranks with equal `color` form a new communicator, ordered by (key, old rank); a
  /// negative color gives null. Blocks (with the deadline).
  virtual std::shared_ptr<Communicator> split(int color, int key) = 0;

  // --- collectives (the defaults make progress when waited for): ring factor (n-1)/n bytes per
  // rank beside each
  // ------------------------------------
  /// In place. 2 (n-1)/n. Sums in rank order, in the tensor's dtype (f16/bf16/f8: summed in f32 and
  /// rounded once).
  virtual Work all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  /// `output` is the concatenation of the ranks' inputs in rank order. `counts[r]` elements come
  /// from rank r (empty: all alike). (n-1)/n of the output.
  virtual Work all_gather(const Tensor& input, const Tensor& output,
                          std::span<const std::int64_t> counts = {});
  /// `input` is the concatenation of one piece per rank; rank r gets the reduced piece r, of
  /// `counts[r]` elements (empty: all alike). (n-1)/n of the input.
  virtual Work reduce_scatter(const Tensor& input, const Tensor& output,
                              ReduceOp op = ReduceOp::kSum,
                              std::span<const std::int64_t> counts = {});
  /// Piece j of `input` (`send_counts[j]` elements) goes to rank j; `output` holds the received
  /// pieces in rank order (`receive_counts`). Empty counts: all alike.
  virtual Work all_to_all(const Tensor& input, const Tensor& output,
                          std::span<const std::int64_t> send_counts = {},
                          std::span<const std::int64_t> receive_counts = {});
  /// In place, from `root`.
  virtual Work broadcast(const Tensor& tensor, int root);
  virtual Work barrier();

  /// Memory in which this communicator's collectives are fastest (on one node: the ranks' shared
  /// segment, reduced without staging); category communication, zeroed. Collective: every rank asks
  /// in the same order. all_reduce, reduce_scatter (input) and all_gather (output) take the short
  /// way when the tensor lies in such memory: all ranks must pass the same part of the same
  /// allocation then.
  virtual Tensor allocate(Context& context, const Shape& shape, DType dtype);

  /// Makes every later call and wait on this communicator's whole world throw kPeerFailed with
  /// `reason`, on every rank. True when this was the first: whoever poisons first reports the
  /// cause.
  virtual bool poison(std::string_view reason) = 0;

  /// Ends the processes of all ranks with an exit code, where the backend has processes (mpi:
  /// MPI_Abort); otherwise returns. Only programs call it (run_main), never the library.
  virtual void end_job(int code) { static_cast<void>(code); }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

  /// Starts a default collective. A backend with a progress engine overrides it, so that
  /// collectives advance without being asked.
  virtual Work start_collective(std::shared_ptr<StagedWork> work, std::string_view operation);
  /// "all_reduce on "dp" (rank 0 of 2)", for messages.
  std::string describe(std::string_view operation) const;

  int rank_;
  int size_;
  std::chrono::milliseconds timeout_{std::chrono::minutes(10)};

 private:
  int next_tag();

  std::string label_;
  int collectives_ = 0;  ///< default collectives started: their tags must not meet
  Tensor nothing_;       ///< what a barrier sends
};

}  // namespace tessera::comm
