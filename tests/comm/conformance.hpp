// SPDX-License-Identifier: Apache-2.0
// What every backend must do, with answers that are known beforehand. Collective: all ranks call
// it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/context.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/low_precision.hpp"

namespace tessera::testing {

/// Element i of rank r: small whole numbers, exact in every dtype of 8 bits or more.
inline int element(int rank, std::int64_t i) { return static_cast<int>((rank * 3 + i) % 5); }

template <typename T>
Tensor filled(Context& context, int rank, std::int64_t count, std::int64_t first = 0) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<T>(static_cast<float>(element(rank, first + i))));
  }
  return Tensor::from(context, {count}, values);
}

template <typename T>
double at(const Tensor& tensor, std::int64_t i) {
  return static_cast<double>(static_cast<float>(tensor.data<T>()[i]));
}

inline int sum_of(int size, std::int64_t i) {
  int sum = 0;
  for (int r = 0; r < size; ++r) sum += element(r, i);
  return sum;
}

/// Uneven counts, some zero: rank r has (r * 7 + salt) % 5.
inline std::vector<std::int64_t> uneven(int size, int salt) {
  std::vector<std::int64_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back((r * 7 + salt) % 5);
  return counts;
}

inline std::int64_t total(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

template <typename T>
void expect_reductions(comm::Communicator& world, Context& context, std::int64_t count) {
  const int size = world.size();
  const int rank = world.rank();
  for (const bool is_shared : {false, true}) {
    Tensor x = filled<T>(context, rank, count);
    if (is_shared) {
      const Tensor y = world.allocate(context, {count}, dtype_of<T>);
      for (std::int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(at<T>(y, i), 0.0);
        y.data<T>()[i] = x.data<T>()[i];
      }
      x = y;
    }
    world.all_reduce(x).wait();
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(at<T>(x, i), sum_of(size, i)) << i << " of " << count << " shared " << is_shared;
    }
  }
  const Tensor most = filled<T>(context, rank, count);
  world.all_reduce(most, comm::ReduceOp::kMax).wait();
  for (std::int64_t i = 0; i < count; ++i) {
    int expected = 0;
    for (int r = 0; r < size; ++r) expected = std::max(expected, element(r, i));
    ASSERT_EQ(at<T>(most, i), expected);
  }
  const Tensor least = filled<T>(context, rank, count);
  world.all_reduce(least, comm::ReduceOp::kMin).wait();
  for (std::int64_t i = 0; i < count; ++i) {
    int expected = 5;
    for (int r = 0; r < size; ++r) expected = std::min(expected, element(r, i));
    ASSERT_EQ(at<T>(least, i), expected);
  }
  const Tensor pieces = filled<T>(context, rank, count * size);
  const Tensor own = Tensor::empty(context, {count}, dtype_of<T>);
  world.reduce_scatter(pieces, own).wait();
  for (std::int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(at<T>(own, i), sum_of(size, rank * count + i));
  }
}

/// reduce_scatter of, and all_gather into, memory of allocate(), also in place.
template <typename T>
void expect_in_place(comm::Communicator& world, Context& context,
                     const std::vector<std::int64_t>& counts) {
  const int rank = world.rank();
  const std::int64_t mine = counts[static_cast<std::size_t>(rank)];
  std::int64_t first = 0;
  for (int r = 0; r < rank; ++r) first += counts[static_cast<std::size_t>(r)];
  // A part of a larger allocation.
  const Tensor memory = world.allocate(context, {total(counts) + 3}, dtype_of<T>);
  const Tensor x = memory.narrow(0, 2, total(counts));
  const Tensor own = x.narrow(0, first, mine);
  for (const bool is_aliased : {false, true}) {
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      x.data<T>()[i] = static_cast<T>(static_cast<float>(element(rank, i)));
    }
    const Tensor out = is_aliased ? own : Tensor::empty(context, {mine}, dtype_of<T>);
    world.reduce_scatter(x, out, comm::ReduceOp::kSum, counts).wait();
    for (std::int64_t i = 0; i < mine; ++i) {
      ASSERT_EQ(at<T>(out, i), sum_of(world.size(), first + i)) << i << " aliased " << is_aliased;
    }
    world.all_gather(out, x, counts).wait();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      ASSERT_EQ(at<T>(x, i), sum_of(world.size(), i)) << i << " aliased " << is_aliased;
    }
  }
  for (const std::int64_t i : {std::int64_t{0}, std::int64_t{1}, total(counts) + 2}) {
    EXPECT_EQ(at<T>(memory, i), 0.0) << "a neighbour changed";
  }
}

