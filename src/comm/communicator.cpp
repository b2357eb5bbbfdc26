// SPDX-License-Identifier: Apache-2.0
// The default collectives: every rank sends its pieces to every other directly, and reduces locally
// in rank order. A collective is a list of stages; each starts messages, and the next begins when
// they are through. They make progress when asked (done, wait).
#include "tessera/comm/communicator.hpp"

#include <cstring>
#include <functional>
#include <numeric>

#include "reduce.hpp"
#include "tessera/core/context.hpp"

namespace tessera::comm {
namespace {

using Stage = std::function<std::vector<Work>()>;

class StagedWork final : public WorkState {
 public:
  explicit StagedWork(std::vector<Stage> stages) : stages_(std::move(stages)) { start_next(); }

  bool done() override {
    while (true) {
      for (const Work& work : works_) {
        if (!work.done()) return false;
      }
      if (next_ == stages_.size()) return true;
      for (const Work& work : works_) work.wait();  // rethrows
      start_next();
    }
  }

  void wait(std::chrono::steady_clock::time_point) override {
    while (true) {
      for (const Work& work : works_) work.wait();  // each has its deadline
      if (next_ == stages_.size()) return;
      start_next();
    }
  }

 private:
  void start_next() { works_ = stages_[next_++](); }

  std::vector<Stage> stages_;
  std::vector<Work> works_;
  std::size_t next_ = 0;
};

constexpr int kCollectiveTag = 1 << 20;

Tensor flat(const Tensor& tensor) {
  TESSERA_CHECK(tensor.is_contiguous(), "collectives need contiguous tensors");
  return tensor.reshape({tensor.numel()});
}

Tensor scratch(const Tensor& like, std::int64_t count) {
  return Tensor::empty(like.context(), {count}, like.dtype(), MemoryCategory::kCommunication);
}

void copy_elements(const Tensor& to, const Tensor& from) {
  if (from.numel() > 0) std::memcpy(to.raw(), from.raw(), from.bytes());
}

std::vector<std::int64_t> counts_or_equal(std::span<const std::int64_t> counts, std::int64_t total,
                                          int size) {
  if (!counts.empty()) return {counts.begin(), counts.end()};
  TESSERA_CHECK(total % size == 0, "{} elements do not divide among {} ranks; give counts", total,
                size);
  return std::vector<std::int64_t>(static_cast<std::size_t>(size), total / size);
}

std::vector<Tensor> pieces(const Tensor& whole, const std::vector<std::int64_t>& counts) {
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  TESSERA_CHECK(sum == whole.numel(), "the counts add up to {} elements, but the tensor has {}",
                sum, whole.numel());
  std::vector<Tensor> out;
  std::int64_t first = 0;
  for (const std::int64_t count : counts) {
    out.push_back(whole.narrow(0, first, count));
    first += count;
  }
  return out;
}

/// Sends `out[r]` to rank r and receives `in[r]` from it, for all other ranks.
std::vector<Work> exchange(Communicator& group, const std::vector<Tensor>& out,
                           const std::vector<Tensor>& in, int tag) {
  std::vector<Work> works;
  for (int step = 1; step < group.size(); ++step) {
    const int to = (group.rank() + step) % group.size();
    const int from = (group.rank() - step + group.size()) % group.size();
    works.push_back(group.irecv(in[static_cast<std::size_t>(from)], from, tag));
    works.push_back(group.isend(out[static_cast<std::size_t>(to)], to, tag));
  }
  return works;
}

void reduce_into(const Tensor& out, const std::vector<Tensor>& terms, ReduceOp op) {
  if (out.numel() == 0) return;
  std::vector<const void*> inputs;
  for (const Tensor& term : terms) inputs.push_back(term.raw());
  reduce_pieces(out.dtype(), op, out.raw(), inputs, out.numel());
}

}  // namespace

Work Communicator::all_reduce(const Tensor& tensor, ReduceOp op) {
  if (size_ == 1) return {};
  const Tensor whole = flat(tensor);
  std::vector<std::int64_t> counts;
  for (int r = 0; r < size_; ++r) {
    counts.push_back(whole.numel() * (r + 1) / size_ - whole.numel() * r / size_);
  }
  const std::vector<Tensor> parts = pieces(whole, counts);
  const Tensor own = parts[static_cast<std::size_t>(rank_)];
  std::vector<Tensor> terms;
  for (int r = 0; r < size_; ++r) {
    terms.push_back(r == rank_ ? own : scratch(whole, own.numel()));
  }
  const int tag = kCollectiveTag + 2 * (collectives_++ % 4096);
  const std::vector<Tensor> all_own(static_cast<std::size_t>(size_), own);
  std::vector<Stage> stages{[=, this] { return exchange(*this, parts, terms, tag); },
                            [=, this] {
                              reduce_into(own, terms, op);
                              return exchange(*this, all_own, parts, tag + 1);
                            }};
  return Work(std::make_shared<StagedWork>(std::move(stages)), timeout_);
}

Work Communicator::all_gather(const Tensor& input, const Tensor& output,
                              std::span<const std::int64_t> given) {
  const std::vector<std::int64_t> counts = counts_or_equal(given, output.numel(), size_);
  const std::vector<Tensor> parts = pieces(flat(output), counts);
  const Tensor own = flat(input);
  TESSERA_CHECK(
      own.numel() == counts[static_cast<std::size_t>(rank_)] && input.dtype() == output.dtype(),
      "all_gather: this rank gives {} elements, its count is {}", own.numel(),
      counts[static_cast<std::size_t>(rank_)]);
  const int tag = kCollectiveTag + 2 * (collectives_++ % 4096);
  const std::vector<Tensor> all_own(static_cast<std::size_t>(size_), own);
  std::vector<Stage> stages{[=, this] {
    copy_elements(parts[static_cast<std::size_t>(rank_)], own);
    return exchange(*this, all_own, parts, tag);
  }};
  return Work(std::make_shared<StagedWork>(std::move(stages)), timeout_);
}

Work Communicator::reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op,
                                  std::span<const std::int64_t> given) {
  const std::vector<std::int64_t> counts = counts_or_equal(given, input.numel(), size_);
  const std::vector<Tensor> parts = pieces(flat(input), counts);
  const Tensor own = flat(output);
  TESSERA_CHECK(
      own.numel() == counts[static_cast<std::size_t>(rank_)] && input.dtype() == output.dtype(),
      "reduce_scatter: this rank takes {} elements, its count is {}", own.numel(),
      counts[static_cast<std::size_t>(rank_)]);
  std::vector<Tensor> terms;
  for (int r = 0; r < size_; ++r) {
    terms.push_back(r == rank_ ? parts[static_cast<std::size_t>(r)] : scratch(own, own.numel()));
  }
  const int tag = kCollectiveTag + 2 * (collectives_++ % 4096);
  std::vector<Stage> stages{[=, this] { return exchange(*this, parts, terms, tag); },
                            [=] {
                              reduce_into(own, terms, op);
                              return std::vector<Work>{};
                            }};
  return Work(std::make_shared<StagedWork>(std::move(stages)), timeout_);
}

