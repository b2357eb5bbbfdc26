// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/matmul.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reference_matmul.hpp"
#include "tessera/core/context.hpp"
#include "tessera/core/random.hpp"

namespace tessera {
namespace {

using ops::Transpose;
using reference::Matrix;

std::shared_ptr<Context> make_context(Numerics numerics = Numerics::kDeterministic,
                                      int threads = 1) {
  ContextOptions options;
  options.threads = threads;
  options.numerics = numerics;
  return Context::create(options);
}

template <typename T>
std::vector<T> random_values(std::int64_t count, std::uint64_t seed) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<T>(random_normal(RandomKey{seed}, i));
  }
  return values;
}

Tensor random_tensor(Context& context, const Shape& shape, DType dtype, std::uint64_t seed) {
  return dtype == DType::kF64
             ? Tensor::from(context, shape, random_values<double>(shape.numel(), seed))
             : Tensor::from(context, shape, random_values<float>(shape.numel(), seed));
}

std::vector<double> doubles(const Tensor& x) {
  if (x.dtype() == DType::kF64) return x.to_vector<double>();
  const auto values = x.to_vector<float>();
  return {values.begin(), values.end()};
}

/// The last two dims of `x` (leading dims: index `batch` of them) as op(x).
Matrix matrix_of(const Tensor& x, Transpose transpose, std::int64_t batch = 0) {
  const auto rows = static_cast<std::size_t>(x.shape().back(1));
  const auto columns = static_cast<std::size_t>(x.shape().back(0));
  const std::vector<double> all = doubles(x);
  const auto* first = all.data() + static_cast<std::size_t>(batch) * rows * columns;
  const Matrix plain(rows, columns, std::vector<double>(first, first + rows * columns));
  return transpose == Transpose::kYes ? reference::transposed(plain) : plain;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted, DType dtype,
                 std::int64_t k) {
  ASSERT_EQ(got.size(), wanted.size());
  const double epsilon = dtype == DType::kF64 ? 2.2e-16 : 1.2e-7;
  const double tolerance = 8.0 * epsilon * (1.0 + static_cast<double>(k));
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], wanted[i], tolerance * (1.0 + std::abs(wanted[i]))) << "element " << i;
  }
}

bool has_equal_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.is_contiguous() && b.is_contiguous() &&
         std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

struct Case {
  DType dtype;
  Transpose transpose_a, transpose_b;
  Numerics numerics;
};

std::string name_of(const Case& c) {
  return std::string("cpu_") + to_string(c.dtype) + "_" +
         (c.transpose_a == Transpose::kYes ? 't' : 'n') +
         (c.transpose_b == Transpose::kYes ? 't' : 'n') +
         (c.numerics == Numerics::kLayoutInvariant ? "_invariant" : "");
}

class MatmulTest : public testing::TestWithParam<Case> {
 protected:
  Tensor left(const Shape& lead, std::int64_t m, std::int64_t k, std::uint64_t seed) {
    return operand(lead, m, k, GetParam().transpose_a, seed);
  }
  Tensor right(const Shape& lead, std::int64_t k, std::int64_t n, std::uint64_t seed) {
    return operand(lead, k, n, GetParam().transpose_b, seed);
  }
  Tensor multiply(const Tensor& a, const Tensor& b) {
    return ops::matmul(a, b, GetParam().transpose_a, GetParam().transpose_b);
  }

  std::shared_ptr<Context> context_ = make_context(GetParam().numerics);

 private:
  Tensor operand(Shape lead, std::int64_t rows, std::int64_t columns, Transpose transpose,
                 std::uint64_t seed) {
    const bool is_transposed = transpose == Transpose::kYes;
    lead.push_back(is_transposed ? columns : rows);
    lead.push_back(is_transposed ? rows : columns);
    return random_tensor(*context_, lead, GetParam().dtype, seed);
  }
};

