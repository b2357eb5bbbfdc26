// SPDX-License-Identifier: Apache-2.0
// What the tests of all ops share: tensors of awkward shapes and strides in every float dtype that
// is computed, comparisons, numeric gradients.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "tessera/core/context.hpp"
#include "tessera/core/low_precision.hpp"
#include "tessera/core/random.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::testing {

using Values = std::vector<double>;

inline std::shared_ptr<Context> make_context(int threads = 1) {
  ContextOptions options;
  options.threads = threads;
  return Context::create(options);
}

/// How the elements lie: in order, with the dims stored in reverse, or with gaps between rows.
enum class Layout { kDense, kReversed, kGapped };

/// Writes values in row-major order through the tensor's strides.
template <typename T>
void write(const Tensor& to, const Values& values) {
  Shape index = Shape::filled(to.rank(), 0);
  for (const double value : values) {
    std::int64_t at = 0;
    for (int d = 0; d < to.rank(); ++d) at += index[d] * to.strides()[d];
    to.data<T>()[at] = static_cast<T>(value);
    for (int d = to.rank() - 1; d >= 0 && ++index[d] == to.shape()[d]; --d) index[d] = 0;
  }
}

inline Tensor make_tensor(Context& context, const Shape& shape, const Values& values,
                          DType dtype = DType::kF64, Layout layout = Layout::kDense) {
  Tensor out;
  if (layout == Layout::kReversed) {
    Shape reversed;
    std::vector<int> order;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      reversed.push_back(shape[d]);
      order.push_back(d);
    }
    out = Tensor::zeros(context, reversed, dtype).permute(order);
  } else if (layout == Layout::kGapped && shape.rank() > 0) {
    Shape wide = shape;
    wide[shape.rank() - 1] += 3;
    out = Tensor::zeros(context, wide, dtype).narrow(shape.rank() - 1, 2, shape.back(0));
  } else {
    out = Tensor::zeros(context, shape, dtype);
  }
  if (dtype == DType::kF64) write<double>(out, values);
  if (dtype == DType::kF32) write<float>(out, values);
  if (dtype == DType::kBF16) write<bf16>(out, values);
  if (dtype == DType::kF16) write<f16>(out, values);
  return out;
}

/// The elements as f64, row-major.
inline Values values_of(const Tensor& x) {
  const auto widened = [&x]<typename T>() {
    Values values;
    for (const T value : x.to_vector<T>()) values.push_back(static_cast<float>(value));
    return values;
  };
  if (x.dtype() == DType::kF64) return x.to_vector<double>();
  if (x.dtype() == DType::kBF16) return widened.operator()<bf16>();
  if (x.dtype() == DType::kF16) return widened.operator()<f16>();
  return widened.operator()<float>();
}

/// The value in the dtype, which f64 and f32 hold exactly as well.
inline double rounded(double value, DType dtype) {
  const auto narrow = static_cast<float>(value);
  if (dtype == DType::kBF16) return static_cast<double>(static_cast<float>(bf16(narrow)));
  if (dtype == DType::kF16) return static_cast<double>(static_cast<float>(f16(narrow)));
  return static_cast<double>(narrow);
}

/// Normal values that the dtype (f32 for f64) holds exactly, so that op and reference see the same.
inline Values random_values(std::int64_t count, std::uint64_t seed, double scale = 1.0,
                            DType dtype = DType::kF32) {
  Values values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = rounded(scale * random_normal(RandomKey{seed}, i), dtype);
  }
  return values;
}

/// |actual - expected| <= tolerance max(1, |expected|), element by element; NaN equals NaN.
inline void expect_close(const Values& actual, const Values& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))) continue;
    ASSERT_LE(std::abs(actual[i] - expected[i]), tolerance * std::max(1.0, std::abs(expected[i])))
        << "element " << i << ": " << actual[i] << " instead of " << expected[i];
  }
}

