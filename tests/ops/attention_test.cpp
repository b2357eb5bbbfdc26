// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "reference_attention.hpp"
#include "tessera/core/context.hpp"
#include "tessera/core/random.hpp"

namespace tessera {
namespace {

using ops::AttentionMask;
using reference::AttentionSizes;

std::shared_ptr<Context> make_context(int threads = 1) {
  ContextOptions options;
  options.threads = threads;
  return Context::create(options);
}

Tensor tensor_of(Context& context, const Shape& shape, DType dtype,
                 const std::vector<double>& values) {
  if (dtype == DType::kF64) return Tensor::from(context, shape, values);
  return Tensor::from(context, shape, std::vector<float>(values.begin(), values.end()));
}

Tensor random_tensor(Context& context, const Shape& shape, DType dtype, std::uint64_t seed) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = random_normal(RandomKey{seed}, i);
  return tensor_of(context, shape, dtype, values);
}

std::vector<double> doubles(const Tensor& x) {
  if (x.dtype() == DType::kF64) return x.to_vector<double>();
  const auto values = x.to_vector<float>();
  return {values.begin(), values.end()};
}

void expect_near(const Tensor& got, const std::vector<double>& wanted, const char* what) {
  const std::vector<double> values = doubles(got);
  ASSERT_EQ(values.size(), wanted.size());
  const double tolerance = got.dtype() == DType::kF64 ? 2e-14 : 1e-5;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == wanted[i]) continue;  // -inf included
    ASSERT_NEAR(values[i], wanted[i], tolerance * (1.0 + std::abs(wanted[i])))
        << what << " at " << i;
  }
}

bool has_equal_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.is_contiguous() && b.is_contiguous() &&
         std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

struct Operands {
  Tensor q, k, v, dout;
};

Operands make_operands(Context& context, const AttentionSizes& z, DType dtype) {
  const auto i = [](std::size_t x) { return static_cast<std::int64_t>(x); };
  const Shape q{i(z.b), i(z.t), i(z.h), i(z.d)};
  const Shape k{i(z.b), i(z.s), i(z.g), i(z.d)};
  return {random_tensor(context, q, dtype, 1), random_tensor(context, k, dtype, 2),
          random_tensor(context, k, dtype, 3), random_tensor(context, q, dtype, 4)};
}

AttentionMask mask_of(const AttentionSizes& z) {
  return z.is_causal ? AttentionMask::kCausal : AttentionMask::kNone;
}

struct Gradients {
  Tensor dq, dk, dv;
};

Gradients backward(const Operands& x, const ops::AttentionResult& y, const AttentionSizes& z) {
  Context& context = x.q.context();
  // Full of NaN, so that an element that is added to or left out shows.
  const auto nan_like = [&](const Tensor& like) {
    const Tensor out = Tensor::empty(context, like.shape(), like.dtype());
    if (out.bytes() > 0) std::memset(out.raw(), 0xFF, out.bytes());
    return out;
  };
  Gradients g{nan_like(x.q), nan_like(x.k), nan_like(x.v)};
  ops::attention_backward(g.dq, g.dk, g.dv, x.dout, x.q, x.k, x.v, y.out, y.lse, mask_of(z),
                          z.scale);
  return g;
}

class AttentionTest : public testing::TestWithParam<DType> {};

// B, T, S, H, G, D: size 1, odd sizes, whole blocks, one more and one less, grouped heads.
constexpr AttentionSizes kSizes[] = {
    {1, 1, 1, 1, 1, 1, true, 1.0},       {1, 1, 1, 1, 1, 1, false, 1.0},
    {2, 5, 5, 3, 3, 7, true, 0.3},       {2, 5, 9, 3, 1, 7, false, 0.3},
    {1, 64, 64, 2, 2, 64, true, 0.125},  {1, 63, 63, 1, 1, 65, true, 0.125},
    {1, 65, 65, 2, 1, 16, true, 0.25},   {1, 130, 130, 4, 2, 8, true, 0.35},
    {1, 70, 131, 2, 1, 33, false, 0.17}, {2, 200, 3, 2, 2, 24, false, -0.2},
    {1, 1, 300, 1, 1, 80, false, 0.11},  {1, 321, 321, 1, 1, 12, true, 0.3},
    {3, 17, 17, 6, 3, 128, true, 0.09},
};

std::string to_string(const AttentionSizes& z) {
  const auto i = [](std::size_t x) { return static_cast<std::int64_t>(x); };
  return Shape{i(z.b), i(z.t), i(z.s), i(z.h), i(z.g), i(z.d)}.to_string() +
         (z.is_causal ? " causal" : "");
}

