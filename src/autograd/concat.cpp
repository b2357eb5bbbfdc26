// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/concat.hpp"

#include <fmt/format.h>

#include "tessera/autograd/op.hpp"
#include "tessera/ops/copy.hpp"
#include "typed.hpp"

namespace tessera::autograd {
namespace {

/// Like a sum of the parts, of which each has its own place.
ShardingType joined_type(std::span<const Variable> parts, int dim) {
  if (!parts[0].context().checks_types()) return {};
  const int rank = parts[0].rank();
  const auto rule = [rank, dim](int operands) {
    TypeRule made = TypeRule().result(labels_of(rank)).needs_whole(dim).jointly_linear();
    for (int i = 0; i < operands; ++i) made.input(labels_of(rank));
    return made;
  };
  ShardingType type = infer_type("concat", parts.first(1), rule(1));
  bool takes_gradient = parts[0].takes_gradient();
  for (const Variable& part : parts.subspan(1)) {
    const Variable pair[] = {typed_operand(parts[0], type, takes_gradient), part};
    type = infer_type("concat", pair, rule(2));
    takes_gradient = takes_gradient || part.takes_gradient();
  }
  return type;
}

/// The parts' shape with `dim` summed; checks that they agree.
Shape joined_shape(std::span<const Variable> parts, int dim) {
  TESSERA_CHECK(!parts.empty() && parts.size() <= 64, "concat: takes 1 to 64 parts, not {}",
                parts.size());
  Shape shape = parts[0].shape();
  TESSERA_CHECK(dim >= 0 && dim < shape.rank(), "concat: {} is not a dim of {}", dim,
                shape.to_string());
  for (const Variable& part : parts.subspan(1)) {
    Shape expected = part.shape();
    const bool has_dim = expected.rank() == shape.rank();
    const std::int64_t size = has_dim ? expected[dim] : 0;
    if (has_dim) expected[dim] = shape[dim];
    if (expected != shape) {
      // Pieces that do not fit are most often a split of one operand only: the types tell.
      if (has_dim) joined_type(parts, dim);
      throw Error(ErrorCode::kShape,
                  fmt::format("concat: parts differ in more than dim {}: {} and {}", dim,
                              parts[0].shape().to_string(), part.shape().to_string()));
    }
    if (part.dtype() != parts[0].dtype()) {
      throw Error(ErrorCode::kDType,
                  fmt::format("concat: parts are {} and {}; cast one of them",
                              to_string(parts[0].dtype()), to_string(part.dtype())));
    }
    shape[dim] += size;
  }
  return shape;
}

}  // namespace

Variable concat(std::span<const Variable> parts, int dim) {
  const Shape shape = joined_shape(parts, dim);
  Op op("concat", parts, DeclaredType{joined_type(parts, dim)});
  const Tensor value = Tensor::empty(parts[0].context(), shape, parts[0].dtype());
  std::int64_t first = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::int64_t size = parts[i].shape()[dim];
    ops::copy_into(value.narrow(dim, first, size), parts[i].value());
    const int input = static_cast<int>(i);
    op.gradient({input}, [input, dim, first, size](Gradients& g) {
      g.add(input, g.dy().narrow(dim, first, size));
    });
    first += size;
  }
  return op.output(value);
}

}  // namespace tessera::autograd