/// The low floats: the one rounding at the end, half a unit in the last place.
inline double tolerance(DType dtype, double f64 = 1e-13, double f32 = 1e-6) {
  if (dtype == DType::kBF16) return 0x1p-8 + 2.0 * f32;
  if (dtype == DType::kF16) return 0x1p-11 + 2.0 * f32;
  return dtype == DType::kF64 ? f64 : f32;
}

/// Central differences of f at x.
inline Values numeric_gradient(const std::function<double(const Values&)>& f, Values x,
                               double step = 1e-5) {
  Values gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double middle = x[i];
    x[i] = middle + step;
    const double above = f(x);
    x[i] = middle - step;
    const double below = f(x);
    x[i] = middle;
    gradient[i] = (above - below) / (2.0 * step);
  }
  return gradient;
}

inline double dot(const Values& a, const Values& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

inline std::vector<std::byte> bytes_of(const Tensor& dense) {
  std::vector<std::byte> bytes(dense.bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), dense.raw(), bytes.size());
  return bytes;
}

/// make(context) gives a contiguous tensor; its bits are the same with 1, 2, 3 and 5 threads.
inline void expect_same_bits_for_any_thread_count(const std::function<Tensor(Context&)>& make) {
  const auto one = bytes_of(make(*make_context(1)));
  for (const int threads : {2, 3, 5}) {
    EXPECT_EQ(bytes_of(make(*make_context(threads))), one) << threads << " threads";
  }
}

/// The error that f throws.
inline Error error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorCode::kInternal, "none");
}

/// f throws `code` with a message that holds every one of `words`.
inline void expect_error(const std::function<void()>& f, ErrorCode code,
                         const std::vector<std::string>& words) {
  const Error error = error_of(f);
  EXPECT_EQ(to_string(error.code()), std::string(to_string(code))) << error.what();
  for (const std::string& word : words) {
    EXPECT_NE(error.message().find(word), std::string::npos)
        << "'" << word << "' is not in: " << error.message();
  }
}

struct OpCase {
  Shape shape;
  DType dtype;
  Layout layout;
};

inline std::vector<OpCase> op_cases(int least_rank = 0) {
  const std::vector<Shape> shapes = {{},      {1},       {7},          {0},        {1, 1},
                                     {5, 33}, {3, 0, 4}, {2, 3, 1, 5}, {64, 1023}, {70, 3, 257}};
  std::vector<OpCase> cases;
  for (const Shape& shape : shapes) {
    if (shape.rank() < least_rank) continue;
    for (const DType dtype : {DType::kF64, DType::kF32}) {
      for (const Layout layout : {Layout::kDense, Layout::kReversed, Layout::kGapped}) {
        cases.push_back({shape, dtype, layout});
      }
    }
  }
  return cases;
}

/// op_cases, and some in the low floats: for ops that compute those in f32.
inline std::vector<OpCase> computed_cases(int least_rank = 0) {
  std::vector<OpCase> cases = op_cases(least_rank);
  for (const Shape& shape : {Shape{1}, Shape{3, 0, 4}, Shape{5, 33}, Shape{70, 3, 257}}) {
    if (shape.rank() < least_rank) continue;
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      for (const Layout layout : {Layout::kDense, Layout::kGapped}) {
        cases.push_back({shape, dtype, layout});
      }
    }
  }
  return cases;
}

inline std::string case_name(const ::testing::TestParamInfo<OpCase>& info) {
  std::string name = std::string("cpu_") + to_string(info.param.dtype);
  for (const std::int64_t dim : info.param.shape) name += "_" + std::to_string(dim);
  if (info.param.layout == Layout::kReversed) name += "_reversed";
  if (info.param.layout == Layout::kGapped) name += "_gapped";
  return name;
}

inline void PrintTo(const OpCase& c, std::ostream* out) {
  *out << to_string(c.dtype) << " " << c.shape.to_string();
}

}  // namespace tessera::testing