TEST_P(AttentionTest, MatchesReference) {
  const auto context = make_context();
  for (const AttentionSizes& z : kSizes) {
    SCOPED_TRACE(to_string(z));
    const Operands x = make_operands(*context, z, GetParam());
    const auto got = ops::attention(x.q, x.k, x.v, mask_of(z), z.scale);
    const auto wanted = reference::attention(z, doubles(x.q), doubles(x.k), doubles(x.v));
    expect_near(got.out, wanted.out, "out");
    expect_near(got.lse, wanted.lse, "lse");
  }
}

TEST_P(AttentionTest, GradientsMatchReference) {
  const auto context = make_context();
  for (const AttentionSizes& z : kSizes) {
    SCOPED_TRACE(to_string(z));
    const Operands x = make_operands(*context, z, GetParam());
    const auto y = ops::attention(x.q, x.k, x.v, mask_of(z), z.scale);
    const Gradients got = backward(x, y, z);
    const auto wanted =
        reference::attention_backward(z, doubles(x.q), doubles(x.k), doubles(x.v), doubles(x.dout));
    expect_near(got.dq, wanted.dq, "dq");
    expect_near(got.dk, wanted.dk, "dk");
    expect_near(got.dv, wanted.dv, "dv");
  }
}

TEST_P(AttentionTest, TakesViewsOfAPackedProjection) {
  const auto context = make_context();
  const AttentionSizes z{2, 67, 67, 3, 3, 20, true, 0.2};
  const Tensor packed = random_tensor(*context, {2, 67, 3, 3, 20}, GetParam(), 5);
  const Operands x{packed.select(2, 0), packed.select(2, 1), packed.select(2, 2),
                   random_tensor(*context, {2, 67, 3, 20}, GetParam(), 4)};
  const auto y = ops::attention(x.q, x.k, x.v, AttentionMask::kCausal, z.scale);
  const auto wanted = reference::attention(z, doubles(x.q), doubles(x.k), doubles(x.v));
  expect_near(y.out, wanted.out, "out");
  const Tensor dpacked = Tensor::zeros(*context, packed.shape(), GetParam());
  const auto version = dpacked.storage()->version();
  ops::attention_backward(dpacked.select(2, 0), dpacked.select(2, 1), dpacked.select(2, 2), x.dout,
                          x.q, x.k, x.v, y.out, y.lse, AttentionMask::kCausal, z.scale);
  const auto gradients =
      reference::attention_backward(z, doubles(x.q), doubles(x.k), doubles(x.v), doubles(x.dout));
  expect_near(dpacked.select(2, 0), gradients.dq, "dq");
  expect_near(dpacked.select(2, 1), gradients.dk, "dk");
  expect_near(dpacked.select(2, 2), gradients.dv, "dv");
  EXPECT_GT(dpacked.storage()->version(), version);
}

TEST_P(AttentionTest, TakesAnyStridesOfItsInputs) {
  const auto context = make_context();
  const AttentionSizes z{2, 9, 9, 4, 2, 6, true, 0.4};
  const Operands x = make_operands(*context, z, GetParam());
  const auto y = ops::attention(x.q, x.k, x.v, AttentionMask::kCausal, z.scale);
  const Gradients g = backward(x, y, z);
  // The same elements with D, then H, outermost.
  const auto scattered = [&](const Tensor& t) {
    const Tensor moved = t.permute({3, 2, 0, 1});
    return tensor_of(*context, moved.shape(), t.dtype(), doubles(moved)).permute({2, 3, 1, 0});
  };
  const Operands sx{scattered(x.q), scattered(x.k), scattered(x.v), scattered(x.dout)};
  const auto sy = ops::attention(sx.q, sx.k, sx.v, AttentionMask::kCausal, z.scale);
  EXPECT_TRUE(has_equal_bits(sy.out, y.out));
  EXPECT_TRUE(has_equal_bits(sy.lse, y.lse));
  const Gradients sg = backward(sx, {scattered(y.out), sy.lse}, z);
  EXPECT_TRUE(has_equal_bits(sg.dq, g.dq));
  EXPECT_TRUE(has_equal_bits(sg.dk, g.dk));
  EXPECT_TRUE(has_equal_bits(sg.dv, g.dv));
}

