// SPDX-License-Identifier: Apache-2.0
// For every differentiable function: operands as whole tensors, and a call that works on wholes and
// on pieces. And the placements that the rules reject although the numbers would be right.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "graph.hpp"
#include "tessera/autograd/add.hpp"
#include "tessera/autograd/attention.hpp"
#include "tessera/autograd/cast.hpp"
#include "tessera/autograd/concat.hpp"
#include "tessera/autograd/cross_entropy.hpp"
#include "tessera/autograd/dropout.hpp"
#include "tessera/autograd/embedding.hpp"
#include "tessera/autograd/gated_activation.hpp"
#include "tessera/autograd/layer_norm.hpp"
#include "tessera/autograd/mul.hpp"
#include "tessera/autograd/narrow.hpp"
#include "tessera/autograd/on_gradient.hpp"
#include "tessera/autograd/permute.hpp"
#include "tessera/autograd/recompute.hpp"
#include "tessera/autograd/rms_norm.hpp"
#include "tessera/autograd/rope.hpp"
#include "tessera/autograd/scale.hpp"
#include "tessera/autograd/softmax.hpp"
#include "tessera/autograd/sum.hpp"
#include "tessera/autograd/unbind.hpp"

namespace tessera::autograd::testing {

struct CaseOperand {
  Shape shape;
  int index_limit = 0;  ///< > 0: i32 indices below it
  TakesGradient takes = TakesGradient::kYes;
  int unit = 1;  ///< of splits of `unit_dim`
  int unit_dim = 0;
};

struct ShardingCase {
  std::string stem;   ///< of the header that declares the function
  std::string label;  ///< tells the cases of one stem apart
  std::vector<CaseOperand> operands;
  Function call;
  bool in_two_axes = false;  ///< also tested over two axes
};

inline void PrintTo(const ShardingCase& c, std::ostream* out) { *out << c.stem << " " << c.label; }

inline CaseOperand constant(const Shape& shape) { return {shape, 0, TakesGradient::kNo, 1}; }
inline CaseOperand index_below(int limit, const Shape& shape) {
  return {shape, limit, TakesGradient::kNo, 1};
}

using Operands = std::vector<Variable>;

inline std::vector<ShardingCase> product_cases() {
  const Function product = [](const Operands& v) { return linear(v[0], v[1]); };
  const Function biased = [](const Operands& v) { return linear(v[0], v[1], v[2]); };
  return {
      {"linear", "plain", {{{6, 5}}, {{4, 5}}}, product, true},
      {"linear", "packed", {{{3, 2, 6}}, {{2, 3, 6}}}, product},
      {"linear", "constant_weight", {{{6, 5}}, constant({4, 5})}, product},
      {"linear", "constant_input", {constant({6, 5}), {{4, 5}}}, product},
      {"linear",
       "two_contracted",
       {{{5, 2, 3}}, {{4, 2, 3}}},
       [](const Operands& v) { return linear(v[0], v[1], 2); }},
      {"linear", "bias", {{{6, 5}}, {{4, 5}}, {{4}}}, biased, true},
      {"linear", "packed_bias", {{{6, 3}}, {{2, 3, 3}}, {{2, 3}}}, biased},
  };
}

inline std::vector<ShardingCase> elementwise_cases() {
  const Function product_of_two = [](const Operands& v) { return mul(v[0], v[1]); };
  const Function sum_of_two = [](const Operands& v) { return add(v[0], v[1]); };
  return {
      {"add", "alike", {{{6, 5}}, {{6, 5}}}, sum_of_two, true},
      {"add", "row", {{{6, 5}}, {{5}}}, sum_of_two, true},
      {"add", "column", {{{6, 5}}, {{6, 1}}}, sum_of_two},
      {"add", "single_row", {{{3, 4}}, {{1, 4}}}, sum_of_two},
      {"add", "constant_row", {{{6, 5}}, constant({5})}, sum_of_two},
      {"add", "outer", {{{6, 1}}, {{1, 4}}}, sum_of_two},
      {"scale", "", {{{6, 5}}}, [](const Operands& v) { return scale(v[0], -1.5); }},
      {"mul", "alike", {{{6, 5}}, {{6, 5}}}, product_of_two, true},
      {"mul", "row", {{{6, 5}}, {{5}}}, product_of_two, true},
      {"mul", "column", {{{6, 5}}, {{6, 1}}}, product_of_two},
      {"mul", "constant_row", {{{6, 5}}, constant({5})}, product_of_two},
      {"mul", "outer", {{{6, 1}}, {{1, 4}}}, product_of_two},
      {"gated_activation",
       "",
       {{{5, 2, 6}}},
       [](const Operands& v) { return gated_activation(v[0], ops::Activation::kSilu); },
       true},
      {"activation", "", {{{6, 5}}}, [](const Operands& v) { return gelu(v[0]); }, true},
      {"cast", "", {{{6, 5}}}, [](const Operands& v) { return cast(v[0], DType::kF64); }},
      {"dropout",
       "",
       {{{11, 7}}},  // chunks that are not alike
       [](const Operands& v) { return dropout(v[0], 0.5, RandomKey{4}); },
       true},
      {"on_gradient",
       "",
       {{{6, 5}}},
       [](const Operands& v) { return on_gradient(v[0], [](const Tensor&) {}); }},
  };
}

inline std::vector<ShardingCase> view_cases() {
  return {
      {"permute",
       "",
       {{{6, 5, 2}}},
       [](const Operands& v) {
         return permute(v[0], {2, 0, 1});
       }},
      {"narrow", "", {{{6, 5}}}, [](const Operands& v) { return narrow(v[0], 0, 0, 2); }},
      {"reshape",
       "merge",
       {{{5, 4, 5}}},
       [](const Operands& v) {
         const Shape& s = v[0].shape();
         return reshape(v[0], {s[0] * s[1], s[2]});
       },
       true},
      {"reshape",
       "split_whole_units",
       {{{12, 5}, 0, TakesGradient::kYes, 2}},
       [](const Operands& v) {
         const Shape& s = v[0].shape();
         return reshape(v[0], {s[0] / 2, 2, s[1]});
       }},
      {"reshape",
       "split",
       {{{12, 5}}},
       [](const Operands& v) {
         const Shape& s = v[0].shape();
         return reshape(v[0], {s[0] / 2, 2, s[1]});
       }},
      {"reshape",
       "single",
       {{{6, 5}}},
       [](const Operands& v) {
         const Shape& s = v[0].shape();
         return reshape(v[0], {1, s[0], 1, s[1]});
       }},
      {"sum", "all", {{{6, 5}}}, [](const Operands& v) { return sum(v[0]); }, true},
      {"concat",
       "",
       {{{6, 2, 5}}, {{6, 3, 5}}},
       [](const Operands& v) { return concat(v, 1); },
       true},
      {"unbind",
       "",
       {{{6, 3, 5}}},
       [](const Operands& v) {
         const std::vector<Variable> parts = unbind(v[0], 1);
         return mul(parts.front(), parts.back());
       }},
      {"mean", "all", {{{5, 7}}}, [](const Operands& v) { return mean(v[0]); }, true},
      {"mean",
       "middle",
       {{{6, 5, 2}}},
       [](const Operands& v) {
         const int dims[] = {1};
         return mean(v[0], dims);
       }},
      {"sum",
       "middle",
       {{{6, 5, 2}}},
       [](const Operands& v) {
         const int dims[] = {1};
         return sum(v[0], dims);
       }},
  };
}

inline RopeTable small_rope_table(Context& context) {
  return make_rope_table(context, {1.0, 0.3}, 7, DType::kF64);
}

inline std::vector<ShardingCase> model_cases() {
  const Function attend = [](const Operands& v) { return attention(v[0], v[1], v[2]); };
  const Function attend_all = [](const Operands& v) {
    return attention(v[0], v[1], v[2], ops::AttentionMask::kNone);
  };
  const CaseOperand heads{{3, 6, 4, 2}};
  const CaseOperand queries{{2, 3, 6, 2}, 0, TakesGradient::kYes, 2, 2};  // 2 per key head
  return {
      {"layer_norm",
       "",
       {{{6, 5}}, {{5}}, {{5}}},
       [](const Operands& v) { return layer_norm(v[0], v[1], v[2]); },
       true},
      {"rms_norm",
       "",
       {{{6, 5}}, {{5}}},
       [](const Operands& v) { return rms_norm(v[0], v[1]); },
       true},
      {"add_rms_norm",
       "",
       {{{6, 5}}, {{6, 5}}, {{5}}},
       [](const Operands& v) {
         const NormedSum r = add_rms_norm(v[0], v[1], v[2]);
         return mul(r.normed, r.sum);
       }},
      {"softmax", "", {{{5, 3, 4}}}, [](const Operands& v) { return softmax(v[0]); }, true},
      {"rope",
       "",
       {{{3, 5, 2, 4}}},
       [](const Operands& v) { return rope(v[0], small_rope_table(v[0].context())); },
       true},
      {"rope",
       "positions",
       {{{3, 5, 2, 4}}, index_below(7, {3, 5})},
       [](const Operands& v) { return rope(v[0], small_rope_table(v[0].context()), v[1]); }},
      {"attention", "causal", {heads, heads, heads}, attend},
      {"attention", "full", {{{2, 3, 3, 3}}, {{2, 4, 3, 3}}, {{2, 4, 3, 3}}}, attend_all},
      {"attention", "grouped", {queries, {{2, 3, 3, 2}}, {{2, 3, 3, 2}}}, attend},
      {"attention", "one_key_head", {{{2, 3, 6, 2}}, {{2, 3, 1, 2}}, {{2, 3, 1, 2}}}, attend},
      {"attention",
       "packed",
       {{{3, 4, 3, 6, 2}}},
       [](const Operands& v) { return attention(v[0]); },
       true},
      {"embedding",
       "",
       {{{6, 5}}, index_below(6, {4, 3})},
       [](const Operands& v) { return embedding(v[0], v[1]); },
       true},
      {"cross_entropy",
       "",
       {{{6, 2, 5}}, index_below(5, {6, 2})},
       [](const Operands& v) { return cross_entropy(v[0], v[1]); },
       true},
      {"linear_cross_entropy",
       "",
       {{{5, 2, 4}}, {{6, 4}}, index_below(6, {5, 2})},
       [](const Operands& v) { return linear_cross_entropy(v[0], v[1], v[2]); },
       true},
      {"recompute",
       "",
       {{{6, 5}}, {{4, 5}}},
       [](const Operands& v) {
         const Region region = [w = v[1]](std::span<const Variable> in) {
           return std::vector<Variable>{linear(gelu(in[0]), w)};
         };
         return recompute(region, {&v[0], 1})[0];
       }},
  };
}

inline std::vector<ShardingCase> sharding_cases() {
  std::vector<ShardingCase> all;
  for (const auto& group : {product_cases(), elementwise_cases(), view_cases(), model_cases()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

/// Rejected although the numbers would come out right: case, operand types, and why.
struct ConservativeRejection {
  std::string name;
  std::string types;
  std::string reason;
};

inline std::vector<ConservativeRejection> conservative_rejections() {
  return {
      {"dropout", "P", "linear, but elements of V or P have no place in a global tensor by rule"},
      {"dropout", "V", "the same; each rank would use one mask for other values"},
      {"layer_norm", "R, P, P", "jointly linear in weight and bias, which the rules cannot say"},
      {"add_rms_norm", "R, R, P",
       "the norm is linear in its weight, but the sum is no part of that"},
      {"mean.all", "V", "the number of elements is unknown"},
      {"mean.middle", "V", "the same"},
      {"rope", "V", "the tokens have no known position"},
      {"reshape.split", "S(0)", "balanced chunks of single elements need not hold whole groups"},
  };
}

}  // namespace tessera::autograd::testing