struct Sizes {
  std::int64_t m, n, k;
};

std::string to_string(const Sizes& z) { return Shape{z.m, z.n, z.k}.to_string(); }

// Sizes 1, odd sizes, whole tiles, one more and one less, and more than a block in every direction.
constexpr Sizes kSizes[] = {{1, 1, 1},    {1, 1, 300},  {1, 40, 3},    {40, 1, 3},
                            {2, 3, 1},    {7, 5, 13},   {8, 32, 256},  {9, 33, 257},
                            {6, 16, 255}, {65, 63, 31}, {24, 96, 513}, {491, 779, 5}};

TEST_P(MatmulTest, MatchesReference) {
  for (const Sizes& z : kSizes) {
    SCOPED_TRACE(to_string(z));
    const Tensor a = left({}, z.m, z.k, 1);
    const Tensor b = right({}, z.k, z.n, 2);
    const Tensor c = multiply(a, b);
    ASSERT_EQ(c.shape(), (Shape{z.m, z.n}));
    expect_near(doubles(c),
                reference::matmul(matrix_of(a, GetParam().transpose_a),
                                  matrix_of(b, GetParam().transpose_b))
                    .values,
                GetParam().dtype, z.k);
  }
}

TEST_P(MatmulTest, AddsToTheTarget) {
  for (const Sizes& z : kSizes) {
    SCOPED_TRACE(to_string(z));
    const Tensor a = left({}, z.m, z.k, 1);
    const Tensor b = right({}, z.k, z.n, 2);
    const Tensor c = random_tensor(*context_, {z.m, z.n}, GetParam().dtype, 3);
    std::vector<double> wanted = doubles(c);
    const Matrix product = reference::matmul(matrix_of(a, GetParam().transpose_a),
                                             matrix_of(b, GetParam().transpose_b));
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += product.values[i];
    const auto version = c.storage()->version();
    ops::matmul_into(c, a, b, GetParam().transpose_a, GetParam().transpose_b, true);
    expect_near(doubles(c), wanted, GetParam().dtype, z.k);
    EXPECT_GT(c.storage()->version(), version);
  }
}

TEST_P(MatmulTest, MultipliesEveryMatrixOfABatch) {
  const Tensor a = left({2, 3}, 5, 7, 1);
  const Tensor b = right({2, 3}, 7, 9, 2);
  const Tensor c = multiply(a, b);
  ASSERT_EQ(c.shape(), (Shape{2, 3, 5, 9}));
  for (std::int64_t batch = 0; batch < 6; ++batch) {
    expect_near(matrix_of(c, Transpose::kNo, batch).values,
                reference::matmul(matrix_of(a, GetParam().transpose_a, batch),
                                  matrix_of(b, GetParam().transpose_b, batch))
                    .values,
                GetParam().dtype, 7);
  }
}

TEST_P(MatmulTest, TakesOneRightOperandForAWholeBatch) {
  const Tensor a = left({3, 2}, 5, 7, 1);
  const Tensor b = right({}, 7, 9, 2);
  const Tensor c = multiply(a, b);
  ASSERT_EQ(c.shape(), (Shape{3, 2, 5, 9}));
  for (std::int64_t batch = 0; batch < 6; ++batch) {
    expect_near(matrix_of(c, Transpose::kNo, batch).values,
                reference::matmul(matrix_of(a, GetParam().transpose_a, batch),
                                  matrix_of(b, GetParam().transpose_b))
                    .values,
                GetParam().dtype, 7);
  }
}

