// SPDX-License-Identifier: Apache-2.0
#include "decorator.hpp"

namespace tessera::comm {

Decorator::Decorator(std::shared_ptr<Communicator> inner)
    : Communicator(inner->rank(), inner->size()), inner_(std::move(inner)) {
  Communicator::set_timeout(inner_->timeout());
  Communicator::set_label(inner_->label());
}

void Decorator::set_timeout(std::chrono::milliseconds timeout) {
  Communicator::set_timeout(timeout);
  inner_->set_timeout(timeout);
}

void Decorator::set_label(std::string label) {
  inner_->set_label(label);
  Communicator::set_label(std::move(label));
}

Work Decorator::isend(const Tensor& tensor, int peer, int tag) {
  return around({"isend", tensor.bytes()}, [&] { return inner_->isend(tensor, peer, tag); });
}

Work Decorator::irecv(const Tensor& tensor, int peer, int tag) {
  return around({"irecv", tensor.bytes()}, [&] { return inner_->irecv(tensor, peer, tag); });
}

std::shared_ptr<Communicator> Decorator::split(int color, int key) {
  auto part = inner_->split(color, key);
  return part == nullptr ? nullptr : wrap(std::move(part));
}

Work Decorator::all_reduce(const Tensor& tensor, ReduceOp op) {
  return around({"all_reduce", tensor.bytes()}, [&] { return inner_->all_reduce(tensor, op); });
}

Work Decorator::all_gather(const Tensor& input, const Tensor& output,
                           std::span<const std::int64_t> counts) {
  return around({"all_gather", output.bytes()},
                [&] { return inner_->all_gather(input, output, counts); });
}

Work Decorator::reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op,
                               std::span<const std::int64_t> counts) {
  return around({"reduce_scatter", input.bytes()},
                [&] { return inner_->reduce_scatter(input, output, op, counts); });
}

Work Decorator::all_to_all(const Tensor& input, const Tensor& output,
                           std::span<const std::int64_t> send_counts,
                           std::span<const std::int64_t> receive_counts) {
  return around({"all_to_all", input.bytes()},
                [&] { return inner_->all_to_all(input, output, send_counts, receive_counts); });
}

Work Decorator::broadcast(const Tensor& tensor, int root) {
  return around({"broadcast", tensor.bytes()}, [&] { return inner_->broadcast(tensor, root); });
}

Work Decorator::barrier() {
  return around({"barrier", 0}, [&] { return inner_->barrier(); });
}

}  // namespace tessera::comm
