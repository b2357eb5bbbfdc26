// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/tensor.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tessera/core/context.hpp"
#include "tessera/core/low_precision.hpp"

namespace tessera {
namespace {

using Floats = std::vector<float>;

class TensorTest : public testing::Test {
 protected:
  /// 0, 1, 2, ... in row-major order.
  Tensor counted(const Shape& shape) {
    Floats values(static_cast<std::size_t>(shape.numel()));
    std::iota(values.begin(), values.end(), 0.0F);
    return Tensor::from(*context_, shape, values);
  }

  template <typename F>
  static std::string expect_error(ErrorCode code, F&& f) {
    try {
      f();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.message();
    }
    ADD_FAILURE() << "no exception";
    return "";
  }

  std::shared_ptr<Context> context_ = Context::create();
};

TEST_F(TensorTest, MadeFromValuesHoldsThem) {
  const Tensor x = Tensor::from(*context_, {2, 3}, Floats{1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(x.defined());
  EXPECT_EQ(x.dtype(), DType::kF32);
  EXPECT_EQ(x.shape(), (Shape{2, 3}));
  EXPECT_EQ(x.strides(), (Shape{3, 1}));
  EXPECT_EQ(x.rank(), 2);
  EXPECT_EQ(x.numel(), 6);
  EXPECT_EQ(x.bytes(), 24U);
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_EQ(x.device(), context_->device());
  EXPECT_EQ(&x.context(), context_.get());
  EXPECT_EQ(x.to_vector<float>(), (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(x.data<float>()[4], 5.0F);
}

TEST_F(TensorTest, FromRejectsAWrongNumberOfValues) {
  const std::string message = expect_error(ErrorCode::kShape, [&] {
    Tensor::from(*context_, {2, 3}, Floats{1, 2, 3, 4, 5});
  });
  EXPECT_NE(message.find("5 values"), std::string::npos) << message;
  EXPECT_NE(message.find("[2, 3]"), std::string::npos) << message;
}

TEST_F(TensorTest, ZerosAreZeroInReusedMemory) {
  { counted({100}); }
  for (const float value : Tensor::zeros(*context_, {100}, DType::kF32).to_vector<float>()) {
    ASSERT_EQ(value, 0.0F);
  }
}

TEST_F(TensorTest, EmptyTensorsAndScalarsWork) {
  const Tensor none = Tensor::zeros(*context_, {0, 3}, DType::kF32);
  EXPECT_EQ(none.numel(), 0);
  EXPECT_TRUE(none.is_contiguous());
  EXPECT_TRUE(none.to_vector<float>().empty());
  EXPECT_EQ(none.reshape({3, 0}).shape(), (Shape{3, 0}));
  EXPECT_EQ(none.permute({1, 0}).shape(), (Shape{3, 0}));
  EXPECT_TRUE(none.narrow(1, 1, 2).to_vector<float>().empty());
  EXPECT_EQ(context_->memory().current_total(), 0U);
  const Tensor scalar = Tensor::from(*context_, {}, Floats{3.5F});
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.to_vector<float>(), Floats{3.5F});
}

TEST_F(TensorTest, RejectsNegativeAndOverflowingShapes) {
  const std::int64_t huge = std::int64_t{1} << 40;
  for (const Shape& shape : {Shape{2, -3}, Shape{-2, -3}, Shape{huge, huge}}) {
    expect_error(ErrorCode::kShape, [&] { Tensor::empty(*context_, shape, DType::kF64); });
  }
}

TEST_F(TensorTest, RejectsTheWrongCppType) {
  const Tensor x = counted({2});
  const std::string message = expect_error(ErrorCode::kDType, [&] { x.data<double>(); });
  EXPECT_NE(message.find("f32"), std::string::npos) << message;
  EXPECT_NE(message.find("f64"), std::string::npos) << message;
  expect_error(ErrorCode::kDType, [&] { x.to_vector<bf16>(); });
}

TEST_F(TensorTest, UndefinedTensorHasNoDataAndNoContext) {
  const Tensor none;
  EXPECT_FALSE(none.defined());
  EXPECT_EQ(none.view().data, nullptr);
  expect_error(ErrorCode::kInvalidArgument, [&] { none.context(); });
  expect_error(ErrorCode::kInvalidArgument, [&] { none.raw(); });
  expect_error(ErrorCode::kInvalidArgument, [&] { none.to_vector<float>(); });
  expect_error(ErrorCode::kInvalidArgument, [&] { none.item(); });
}

TEST_F(TensorTest, CopiesShareStorage) {
  const Tensor x = counted({4});
  const Tensor copy = x;
  copy.data<float>()[2] = 9.0F;
  EXPECT_EQ(x.to_vector<float>(), (Floats{0, 1, 9, 3}));
  EXPECT_TRUE(x.shares_storage(copy));
  EXPECT_FALSE(x.shares_storage(counted({4})));
}

TEST_F(TensorTest, CategoryIsTheContextsUnlessGiven) {
  const Tensor a = Tensor::empty(*context_, {16}, DType::kF32);
  EXPECT_EQ(a.storage()->category(), MemoryCategory::kActivation);
  const CategoryScope scope(*context_, MemoryCategory::kParameter);
  const Tensor b = Tensor::zeros(*context_, {16}, DType::kF32);
  const Tensor c = Tensor::empty(*context_, {16}, DType::kF32, MemoryCategory::kGradient);
  EXPECT_EQ(b.storage()->category(), MemoryCategory::kParameter);
  EXPECT_EQ(c.storage()->category(), MemoryCategory::kGradient);
  EXPECT_EQ(context_->memory().current(MemoryCategory::kParameter), 64U);
}

TEST_F(TensorTest, StorageLivesAsLongAsAView) {
  Tensor view;
  {
    const Tensor x = counted({2, 3});
    view = x.select(0, 1);
  }
  EXPECT_EQ(view.to_vector<float>(), (Floats{3, 4, 5}));
  EXPECT_NE(context_->memory().current_total(), 0U);
  view = Tensor();
  EXPECT_EQ(context_->memory().current_total(), 0U);
}

TEST_F(TensorTest, NarrowTakesARangeOfADim) {
  const Tensor x = counted({3, 4});
  const Tensor columns = x.narrow(1, 1, 2);
  EXPECT_EQ(columns.shape(), (Shape{3, 2}));
  EXPECT_EQ(columns.strides(), (Shape{4, 1}));
  EXPECT_FALSE(columns.is_contiguous());
  EXPECT_EQ(columns.to_vector<float>(), (Floats{1, 2, 5, 6, 9, 10}));
  const Tensor rows = x.narrow(0, 1, 2);
  EXPECT_TRUE(rows.is_contiguous());
  EXPECT_EQ(rows.to_vector<float>(), (Floats{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(columns.narrow(0, 2, 1).narrow(1, 1, 1).item(), 10.0);
  EXPECT_EQ(x.narrow(0, 3, 0).numel(), 0);
}

TEST_F(TensorTest, NarrowRejectsRangesOutsideTheDim) {
  const Tensor x = counted({3, 4});
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const auto& [dim, first, size] :
       std::vector<std::array<std::int64_t, 3>>{{0, 0, 4},
                                                {0, 2, 2},
                                                {0, -1, 2},
                                                {0, 0, -1},
                                                {2, 0, 1},
                                                {-1, 0, 1},
                                                {0, 4, 0},
                                                {0, 1, kMost},
                                                {0, kMost, kMost}}) {
    expect_error(ErrorCode::kInvalidArgument,
                 [&, d = static_cast<int>(dim), f = first, s = size] { x.narrow(d, f, s); });
  }
}

TEST_F(TensorTest, SelectDropsTheDim) {
  const Tensor x = counted({2, 3, 4});
  EXPECT_EQ(x.select(1, 2).shape(), (Shape{2, 4}));
  EXPECT_EQ(x.select(1, 2).to_vector<float>(), (Floats{8, 9, 10, 11, 20, 21, 22, 23}));
  EXPECT_EQ(x.select(0, 1).select(1, 3).to_vector<float>(), (Floats{15, 19, 23}));
  EXPECT_EQ(x.select(0, 1).select(0, 1).select(0, 1).item(), 17.0);
  expect_error(ErrorCode::kInvalidArgument, [&] { x.select(1, 3); });
  expect_error(ErrorCode::kInvalidArgument, [&] { x.select(1, -1); });
}

TEST_F(TensorTest, PermuteReordersDims) {
  const Tensor x = counted({2, 3, 2});
  const Tensor y = x.permute({2, 0, 1});
  EXPECT_EQ(y.shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(y.to_vector<float>(), (Floats{0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(y.permute({1, 2, 0}).to_vector<float>(), x.to_vector<float>());
  EXPECT_TRUE(y.shares_storage(x));
}

TEST_F(TensorTest, PermuteRejectsWhatIsNoPermutation) {
  const Tensor x = counted({2, 3});
  for (const std::vector<int>& order : {std::vector<int>{0}, {0, 1, 2}, {0, 0}, {0, 2}, {-1, 0}}) {
    expect_error(ErrorCode::kInvalidArgument, [&] { x.permute(order); });
  }
}

TEST_F(TensorTest, TransposeSwapsTwoDims) {
  const Tensor x = counted({2, 3});
  EXPECT_EQ(x.transpose(0, 1).to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(x.transpose(1, 1).to_vector<float>(), x.to_vector<float>());
  EXPECT_FALSE(x.transpose(0, 1).is_contiguous());
  EXPECT_TRUE(counted({1, 3}).transpose(0, 1).is_contiguous());
  expect_error(ErrorCode::kInvalidArgument, [&] { x.transpose(0, 2); });
}

TEST_F(TensorTest, BroadcastRepeatsWithoutMemory) {
  const Tensor x = counted({2, 1});
  const std::size_t before = context_->memory().current_total();
  const Tensor y = x.broadcast_to({3, 2, 2});
  EXPECT_EQ(context_->memory().current_total(), before);
  EXPECT_EQ(y.strides(), (Shape{0, 1, 0}));
  EXPECT_EQ(y.to_vector<float>(), (Floats{0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_FALSE(y.is_contiguous());
  EXPECT_EQ(x.broadcast_to({2, 0}).numel(), 0);
}

TEST_F(TensorTest, BroadcastRejectsOtherShapes) {
  const Tensor x = counted({2, 3});
  for (const Shape& shape : {Shape{3}, Shape{2, 4}, Shape{1, 3}, Shape{2, 3, 1}, Shape{-1, 2, 3}}) {
    EXPECT_THROW(x.broadcast_to(shape), Error) << shape.to_string();
  }
  EXPECT_THROW(counted({1}).broadcast_to({-1}), Error);
}

TEST_F(TensorTest, ReshapeKeepsRowMajorOrderAndInfersOneDim) {
  const Tensor x = counted({2, 6});
  const Tensor y = x.reshape({3, -1});
  EXPECT_EQ(y.shape(), (Shape{3, 4}));
  EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
  EXPECT_TRUE(y.shares_storage(x));
  EXPECT_EQ(x.narrow(0, 1, 1).reshape({6}).to_vector<float>(), (Floats{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(counted({1}).reshape({}).rank(), 0);
}

TEST_F(TensorTest, ReshapeRejectsOtherCountsAndNonContiguousTensors) {
  const Tensor x = counted({2, 3});
  expect_error(ErrorCode::kShape, [&] { x.reshape({4}); });
  expect_error(ErrorCode::kShape, [&] { x.reshape({4, -1}); });
  expect_error(ErrorCode::kInvalidArgument, [&] { x.reshape({-1, -1}); });
  expect_error(ErrorCode::kInvalidArgument, [&] { x.reshape({-2, -3}); });
  expect_error(ErrorCode::kInvalidArgument, [&] { x.reshape({-2, -1}); });
  const std::string message =
      expect_error(ErrorCode::kInvalidArgument, [&] { x.transpose(0, 1).reshape({6}); });
  EXPECT_NE(message.find("contiguous"), std::string::npos) << message;
}

TEST_F(TensorTest, ViewPointsAtTheFirstElement) {
  const Tensor x = counted({3, 4});
  const TensorView view = x.narrow(0, 1, 2).narrow(1, 2, 2).view();
  EXPECT_EQ(view.as<float>(), x.data<float>() + 6);
  EXPECT_EQ(view.dtype, DType::kF32);
  EXPECT_EQ(view.shape, (Shape{2, 2}));
  EXPECT_EQ(view.strides, (Shape{4, 1}));
  EXPECT_EQ(view.numel(), 4);
  EXPECT_FALSE(view.is_contiguous());
}

template <typename T>
void expect_item(Context& context, T value, double expected) {
  EXPECT_EQ(Tensor::from(context, {1, 1}, std::vector<T>{value}).item(), expected);
}

TEST_F(TensorTest, ItemReadsEveryDType) {
  expect_item(*context_, 1.0 / 3.0, 1.0 / 3.0);
  expect_item(*context_, -2.5F, -2.5);
  expect_item(*context_, f16(1.5F), 1.5);
  expect_item(*context_, bf16(1.5F), 1.5);
  expect_item(*context_, f8e4m3(1.5F), 1.5);
  expect_item(*context_, f8e5m2(1.5F), 1.5);
  expect_item<std::int64_t>(*context_, -7, -7.0);
  expect_item<std::int32_t>(*context_, -7, -7.0);
  expect_item<std::uint8_t>(*context_, 200, 200.0);
}

TEST_F(TensorTest, ItemNeedsOneElement) {
  EXPECT_EQ(counted({5}).narrow(0, 3, 1).item(), 3.0);
  expect_error(ErrorCode::kShape, [&] { counted({2}).item(); });
  expect_error(ErrorCode::kShape, [&] { counted({0}).item(); });
}

TEST_F(TensorTest, ChangesAreCountedForAllViews) {
  const Tensor x = counted({4});
  const Tensor view = x.narrow(0, 1, 2);
  const std::uint64_t before = x.storage()->version();
  view.mark_changed();
  EXPECT_EQ(x.storage()->version(), before + 1);
}

TEST_F(TensorTest, KeepsItsContextAlive) {
  const Tensor x = counted({2});
  context_.reset();
  EXPECT_EQ(x.to_vector<float>(), (Floats{0, 1}));
}

}  // namespace
}  // namespace tessera