TEST_P(MatmulTest, TakesStridedOperands) {
  const Tensor a = left({}, 21, 35, 1);
  const Tensor b = right({}, 35, 19, 2);
  const Tensor wanted = multiply(a, b);
  const auto embed = [&](const Tensor& x, int rows, int columns) {
    const Tensor big =
        random_tensor(*context_, {x.shape()[0] + rows, x.shape()[1] + columns}, x.dtype(), 9);
    const Tensor part = big.narrow(0, rows, x.shape()[0]).narrow(1, columns, x.shape()[1]);
    const std::size_t width = static_cast<std::size_t>(x.shape()[1]) * size_of(x.dtype());
    for (std::int64_t i = 0; i < x.shape()[0]; ++i) {
      std::memcpy(part.narrow(0, i, 1).raw(), x.narrow(0, i, 1).raw(), width);
    }
    return part;
  };
  EXPECT_TRUE(has_equal_bits(multiply(embed(a, 2, 3), embed(b, 1, 5)), wanted));
  // Columns far apart: the operand is copied first.
  const auto columns_apart = [&](const Tensor& x) {
    const Tensor flipped = Tensor::empty(*context_, {x.shape()[1], x.shape()[0]}, x.dtype());
    const std::size_t size = size_of(x.dtype());
    for (std::int64_t i = 0; i < x.shape()[0]; ++i) {
      for (std::int64_t j = 0; j < x.shape()[1]; ++j) {
        std::memcpy(flipped.narrow(0, j, 1).narrow(1, i, 1).raw(),
                    x.narrow(0, i, 1).narrow(1, j, 1).raw(), size);
      }
    }
    return flipped.transpose(0, 1);
  };
  EXPECT_TRUE(has_equal_bits(multiply(columns_apart(a), columns_apart(b)), wanted));
}

TEST_P(MatmulTest, TakesBatchesWithStrides) {
  const Tensor a = left({4, 2}, 5, 7, 1);
  const Tensor b = right({4, 2}, 7, 9, 2);
  const Tensor c = multiply(a, b);
  const Tensor odd_a = a.select(1, 1);
  const Tensor odd_b = b.select(1, 1);
  const Tensor odd = multiply(odd_a, odd_b);
  ASSERT_EQ(odd.shape(), (Shape{4, 5, 9}));
  EXPECT_EQ(doubles(odd), doubles(c.select(1, 1)));
  const Tensor swapped = multiply(a.transpose(0, 1), b.transpose(0, 1));
  EXPECT_EQ(doubles(swapped), doubles(c.transpose(0, 1)));
}

TEST_P(MatmulTest, TakesBroadcastRows) {
  const Tensor a = left({}, 5, 1, 1);
  const Tensor b = right({}, 1, 9, 2);
  const Shape a_shape = GetParam().transpose_a == Transpose::kYes ? Shape{7, 5} : Shape{5, 7};
  const Shape b_shape = GetParam().transpose_b == Transpose::kYes ? Shape{9, 7} : Shape{7, 9};
  const Tensor c = multiply(a.broadcast_to(a_shape), b.broadcast_to(b_shape));
  const Matrix wanted =
      reference::matmul(matrix_of(a, GetParam().transpose_a), matrix_of(b, GetParam().transpose_b));
  std::vector<double> sevenfold = wanted.values;
  for (double& value : sevenfold) value *= 7.0;
  expect_near(doubles(c), sevenfold, GetParam().dtype, 7);
}

TEST_P(MatmulTest, SumsNothingToZero) {
  const Tensor a = left({}, 3, 0, 1);
  const Tensor b = right({}, 0, 4, 2);
  const Tensor c = random_tensor(*context_, {3, 4}, GetParam().dtype, 3);
  const auto before = doubles(c);
  ops::matmul_into(c, a, b, GetParam().transpose_a, GetParam().transpose_b, true);
  EXPECT_EQ(doubles(c), before);
  ops::matmul_into(c, a, b, GetParam().transpose_a, GetParam().transpose_b, false);
  EXPECT_EQ(doubles(c), std::vector<double>(12, 0.0));
}