Work Communicator::all_to_all(const Tensor& input, const Tensor& output,
                              std::span<const std::int64_t> send,
                              std::span<const std::int64_t> receive) {
  const auto out = pieces(flat(input), counts_or_equal(send, input.numel(), size_));
  const auto in = pieces(flat(output), counts_or_equal(receive, output.numel(), size_));
  const int tag = kCollectiveTag + 2 * (collectives_++ % 4096);
  std::vector<Stage> stages{[=, this] {
    copy_elements(in[static_cast<std::size_t>(rank_)], out[static_cast<std::size_t>(rank_)]);
    return exchange(*this, out, in, tag);
  }};
  return Work(std::make_shared<StagedWork>(std::move(stages)), timeout_);
}

Work Communicator::broadcast(const Tensor& tensor, int root) {
  TESSERA_CHECK(root >= 0 && root < size_, "broadcast: no rank {} among {}", root, size_);
  const Tensor whole = flat(tensor);
  const int tag = kCollectiveTag + 2 * (collectives_++ % 4096);
  std::vector<Stage> stages{[=, this] {
    std::vector<Work> works;
    for (int r = 0; r < size_; ++r) {
      if (rank_ == root && r != root) works.push_back(isend(whole, r, tag));
    }
    if (rank_ != root) works.push_back(irecv(whole, root, tag));
    return works;
  }};
  return Work(std::make_shared<StagedWork>(std::move(stages)), timeout_);
}

Work Communicator::barrier() {
  // Empty messages from everybody to everybody; a Context of its own carries the empty tensors.
  const auto context = Context::create();
  const Tensor nothing = Tensor::empty(*context, {0}, DType::kU8);
  const int tag = kCollectiveTag + 2 * (collectives_++ % 4096);
  const std::vector<Tensor> all(static_cast<std::size_t>(size_), nothing);
  std::vector<Stage> stages{[=, this] { return exchange(*this, all, all, tag); }};
  return Work(std::make_shared<StagedWork>(std::move(stages)), timeout_);
}

Tensor Communicator::allocate(Context& context, const Shape& shape, DType dtype) {
  return Tensor::zeros(context, shape, dtype, MemoryCategory::kCommunication);
}

}  // namespace tessera::comm
