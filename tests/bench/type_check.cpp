// SPDX-License-Identifier: Apache-2.0
// What the sharding types cost per op: ns of infer_type for operands as in a model on six axes, and
// of a whole op with and without the check. The budget of the check is 200 ns.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "tessera/autograd/activation.hpp"
#include "tessera/autograd/type_rule.hpp"
#include "tessera/core/context.hpp"

namespace {

using namespace tessera;            // NOLINT
using namespace tessera::autograd;  // NOLINT

/// The fastest of some rounds: ns per call.
double time_ns(const std::function<void()>& call) {
  constexpr int kRounds = 15;
  constexpr int kCalls = 20000;
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
    best = std::min(best, spent.count() / kCalls);
  }
  return best;
}

ShardingType type_of(const AxisTable* axes, const AxisType& dp, const AxisType& tp) {
  ShardingType type(axes);
  for (int a = 0; a < type.count(); ++a) type[a] = AxisType::replicate();
  return type.with(0, dp).with(1, tp);
}

}  // namespace

int main() {
  volatile int sink = 0;
  for (const int count : {1, 3, 6}) {
    const auto context = Context::create();
    AxisTable table;
    for (int a = 0; a < count; ++a) table.axes.push_back({fmt::format("a{}", a), 2, 0});
    if (count == 1) table.axes.push_back({"one", 1, 0});
    const AxisTable* axes = context->intern_axes(table);
    const auto leaf = [&](const Shape& shape, const AxisType& dp, const AxisType& tp) {
      return Variable(Tensor::zeros(*context, shape, DType::kF32), type_of(axes, dp, tp),
                      TakesGradient::kYes);
    };
    const Variable x = leaf({2, 2, 2}, AxisType::shard(0), AxisType::replicate());
    const Variable w = leaf({2, 2}, AxisType::replicate(), AxisType::shard(0));
    const Variable product[] = {x, w};
    const TypeRule product_rule =
        TypeRule().input({0, 1, 2}).input({3, 2}).result({0, 1, 3}).linear_in(0).linear_in(1);
    const double unary = time_ns([&] {
      sink = sink + infer_type("gelu", {&x, 1}, elementwise_rule(3)).count();
    });
    const double binary =
        time_ns([&] { sink = sink + infer_type("linear", product, product_rule).count(); });
    fmt::print("{} axes: infer_type, one operand {:.0f} ns, two operands {:.0f} ns\n",
               table.count(), unary, binary);
  }
  for (const bool checks : {true, false}) {
    ContextOptions options;
    options.check_types = checks;
    const auto context = Context::create(options);
    AxisTable table;
    for (int a = 0; a < 6; ++a) table.axes.push_back({fmt::format("a{}", a), 2, 0});
    const AxisTable* axes = context->intern_axes(table);
    const Variable x(Tensor::zeros(*context, {2, 2}, DType::kF32), ShardingType(axes),
                     TakesGradient::kYes);
    fmt::print("gelu of 4 elements, graph recorded, types {}: {:.0f} ns\n",
               checks ? "checked" : "not checked",
               time_ns([&] { sink = sink + activation(x, ops::Activation::kGelu).rank(); }));
  }
  return EXIT_SUCCESS;
}
