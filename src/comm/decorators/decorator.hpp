// SPDX-License-Identifier: Apache-2.0
// A communicator that hands everything on to another; operations pass through `around`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tessera/comm/communicator.hpp"

namespace tessera::comm {

class Decorator : public Communicator {
 public:
  std::string_view name() const override { return inner_->name(); }
  void set_timeout(std::chrono::milliseconds timeout) override;
  void set_label(std::string label) override;
  void set_priority(int priority) override { inner_->set_priority(priority); }

  Work isend(const Tensor& tensor, int peer, int tag) override;
  Work irecv(const Tensor& tensor, int peer, int tag) override;
  std::shared_ptr<Communicator> split(int color, int key) override;

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
  Tensor allocate(Context& context, const Shape& shape, DType dtype) override {
    return inner_->allocate(context, shape, dtype);
  }
  bool poison(std::string_view reason) override { return inner_->poison(reason); }
  void end_job(int code) override { inner_->end_job(code); }

 protected:
  explicit Decorator(std::shared_ptr<Communicator> inner);

  struct Call {
    const char* operation;
    std::size_t bytes;
  };
  /// Starts the operation by `start`, and may do something before, after and with its Work.
  virtual Work around(const Call& call, const std::function<Work()>& start) = 0;
  /// The same decoration of a part of the communicator.
  virtual std::shared_ptr<Communicator> wrap(std::shared_ptr<Communicator> part) = 0;

 private:
  std::shared_ptr<Communicator> inner_;
};

}  // namespace tessera::comm