TEST_P(MatmulTest, GivesEmptyResults) {
  EXPECT_EQ(multiply(left({}, 0, 5, 1), right({}, 5, 4, 2)).shape(), (Shape{0, 4}));
  EXPECT_EQ(multiply(left({}, 3, 5, 1), right({}, 5, 0, 2)).shape(), (Shape{3, 0}));
  EXPECT_EQ(multiply(left({0}, 3, 5, 1), right({0}, 5, 4, 2)).shape(), (Shape{0, 3, 4}));
}

TEST_P(MatmulTest, OverwritesNaNInTheTargetButKeepsThatOfAnOperand) {
  const Tensor a = left({}, 9, 33, 1);
  const Tensor b = right({}, 33, 17, 2);
  const Tensor wanted = multiply(a, b);
  const Tensor c = Tensor::empty(*context_, {9, 17}, GetParam().dtype);
  std::memset(c.raw(), 0xFF, c.bytes());
  ops::matmul_into(c, a, b, GetParam().transpose_a, GetParam().transpose_b, false);
  EXPECT_TRUE(has_equal_bits(c, wanted));
  std::memset(a.raw(), 0xFF, size_of(a.dtype()));
  EXPECT_TRUE(std::isnan(doubles(multiply(a, b))[0]));
}

TEST_P(MatmulTest, RepeatsItsBits) {
  for (const int threads : {1, 2}) {
    context_->stream().set_threads(threads);
    const Tensor a = left({}, 130, 300, 1);
    const Tensor b = right({}, 300, 90, 2);
    const Tensor first = multiply(a, b);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(has_equal_bits(multiply(a, b), first));
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const Numerics numerics : {Numerics::kDeterministic, Numerics::kLayoutInvariant}) {
      if (dtype == DType::kF64 && numerics == Numerics::kLayoutInvariant) continue;
      for (const Transpose a : {Transpose::kNo, Transpose::kYes}) {
        for (const Transpose b : {Transpose::kNo, Transpose::kYes}) {
          cases.push_back({dtype, a, b, numerics});
        }
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(, MatmulTest, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return name_of(info.param); });

// What holds in the layout-invariant mode, and for f64 in every mode.
class BatchInvariantMatmulTest : public testing::TestWithParam<DType> {
 protected:
  std::shared_ptr<Context> context_ = make_context(Numerics::kLayoutInvariant);
};

TEST_P(BatchInvariantMatmulTest, GivesEqualBitsForAnyThreadCount) {
  // The last is more than a block in every direction, and large enough for three threads.
  for (const Sizes& z : {Sizes{3, 70, 900}, Sizes{70, 3, 900}, Sizes{500, 800, 270}}) {
    const Tensor a = random_tensor(*context_, {z.m, z.k}, GetParam(), 1);
    const Tensor b = random_tensor(*context_, {z.k, z.n}, GetParam(), 2);
    context_->stream().set_threads(1);
    const Tensor one = ops::matmul(a, b);
    for (const int threads : {2, 3, 6}) {
      context_->stream().set_threads(threads);
      EXPECT_TRUE(has_equal_bits(ops::matmul(a, b), one)) << threads << " threads";
    }
  }
}

TEST_P(BatchInvariantMatmulTest, GivesARowTheSameBitsInAnyBatch) {
  const Tensor a = random_tensor(*context_, {530, 300}, GetParam(), 1);
  const Tensor b = random_tensor(*context_, {300, 50}, GetParam(), 2);
  const Tensor all = ops::matmul(a, b);
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 64, 481}) {
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{13}}) {
      const Tensor some = ops::matmul(a.narrow(0, first, rows), b);
      EXPECT_TRUE(has_equal_bits(some, all.narrow(0, first, rows))) << rows << " from " << first;
    }
  }
}

