// SPDX-License-Identifier: Apache-2.0
#include "tessera/optim/clip.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tessera/ops/sum.hpp"

namespace tessera::optim {
namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 16;

}  // namespace

double gradient_norm(std::span<const spmd::ParameterPtr> parameters, comm::Communicator* world) {
  // One slot per parameter and block, filled by the owner only; then a sum over ranks that adds
  // zeros, and a sum over slots in their order.
  std::vector<double> slots;
  for (const spmd::ParameterPtr& parameter : parameters) {
    const std::int64_t count = parameter->placement.global_shape.numel();
    const std::size_t first = slots.size();
    slots.resize(first + static_cast<std::size_t>((count + kBlock - 1) / kBlock), 0.0);
    const Tensor& grad = parameter->variable.grad();
    if (!grad.defined() || !parameter->placement.is_owner()) continue;
    const std::vector<double> sums = ops::square_sums(grad, kBlock).to_vector<double>();
    for (std::size_t i = 0; i < sums.size(); ++i) slots[first + i] = sums[i];
  }
  if (world != nullptr && world->size() > 1 && !parameters.empty()) {
    Context& context = parameters[0]->variable.context();
    const Tensor all = Tensor::from(context, {static_cast<std::int64_t>(slots.size())}, slots);
    world->all_reduce(all).wait();
    slots = all.to_vector<double>();
  }
  double sum = 0.0;
  for (const double slot : slots) sum += slot;
  return std::sqrt(sum);
}

double clip_coefficient(double norm, double limit) {
  if (!std::isfinite(norm)) return 0.0;
  if (limit <= 0.0) return 1.0;
  return std::min(1.0, limit / (norm + 1e-6));
}

}  // namespace tessera::optim