template <typename T>
void expect_moves(comm::Communicator& world, Context& context, std::int64_t count) {
  const int size = world.size();
  const int rank = world.rank();
  const Tensor all = Tensor::empty(context, {count * size}, dtype_of<T>);
  world.all_gather(filled<T>(context, rank, count), all).wait();
  for (std::int64_t i = 0; i < count * size; ++i) {
    ASSERT_EQ(at<T>(all, i), element(static_cast<int>(i / count), i % count));
  }
  const Tensor from_all = Tensor::empty(context, {count * size}, dtype_of<T>);
  world.all_to_all(filled<T>(context, rank, count * size), from_all).wait();
  for (std::int64_t i = 0; i < count * size; ++i) {
    ASSERT_EQ(at<T>(from_all, i), element(static_cast<int>(i / count), rank * count + i % count));
  }
  for (int root = 0; root < size; ++root) {
    const Tensor x = filled<T>(context, rank, count);
    world.broadcast(x, root).wait();
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(at<T>(x, i), element(root, i));
  }
}

inline void expect_uneven_collectives(comm::Communicator& world, Context& context) {
  const int size = world.size();
  const int rank = world.rank();
  for (int salt = 0; salt < 5; ++salt) {
    const auto counts = uneven(size, salt);
    const std::int64_t mine = counts[static_cast<std::size_t>(rank)];
    const Tensor all = Tensor::empty(context, {total(counts)}, DType::kI32);
    world.all_gather(filled<std::int32_t>(context, rank, mine), all, counts).wait();
    const Tensor own = Tensor::empty(context, {mine}, DType::kI32);
    world
        .reduce_scatter(filled<std::int32_t>(context, rank, total(counts)), own,
                        comm::ReduceOp::kSum, counts)
        .wait();
    std::int64_t at_all = 0;
    for (int r = 0; r < size; ++r) {
      for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(r)]; ++i, ++at_all) {
        ASSERT_EQ(all.data<std::int32_t>()[at_all], element(r, i));
        if (r == rank) {
          ASSERT_EQ(own.data<std::int32_t>()[i], sum_of(size, at_all));
        }
      }
    }
    // Rank a sends (a + 2 b + salt) % 4 elements to rank b.
    const auto pair_count = [salt](int a, int b) { return std::int64_t{(a + 2 * b + salt) % 4}; };
    std::vector<std::int64_t> send;
    std::vector<std::int64_t> receive;
    for (int r = 0; r < size; ++r) {
      send.push_back(pair_count(rank, r));
      receive.push_back(pair_count(r, rank));
    }
    const Tensor out = filled<std::int32_t>(context, rank, total(send));
    const Tensor in = Tensor::empty(context, {total(receive)}, DType::kI32);
    world.all_to_all(out, in, send, receive).wait();
    std::int64_t at_in = 0;
    for (int r = 0; r < size; ++r) {
      std::int64_t first = 0;
      for (int b = 0; b < rank; ++b) first += pair_count(r, b);
      for (std::int64_t i = 0; i < receive[static_cast<std::size_t>(r)]; ++i, ++at_in) {
        ASSERT_EQ(in.data<std::int32_t>()[at_in], element(r, first + i));
      }
    }
  }
}

inline void expect_messages(comm::Communicator& world, Context& context) {
  const int size = world.size();
  const int rank = world.rank();
  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{300001}}) {
    // Two tags, received in the other order; two messages of one tag keep their order.
    const comm::Work sends[] = {
        world.isend(filled<std::int32_t>(context, rank, count), next, 5),
        world.isend(filled<std::int32_t>(context, rank + 1, count), next, 6),
        world.isend(filled<std::int32_t>(context, rank + 2, count), next, 6)};
    const Tensor a = Tensor::empty(context, {count}, DType::kI32);
    const Tensor b = Tensor::empty(context, {count}, DType::kI32);
    const Tensor c = Tensor::empty(context, {count}, DType::kI32);
    const comm::Work receives[] = {world.irecv(b, previous, 6), world.irecv(c, previous, 6),
                                   world.irecv(a, previous, 5)};
    for (const comm::Work& work : receives) work.wait();
    for (const comm::Work& work : sends) work.wait();
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(a.data<std::int32_t>()[i], element(previous, i));
      ASSERT_EQ(b.data<std::int32_t>()[i], element(previous + 1, i));
      ASSERT_EQ(c.data<std::int32_t>()[i], element(previous + 2, i));
    }
  }
}