TEST_P(BatchInvariantMatmulTest, GivesAColumnTheSameBitsInAnyWidth) {
  const Tensor a = random_tensor(*context_, {20, 300}, GetParam(), 1);
  const Tensor b = random_tensor(*context_, {800, 300}, GetParam(), 2);
  const auto columns_of = [&](std::int64_t first, std::int64_t count) {
    return doubles(ops::matmul(a, b.narrow(0, first, count), Transpose::kNo, Transpose::kYes));
  };
  const auto all = columns_of(0, 800);
  for (const std::int64_t first : {0, 5, 767, 799}) {
    const auto one = columns_of(first, 1);
    for (std::size_t i = 0; i < 20; ++i) {
      EXPECT_EQ(one[i], all[i * 800 + static_cast<std::size_t>(first)]);
    }
  }
}

TEST_P(BatchInvariantMatmulTest, GivesTheSameBitsForATransposedOperand) {
  const Tensor a = random_tensor(*context_, {45, 260}, GetParam(), 1);
  const Tensor b = random_tensor(*context_, {260, 37}, GetParam(), 2);
  const Tensor wanted = ops::matmul(a, b);
  const auto flip = [&](const Tensor& x) {
    const Matrix y = matrix_of(x, Transpose::kYes);
    const Shape shape{x.shape()[1], x.shape()[0]};
    if (GetParam() == DType::kF64) return Tensor::from(*context_, shape, y.values);
    return Tensor::from(*context_, shape, std::vector<float>(y.values.begin(), y.values.end()));
  };
  EXPECT_TRUE(
      has_equal_bits(ops::matmul(flip(a), flip(b), Transpose::kYes, Transpose::kYes), wanted));
}

INSTANTIATE_TEST_SUITE_P(, BatchInvariantMatmulTest, testing::Values(DType::kF32, DType::kF64),
                         [](const auto& info) {
                           return std::string("cpu_") + to_string(info.param);
                         });

ErrorCode code_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kInternal;
}

TEST(MatmulErrorTest, RejectsShapesThatDoNotFit) {
  const auto context = make_context();
  const auto zeros = [&](const Shape& shape) {
    return Tensor::zeros(*context, shape, DType::kF32);
  };
  const auto code = [&](const Shape& a, const Shape& b) {
    return code_of([&] { ops::matmul(zeros(a), zeros(b)); });
  };
  EXPECT_EQ(code({2, 3}, {4, 5}), ErrorCode::kShape);
  EXPECT_EQ(code({3}, {3, 5}), ErrorCode::kShape);
  EXPECT_EQ(code({2, 3}, {3}), ErrorCode::kShape);
  EXPECT_EQ(code({2, 2, 3}, {3, 3, 5}), ErrorCode::kShape);
  EXPECT_EQ(code({2, 3}, {2, 3, 5}), ErrorCode::kShape);
  const auto into = [&](const Tensor& c) {
    return code_of([&] {
      ops::matmul_into(c, zeros({2, 3}), zeros({3, 5}), Transpose::kNo, Transpose::kNo, false);
    });
  };
  EXPECT_EQ(into(zeros({2, 4})), ErrorCode::kShape);
  EXPECT_EQ(into(zeros({5, 2}).transpose(0, 1)), ErrorCode::kShape);
}

TEST(MatmulErrorTest, RejectsOtherDtypes) {
  const auto context = make_context();
  const auto zeros = [&](DType dtype) { return Tensor::zeros(*context, {2, 2}, dtype); };
  for (const DType dtype : {DType::kI32, DType::kBF16, DType::kU8}) {
    EXPECT_EQ(code_of([&] { ops::matmul(zeros(dtype), zeros(dtype)); }), ErrorCode::kDType);
  }
  EXPECT_EQ(code_of([&] { ops::matmul(zeros(DType::kF32), zeros(DType::kF64)); }),
            ErrorCode::kDType);
  EXPECT_EQ(code_of([&] {
              ops::matmul_into(zeros(DType::kF64), zeros(DType::kF32), zeros(DType::kF32),
                               Transpose::kNo, Transpose::kNo, false);
            }),
            ErrorCode::kDType);
}

}  // namespace
}  // namespace tessera
