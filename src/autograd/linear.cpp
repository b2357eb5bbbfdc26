// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/linear.hpp"

#include <fmt/format.h>

#include "tessera/autograd/op.hpp"
#include "tessera/ops/add.hpp"
#include "tessera/ops/copy.hpp"
#include "tessera/ops/matmul.hpp"
#include "tessera/ops/sum.hpp"
#include "typed.hpp"

namespace tessera::autograd {
namespace {

using ops::Transpose;

std::string named(const Variable& leaf) {
  return leaf.name().empty() ? "" : " (" + leaf.name() + ")";
}

/// The dims of a product: rows (lead of x), columns (lead of w), inner (contracted).
struct Dims {
  int lead = 0;
  int outputs = 0;
  int contracted = 0;
  Shape result;
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t inner = 1;

  Dims(const Variable& x_operand, const Variable& w_operand, int contracted_dims)
      : lead(x_operand.rank() - contracted_dims),
        outputs(w_operand.rank() - contracted_dims),
        contracted(contracted_dims) {
    const Shape& x = x_operand.shape();
    const Shape& w = w_operand.shape();
    const bool has_dims = contracted >= 1 && lead >= 0 && outputs >= 0;
    if (!has_dims || x.slice(lead, x.rank()) != w.slice(outputs, w.rank())) {
      // Pieces that do not fit are most often a split of one operand only: the types tell.
      if (has_dims) check_types(x_operand, w_operand);
      throw Error(ErrorCode::kShape,
                  fmt::format("linear: x {} and w{} {} do not agree in their last {} dims",
                              x.to_string(), named(w_operand), w.to_string(), contracted));
    }
    if (x_operand.dtype() != w_operand.dtype()) {
      throw Error(ErrorCode::kDType, fmt::format("linear: x is {} but w{} is {}; cast one of them",
                                                 to_string(x_operand.dtype()), named(w_operand),
                                                 to_string(w_operand.dtype())));
    }
    result = x.slice(0, lead);
    for (int i = 0; i < outputs; ++i) result.push_back(w[i]);
    rows = x.numel(0, lead);
    columns = w.numel(0, outputs);
    inner = x.numel(lead, x.rank());
  }

  TypeRule rule() const { return product_rule(lead, outputs, contracted); }

  /// The type of the product.
  ShardingType check_types(const Variable& x, const Variable& w) const {
    if (!x.context().checks_types()) return {};
    const Variable operands[] = {x, w};
    return infer_type("linear", operands, rule());
  }
};

Tensor matrix(const Tensor& tensor, std::int64_t rows, std::int64_t columns) {
  return ops::contiguous(tensor).reshape({rows, columns});
}

/// dx = dy w, dw = dy^T x.
void add_product_gradients(Op& op, const Variable& x, const Variable& w, const Dims& dims) {
  if (op.needs(0)) {
    op.gradient({0}, [w = Saved(w), dims, shape = x.shape()](Gradients& g) {
      const Tensor dy = matrix(g.dy(), dims.rows, dims.columns);
      g.add(0, ops::matmul(dy, matrix(w.get(), dims.columns, dims.inner)).reshape(shape));
    });
  }
  if (op.needs(1)) {
    op.gradient({1}, [x = Saved(x), dims, shape = w.shape()](Gradients& g) {
      const Tensor dy = matrix(g.dy(), dims.rows, dims.columns);
      const Tensor input = matrix(x.get(), dims.rows, dims.inner);
      bool accumulates = false;
      if (const Tensor target = g.target(1, accumulates); target.defined()) {
        ops::matmul_into(target.reshape({dims.columns, dims.inner}), dy, input, Transpose::kYes,
                         Transpose::kNo, accumulates);
      } else {
        g.add(1, ops::matmul(dy, input, Transpose::kYes).reshape(shape));
      }
    });
  }
}

Tensor product(const Variable& x, const Variable& w, const Dims& dims) {
  return ops::matmul(matrix(x.value(), dims.rows, dims.inner),
                     matrix(w.value(), dims.columns, dims.inner), Transpose::kNo, Transpose::kYes);
}

/// The type of the product plus its bias: the product first, so that a pending sum (row-parallel)
/// rejects its bias.
ShardingType type_with_bias(const Variable& x, const Variable& w, const Variable& bias,
                            const Dims& dims) {
  if (!x.context().checks_types()) return {};
  const bool takes_gradient = x.takes_gradient() || w.takes_gradient();
  const Variable operands[] = {typed_operand(x, dims.check_types(x, w), takes_gradient), bias};
  return infer_type("linear (bias)", operands,
                    TypeRule()
                        .input(labels_of(dims.lead + dims.outputs))
                        .input(labels_of(dims.outputs, dims.lead))
                        .result(labels_of(dims.lead + dims.outputs))
                        .jointly_linear());
}

}  // namespace

Variable linear(const Variable& x, const Variable& w, int contracted) {
  const Dims dims(x, w, contracted);
  Op op("linear", {x, w}, dims.rule());
  add_product_gradients(op, x, w, dims);
  return op.output(product(x, w, dims).reshape(dims.result));
}

Variable linear(const Variable& x, const Variable& w, const Variable& bias, int contracted) {
  const Dims dims(x, w, contracted);
  const ShardingType type = type_with_bias(x, w, bias, dims);
  if (bias.shape() != w.shape().slice(0, dims.outputs)) {
    throw Error(ErrorCode::kShape,
                fmt::format("linear: the bias {} must have the output dims of w {}",
                            bias.shape().to_string(), w.shape().to_string()));
  }
  Op op("linear", {x, w, bias}, DeclaredType{type});
  add_product_gradients(op, x, w, dims);
  op.gradient({2}, [dims, shape = bias.shape()](Gradients& g) {
    const Tensor dy = matrix(g.dy(), dims.rows, dims.columns);
    g.add(2, ops::sum_to(dy, {dims.columns}).reshape(shape));
  });
  const Tensor y = product(x, w, dims);
  ops::add_into(y, y, matrix(bias.value(), 1, dims.columns));
  return op.output(y.reshape(dims.result));
}

}  // namespace tessera::autograd