inline void expect_splits(comm::Communicator& world, Context& context) {
  const int size = world.size();
  const int rank = world.rank();
  // Odd and even ranks, in reverse order.
  const auto half = world.split(rank % 2, -rank);
  const int members = size / 2 + (rank % 2 == 0 ? size % 2 : 0);
  ASSERT_EQ(half->size(), members);
  EXPECT_EQ(half->rank(), members - 1 - rank / 2);
  // Two communicators used at once, in another order on every second rank: no deadlock.
  const auto all = world.split(0, rank);
  const Tensor x = filled<std::int32_t>(context, rank, 10);
  const Tensor y = filled<std::int32_t>(context, rank, 10);
  comm::Work first = rank % 2 == 0 ? half->all_reduce(x) : all->all_reduce(y);
  comm::Work second = rank % 2 == 0 ? all->all_reduce(y) : half->all_reduce(x);
  second.wait();
  first.wait();
  for (std::int64_t i = 0; i < 10; ++i) {
    int expected = 0;
    for (int r = rank % 2; r < size; r += 2) expected += element(r, i);
    ASSERT_EQ(x.data<std::int32_t>()[i], expected);
    ASSERT_EQ(y.data<std::int32_t>()[i], sum_of(size, i));
  }
  EXPECT_EQ(world.split(rank == 0 ? 0 : -1, 0) == nullptr, rank != 0);
}

/// What rank `rank` contributes at `i`: values whose f32 sums depend on the order.
inline float noise(int rank, std::int64_t i) {
  return static_cast<float>(random_normal(RandomKey{static_cast<std::uint64_t>(rank)},
                                          static_cast<std::uint64_t>(i % 1000)));
}

inline float sum_in_order(int size, std::int64_t i) {
  float sum = noise(0, i);
  for (int r = 1; r < size; ++r) sum += noise(r, i);
  return sum;
}

/// The sum is taken in rank order, to the bit, whole or in buckets of any size, in ordinary memory
/// and in place.
inline void expect_rank_order(comm::Communicator& world, Context& context) {
  const std::int64_t count = 600001;
  const Tensor ordinary = Tensor::empty(context, {count}, DType::kF32);
  const Tensor shared = world.allocate(context, {count}, DType::kF32);
  for (const Tensor& x : {ordinary, shared}) {
    for (const std::int64_t bucket : {count, std::int64_t{70001}}) {
      for (std::int64_t i = 0; i < count; ++i) x.data<float>()[i] = noise(world.rank(), i);
      std::vector<comm::Work> works;
      for (std::int64_t first = 0; first < count; first += bucket) {
        works.push_back(world.all_reduce(x.narrow(0, first, std::min(bucket, count - first))));
      }
      for (const comm::Work& work : works) work.wait();
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(x.data<float>()[i], sum_in_order(world.size(), i)) << "element " << i;
      }
    }
    const std::int64_t part = 100001;
    const Tensor whole = x.narrow(0, 0, part * world.size());
    for (std::int64_t i = 0; i < whole.numel(); ++i) x.data<float>()[i] = noise(world.rank(), i);
    const Tensor own = Tensor::empty(context, {part}, DType::kF32);
    world.reduce_scatter(whole, own).wait();
    for (std::int64_t i = 0; i < part; ++i) {
      ASSERT_EQ(own.data<float>()[i], sum_in_order(world.size(), world.rank() * part + i));
    }
  }
}

inline void expect_extremes_keep_nan(comm::Communicator& world, Context& context) {
  for (const auto op : {comm::ReduceOp::kMax, comm::ReduceOp::kMin}) {
    for (int owner = 0; owner < world.size(); ++owner) {
      const Tensor x = Tensor::zeros(context, {2}, DType::kF32);
      if (world.rank() == owner) x.data<float>()[1] = std::numeric_limits<float>::quiet_NaN();
      world.all_reduce(x, op).wait();
      EXPECT_EQ(x.data<float>()[0], 0.0F);
      EXPECT_TRUE(std::isnan(x.data<float>()[1])) << "from rank " << owner;
    }
  }
}