TEST_P(AttentionTest, GivesEqualBitsForAnyThreadCount) {
  const auto context = make_context();
  const AttentionSizes z{2, 300, 300, 6, 3, 40, true, 0.2};
  const Operands x = make_operands(*context, z, GetParam());
  const auto y = ops::attention(x.q, x.k, x.v, AttentionMask::kCausal, z.scale);
  const Gradients g = backward(x, y, z);
  for (const int threads : {2, 3, 8}) {
    context->stream().set_threads(threads);
    const auto other = ops::attention(x.q, x.k, x.v, AttentionMask::kCausal, z.scale);
    EXPECT_TRUE(has_equal_bits(other.out, y.out)) << threads;
    EXPECT_TRUE(has_equal_bits(other.lse, y.lse)) << threads;
    const Gradients h = backward(x, y, z);
    EXPECT_TRUE(has_equal_bits(h.dq, g.dq)) << threads;
    EXPECT_TRUE(has_equal_bits(h.dk, g.dk)) << threads;
    EXPECT_TRUE(has_equal_bits(h.dv, g.dv)) << threads;
  }
}

TEST_P(AttentionTest, GivesASequenceTheSameBitsInAnyBatchAndAnyPrefix) {
  const auto context = make_context();
  const AttentionSizes z{3, 300, 300, 2, 2, 24, true, 0.2};
  const Operands x = make_operands(*context, z, GetParam());
  const Tensor all = ops::attention(x.q, x.k, x.v, AttentionMask::kCausal, z.scale).out;
  const auto part = [](const Tensor& t, std::int64_t length) {
    return t.narrow(0, 1, 1).narrow(1, 0, length);
  };
  for (const std::int64_t length : {1, 63, 64, 65, 100, 256, 257, 300}) {
    const auto one = ops::attention(part(x.q, length), part(x.k, length), part(x.v, length),
                                    AttentionMask::kCausal, z.scale);
    EXPECT_EQ(doubles(one.out), doubles(part(all, length))) << length;
  }
}

TEST_P(AttentionTest, DoesNotSeeTheFuture) {
  const auto context = make_context();
  const AttentionSizes z{1, 100, 100, 1, 1, 8, true, 0.3};
  Operands x = make_operands(*context, z, GetParam());
  const auto before = ops::attention(x.q, x.k, x.v, AttentionMask::kCausal, z.scale);
  for (const Tensor& t : {x.k, x.v}) {
    const Tensor tail = t.narrow(1, 70, 30);
    std::memset(tail.raw(), 0x7F, tail.bytes());  // 3.4e38 in f32, 1.4e306 in f64
  }
  const auto after = ops::attention(x.q, x.k, x.v, AttentionMask::kCausal, z.scale);
  EXPECT_EQ(doubles(after.out.narrow(1, 0, 70)), doubles(before.out.narrow(1, 0, 70)));
}

TEST_P(AttentionTest, KeepsWeightsOfLargeScoresFinite) {
  const auto context = make_context();
  const AttentionSizes z{1, 80, 80, 1, 1, 4, true, 1.0e3};
  const Operands x = make_operands(*context, z, GetParam());
  const auto y = ops::attention(x.q, x.k, x.v, AttentionMask::kCausal, z.scale);
  const Gradients g = backward(x, y, z);
  for (const Tensor& t : {y.out, y.lse, g.dq, g.dk, g.dv}) {
    for (const double value : doubles(t)) ASSERT_TRUE(std::isfinite(value));
  }
}

/// Far below the largest score a weight is small, not cut off: e^-40 of 1e30 counts.
TEST_P(AttentionTest, KeepsSmallWeights) {
  const auto context = make_context();
  const Tensor q = tensor_of(*context, {1, 1, 1, 1}, GetParam(), {1.0});
  const Tensor k = tensor_of(*context, {1, 2, 1, 1}, GetParam(), {0.0, -40.0});
  const Tensor v = tensor_of(*context, {1, 2, 1, 1}, GetParam(), {0.0, 1e30});
  const auto y = ops::attention(q, k, v, AttentionMask::kNone, 1.0);
  EXPECT_NEAR(doubles(y.out)[0] / (1e30 * std::exp(-40.0)), 1.0, 1e-5);
}