/// Many communicators, started in an order of each rank's own, waited for in another one: the
/// queues are independent, so that nothing deadlocks.
inline void expect_independent_queues(comm::Communicator& world, Context& context) {
  constexpr std::size_t kCount = 6;
  std::vector<std::shared_ptr<comm::Communicator>> groups;
  for (std::size_t g = 0; g < kCount; ++g) {
    groups.push_back(world.split(0, static_cast<int>(g % 2) * -world.rank()));
    groups.back()->set_priority(static_cast<int>(g) % 3);
  }
  for (std::size_t round = 0; round < 5; ++round) {
    std::vector<Tensor> tensors(kCount);
    std::vector<comm::Work> works(kCount);
    const auto start = static_cast<std::size_t>(world.rank()) * 2 + round;
    for (std::size_t i = 0; i < kCount; ++i) {
      const std::size_t g = (start + i) % kCount;
      tensors[g] = filled<std::int32_t>(context, world.rank(), 5 + static_cast<std::int64_t>(g));
      works[g] = groups[g]->all_reduce(tensors[g]);
    }
    for (std::size_t i = 0; i < kCount; ++i) works[(start * 3 + kCount - i) % kCount].wait();
    for (std::size_t g = 0; g < kCount; ++g) {
      works[g].wait();
      for (std::int64_t i = 0; i < tensors[g].numel(); ++i) {
        ASSERT_EQ(tensors[g].data<std::int32_t>()[i], sum_of(world.size(), i));
      }
    }
  }
}

/// Refused at the call, on the rank that is wrong, without harm to the communicator.
inline void expect_bad_arguments(comm::Communicator& world, Context& context) {
  const Tensor x = Tensor::zeros(context, {4, 2 * world.size()}, DType::kF32);
  const Tensor piece = Tensor::zeros(context, {9}, DType::kF32);
  const auto is_refused = [](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code() == ErrorCode::kInvalidArgument;
    }
    return false;
  };
  EXPECT_TRUE(is_refused([&] { world.all_reduce(x.transpose(0, 1)); }));
  EXPECT_TRUE(is_refused([&] { world.isend(x, world.size(), 0); }));
  EXPECT_TRUE(is_refused([&] { world.irecv(x, -1, 0); }));
  EXPECT_TRUE(is_refused([&] { world.broadcast(x, world.size()); }));
  EXPECT_TRUE(is_refused([&] { world.all_gather(piece, x); }));
  EXPECT_TRUE(is_refused([&] { world.reduce_scatter(x, piece); }));
  const std::vector<std::int64_t> negative{-1};
  EXPECT_TRUE(is_refused([&] { world.all_to_all(x, x, negative, negative); }));
}

inline void expect_conformance(comm::Communicator& world) {
  const auto context = Context::create();
  for (const std::int64_t count : {0, 1, 7, 1000}) {
    expect_reductions<double>(world, *context, count);
    expect_reductions<float>(world, *context, count);
    expect_reductions<bf16>(world, *context, count);
    expect_reductions<f16>(world, *context, count);
    expect_reductions<f8e4m3>(world, *context, count);
    expect_reductions<f8e5m2>(world, *context, count % 2);
    expect_reductions<std::int64_t>(world, *context, count);
    expect_reductions<std::int32_t>(world, *context, count);
    expect_reductions<std::uint8_t>(world, *context, count);
    expect_moves<double>(world, *context, count);
    expect_moves<std::uint8_t>(world, *context, count);
  }
  // More than one chunk.
  expect_reductions<float>(world, *context, 300007);
  expect_moves<float>(world, *context, 300007);
  expect_in_place<float>(world, *context, uneven(world.size(), 2));
  expect_in_place<bf16>(world, *context,
                        std::vector<std::int64_t>(static_cast<std::size_t>(world.size()), 600001));
  expect_uneven_collectives(world, *context);
  expect_messages(world, *context);
  expect_splits(world, *context);
  expect_rank_order(world, *context);
  expect_extremes_keep_nan(world, *context);
  expect_independent_queues(world, *context);
  expect_bad_arguments(world, *context);
  world.barrier().wait();
}

}  // namespace tessera::testing