TEST_P(AttentionTest, GivesZerosWhereNothingIsSeen) {
  const auto context = make_context();
  const AttentionSizes z{1, 3, 0, 2, 1, 4, false, 1.0};
  const Operands x = make_operands(*context, z, GetParam());
  const auto y = ops::attention(x.q, x.k, x.v, AttentionMask::kNone, 1.0);
  EXPECT_EQ(doubles(y.out), std::vector<double>(24, 0.0));
  EXPECT_EQ(doubles(y.lse), std::vector<double>(6, -std::numeric_limits<double>::infinity()));
  EXPECT_EQ(doubles(backward(x, y, z).dq), std::vector<double>(24, 0.0));

  // Scores of -inf hide a key as a mask does.
  const AttentionSizes w{1, 2, 2, 1, 1, 1, false, 1.0};
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor q = tensor_of(*context, {1, 2, 1, 1}, GetParam(), {1.0, 2.0});
  const Tensor k = tensor_of(*context, {1, 2, 1, 1}, GetParam(), {-infinity, -infinity});
  const Tensor v = tensor_of(*context, {1, 2, 1, 1}, GetParam(), {3.0, 4.0});
  const auto hidden = ops::attention(q, k, v, AttentionMask::kNone, 1.0);
  EXPECT_EQ(doubles(hidden.out), std::vector<double>(2, 0.0));
  EXPECT_EQ(doubles(hidden.lse), std::vector<double>(2, -infinity));
  EXPECT_EQ(doubles(backward({q, k, v, v}, hidden, w).dv), std::vector<double>(2, 0.0));
}

TEST_P(AttentionTest, KeepsNaN) {
  const auto context = make_context();
  const AttentionSizes z{1, 40, 40, 1, 1, 8, true, 0.3};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const bool is_query : {true, false}) {
    const Operands x = make_operands(*context, z, GetParam());
    std::vector<double> values = doubles(is_query ? x.q : x.k);
    values[20 * 8] = nan;
    const Tensor spoilt = tensor_of(*context, x.q.shape(), GetParam(), values);
    const auto y = ops::attention(is_query ? spoilt : x.q, is_query ? x.k : spoilt, x.v,
                                  AttentionMask::kCausal, z.scale);
    const auto out = doubles(y.out);
    EXPECT_FALSE(std::isnan(out[19 * 8]));
    EXPECT_TRUE(std::isnan(out[20 * 8]));
    EXPECT_EQ(std::isnan(out[39 * 8]), !is_query);
  }
}

TEST_P(AttentionTest, GivesEmptyResults) {
  const auto context = make_context();
  for (const AttentionSizes& z :
       {AttentionSizes{0, 3, 3, 2, 1, 4, true, 1.0}, AttentionSizes{2, 0, 0, 2, 1, 4, true, 1.0},
        AttentionSizes{2, 3, 3, 2, 1, 0, true, 1.0},
        AttentionSizes{2, 0, 3, 2, 1, 4, false, 1.0}}) {
    const Operands x = make_operands(*context, z, GetParam());
    const auto y = ops::attention(x.q, x.k, x.v, mask_of(z), 1.0);
    EXPECT_EQ(y.out.shape(), x.q.shape());
    const Gradients g = backward(x, y, z);
    EXPECT_EQ(doubles(g.dk), std::vector<double>(static_cast<std::size_t>(x.k.numel()), 0.0));
  }
}

TEST_P(AttentionTest, GivesItsWorkspaceBack) {
  const auto context = make_context();
  const AttentionSizes z{1, 65, 65, 2, 1, 16, true, 0.25};
  const Operands x = make_operands(*context, z, GetParam());
  const auto y = ops::attention(x.q, x.k, x.v, mask_of(z), z.scale);
  const Gradients g = backward(x, y, z);
  EXPECT_GT(context->memory().peak(MemoryCategory::kWorkspace), 0U);
  EXPECT_EQ(context->memory().current(MemoryCategory::kWorkspace), 0U);
}

INSTANTIATE_TEST_SUITE_P(, AttentionTest, testing::Values(DType::kF32, DType::kF64),
                         [](const auto& info) {
                           return std::string("cpu_") + to_string(info.param);
                         });

TEST(AttentionGradientTest, MatchesFiniteDifferences) {
  const auto context = make_context();
  for (const AttentionSizes& z : {AttentionSizes{2, 5, 5, 4, 2, 3, true, 0.6},
                                  AttentionSizes{1, 3, 6, 2, 1, 5, false, 0.6}}) {
    const Operands x = make_operands(*context, z, DType::kF64);
    const auto dout = doubles(x.dout);
    const auto loss = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
      const auto out = doubles(ops::attention(q, k, v, mask_of(z), z.scale).out);
      double sum = 0.0;
      for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
      return sum;
    };
    const auto y = ops::attention(x.q, x.k, x.v, mask_of(z), z.scale);
    const Gradients g = backward(x, y, z);
    const auto check = [&](const Tensor& at, const Tensor& gradient) {
      const auto analytic = doubles(gradient);
      for (std::size_t i = 0; i < analytic.size(); ++i) {
        constexpr double kStep = 1e-5;
        double& element = at.data<double>()[i];
        const double value = element;
        element = value + kStep;
        const double above = loss(x.q, x.k, x.v);
        element = value - kStep;
        const double below = loss(x.q, x.k, x.v);
        element = value;
        EXPECT_NEAR(analytic[i], (above - below) / (2.0 * kStep), 1e-8) << i;
      }
    };
    check(x.q, g.dq);
    check(x.k, g.dk);
    check(x.v, g.dv);
  }
}

ErrorCode code_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kInternal;
}

TEST(AttentionErrorTest, RejectsShapesThatDoNotFit) {
  const auto context = make_context();
  const auto zeros = [&](const Shape& shape) {
    return Tensor::zeros(*context, shape, DType::kF32);
  };
  const auto code = [&](const Shape& q, const Shape& k, const Shape& v, AttentionMask mask) {
    return code_of([&] { ops::attention(zeros(q), zeros(k), zeros(v), mask, 1.0); });
  };
  constexpr auto kNone = AttentionMask::kNone;
  const Shape q{2, 5, 4, 8};
  EXPECT_EQ(code({5, 4, 8}, q, q, kNone), ErrorCode::kShape);
  EXPECT_EQ(code(q, {5, 4, 8}, q, kNone), ErrorCode::kShape);
  EXPECT_EQ(code(q, {2, 5, 2, 8}, {2, 5, 4, 8}, kNone), ErrorCode::kShape);
  EXPECT_EQ(code(q, {1, 5, 4, 8}, {1, 5, 4, 8}, kNone), ErrorCode::kShape);
  EXPECT_EQ(code(q, {2, 5, 4, 7}, {2, 5, 4, 7}, kNone), ErrorCode::kShape);
  EXPECT_EQ(code(q, {2, 5, 3, 8}, {2, 5, 3, 8}, kNone), ErrorCode::kShape);
  EXPECT_EQ(code(q, {2, 5, 0, 8}, {2, 5, 0, 8}, kNone), ErrorCode::kShape);
  EXPECT_EQ(code(q, {2, 6, 4, 8}, {2, 6, 4, 8}, AttentionMask::kCausal), ErrorCode::kShape);
}

TEST(AttentionErrorTest, BackwardRejectsWhatDoesNotBelongToTheForward) {
  const auto context = make_context();
  const auto zeros = [&](const Shape& shape, DType dtype = DType::kF32) {
    return Tensor::zeros(*context, shape, dtype);
  };
  const Shape shape{1, 3, 2, 4};
  const Tensor x = zeros(shape);
  const Tensor lse = zeros({1, 2, 3});
  const auto code = [&](const Tensor& dq, const Tensor& dout, const Tensor& out, const Tensor& l) {
    return code_of([&] {
      ops::attention_backward(dq, zeros(shape), zeros(shape), dout, x, x, x, out, l,
                              AttentionMask::kNone, 1.0);
    });
  };
  EXPECT_EQ(code(zeros({1, 3, 4, 2}), x, x, lse), ErrorCode::kShape);
  EXPECT_EQ(code(zeros(shape), zeros({1, 3, 2, 5}), x, lse), ErrorCode::kShape);
  EXPECT_EQ(code(zeros(shape), x, zeros({1, 3, 2, 5}), lse), ErrorCode::kShape);
  EXPECT_EQ(code(zeros(shape), x, x, zeros({1, 3, 2})), ErrorCode::kShape);
  EXPECT_EQ(code(zeros(shape, DType::kF64), x, x, lse), ErrorCode::kDType);
  EXPECT_EQ(code(zeros(shape), zeros(shape, DType::kF64), x, lse), ErrorCode::kDType);
  EXPECT_EQ(code(zeros(shape), x, x, zeros({1, 2, 3}, DType::kF64)), ErrorCode::kDType);
  EXPECT_EQ(code(zeros({4, 3, 2, 1}).permute({3, 1, 2, 0}), x, x, lse),
            ErrorCode::kInvalidArgument);
}

TEST(AttentionErrorTest, RejectsOtherDtypes) {
  const auto context = make_context();
  const auto zeros = [&](DType dtype) { return Tensor::zeros(*context, {1, 2, 1, 2}, dtype); };
  const auto code = [&](DType q, DType k) {
    return code_of(
        [&] { ops::attention(zeros(q), zeros(k), zeros(k), AttentionMask::kNone, 1.0); });
  };
  EXPECT_EQ(code(DType::kBF16, DType::kBF16), ErrorCode::kDType);
  EXPECT_EQ(code(DType::kI32, DType::kI32), ErrorCode::kDType);
  EXPECT_EQ(code(DType::kF32, DType::kF64), ErrorCode::kDType);
}

}  // namespace
}  // namespace tessera
