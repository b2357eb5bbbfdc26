// SPDX-License-Identifier: Apache-2.0
// The default collectives: every rank sends its pieces to every other directly, and reduces locally
// in rank order. Reductions go in chunks, two of which are under way at a time, so that the scratch
// memory is bounded; no chunk size changes a bit of the sums.
#include "tessera/comm/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "pieces.hpp"
#include "reduce.hpp"
#include "staged_work.hpp"
#include "tessera/core/context.hpp"

namespace tessera::comm {
namespace {

using Messages = std::vector<StagedWork::Message>;

constexpr int kCollectiveTag = 1 << 20;
constexpr std::int64_t kChunkBytes = std::int64_t{4} << 20;

Tensor flat(const Tensor& tensor, const char* operation) {
  require_contiguous(tensor, operation);
  return tensor.reshape({tensor.numel()});
}

void copy_elements(const Tensor& to, const Tensor& from) {
  if (from.numel() > 0 && to.raw() != from.raw()) std::memmove(to.raw(), from.raw(), from.bytes());
}

std::vector<Tensor> cut(const Tensor& whole, const std::vector<std::int64_t>& counts) {
  std::vector<Tensor> out;
  std::int64_t first = 0;
  for (const std::int64_t count : counts) {
    out.push_back(whole.narrow(0, first, count));
    first += count;
  }
  return out;
}

/// Sends `out[r]` to rank r and receives `in[r]` from it, for all other ranks.
void exchange(Communicator& group, const std::vector<Tensor>& out, const std::vector<Tensor>& in,
              int tag, Messages& messages) {
  for (int step = 1; step < group.size(); ++step) {
    const int from = (group.rank() - step + group.size()) % group.size();
    messages.push_back({group.irecv(in[static_cast<std::size_t>(from)], from, tag), from});
  }
  for (int step = 1; step < group.size(); ++step) {
    const int to = (group.rank() + step) % group.size();
    messages.push_back({group.isend(out[static_cast<std::size_t>(to)], to, tag), to});
  }
}

/// Reduces chunk after chunk: chunk i is exchanged while chunk i - 1 is reduced.
class ChunkReducer {
 public:
  ChunkReducer(Communicator& group, const Tensor& like, std::int64_t most, ReduceOp op)
      : group_(group), op_(op) {
    for (auto& scratch : scratch_) {
      for (int r = 0; r < group.size(); ++r) {
        scratch.push_back(r == group.rank() ? Tensor()
                                            : Tensor::empty(like.context(), {most}, like.dtype(),
                                                            MemoryCategory::kCommunication));
      }
    }
  }

  /// Starts the exchange of chunk `index`: `pieces[r]` is what rank r will reduce.
  void collect(std::size_t index, const std::vector<Tensor>& pieces, int tag, Messages& messages) {
    const Tensor& own = pieces[static_cast<std::size_t>(group_.rank())];
    exchange(group_, pieces, terms(index, own), tag, messages);
  }

  /// Reduces chunk `index`, whose own term is `own`, into `out` (may be `own`).
  void reduce(std::size_t index, const Tensor& own, const Tensor& out) {
    if (out.numel() == 0) return;
    std::vector<const void*> inputs;
    for (const Tensor& term : terms(index, own)) inputs.push_back(term.raw());
    reduce_pieces(out.dtype(), op_, out.raw(), inputs, out.numel());
  }

 private:
  std::vector<Tensor> terms(std::size_t index, const Tensor& own) const {
    std::vector<Tensor> out;
    for (const Tensor& scratch : scratch_[index % 2]) {
      out.push_back(scratch.defined() ? scratch.narrow(0, 0, own.numel()) : own);
    }
    return out;
  }

  Communicator& group_;
  ReduceOp op_;
  std::array<std::vector<Tensor>, 2> scratch_;
};

std::size_t chunks_of(std::int64_t count, std::int64_t chunk) {
  return static_cast<std::size_t>((count + chunk - 1) / chunk);
}

}  // namespace

std::string Communicator::describe(std::string_view operation) const {
  const std::string which =
      label_.empty() ? fmt::format("the {} communicator", name()) : fmt::format("\"{}\"", label_);
  return fmt::format("{} on {} (rank {} of {})", operation, which, rank_, size_);
}

Work Communicator::start_collective(std::shared_ptr<StagedWork> work, std::string_view) {
  work->done();
  return Work(std::move(work), timeout_);
}

int Communicator::next_tag() { return kCollectiveTag + 2 * (collectives_++ % 4096); }

Work Communicator::all_reduce(const Tensor& tensor, ReduceOp op) {
  const Tensor whole = flat(tensor, "all_reduce");
  if (size_ == 1 || whole.numel() == 0) return {};
  const std::int64_t chunk = std::max<std::int64_t>(
      size_, kChunkBytes / static_cast<std::int64_t>(size_of(whole.dtype())));
  const std::size_t count = chunks_of(whole.numel(), chunk);
  const auto pieces = [=, this](std::size_t index) {
    const std::int64_t first = static_cast<std::int64_t>(index) * chunk;
    const std::int64_t n = std::min(chunk, whole.numel() - first);
    std::vector<std::int64_t> counts;
    for (int r = 0; r < size_; ++r) {
      const auto [begin, end] = slice(n, size_, r);
      counts.push_back(end - begin);
    }
    return cut(whole.narrow(0, first, n), counts);
  };
  const auto reducer =
      std::make_shared<ChunkReducer>(*this, whole, std::min(chunk, whole.numel()) / size_ + 1, op);
  const int tag = next_tag();
  return start_collective(
      std::make_shared<StagedWork>(count + 1,
                                   [=, this](std::size_t stage) {
                                     Messages messages;
                                     if (stage < count) {
                                       reducer->collect(stage, pieces(stage), tag, messages);
                                     }
                                     if (stage == 0) return messages;
                                     const auto parts = pieces(stage - 1);
                                     const Tensor& own = parts[static_cast<std::size_t>(rank_)];
                                     reducer->reduce(stage - 1, own, own);
                                     exchange(*this, std::vector(parts.size(), own), parts, tag + 1,
                                              messages);
                                     return messages;
                                   }),
      "all_reduce");
}

Work Communicator::all_gather(const Tensor& input, const Tensor& output,
                              std::span<const std::int64_t> given) {
  const auto counts = counts_or_equal(given, output.numel(), size_, "all_gather");
  require_piece(input, output, counts, rank_, "all_gather");
  const std::vector<Tensor> parts = cut(flat(output, "all_gather"), counts);
  const Tensor own = flat(input, "all_gather");
  const int tag = next_tag();
  return start_collective(
      std::make_shared<StagedWork>(1,
                                   [=, this](std::size_t) {
                                     Messages messages;
                                     copy_elements(parts[static_cast<std::size_t>(rank_)], own);
                                     exchange(*this, std::vector(parts.size(), own), parts, tag,
                                              messages);
                                     return messages;
                                   }),
      "all_gather");
}

Work Communicator::reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op,
                                  std::span<const std::int64_t> given) {
  const auto counts = counts_or_equal(given, input.numel(), size_, "reduce_scatter");
  require_piece(output, input, counts, rank_, "reduce_scatter");
  const std::vector<Tensor> parts = cut(flat(input, "reduce_scatter"), counts);
  const Tensor out = flat(output, "reduce_scatter");
  const std::int64_t most = largest(counts);
  const std::int64_t chunk = std::max<std::int64_t>(
      1, kChunkBytes / static_cast<std::int64_t>(size_of(input.dtype())) / size_);
  const std::size_t count = chunks_of(most, chunk);
  const auto part = [chunk](const Tensor& piece, std::size_t index) {
    const std::int64_t first = std::min(static_cast<std::int64_t>(index) * chunk, piece.numel());
    return piece.narrow(0, first, std::min(chunk, piece.numel() - first));
  };
  const auto reducer = std::make_shared<ChunkReducer>(*this, input, std::min(chunk, most), op);
  const int tag = next_tag();
  return start_collective(
      std::make_shared<StagedWork>(
          count + 1,
          [=, this](std::size_t stage) {
            Messages messages;
            if (stage < count) {
              std::vector<Tensor> pieces;
              for (const Tensor& piece : parts) pieces.push_back(part(piece, stage));
              reducer->collect(stage, pieces, tag, messages);
            }
            if (stage > 0) {
              reducer->reduce(stage - 1, part(parts[static_cast<std::size_t>(rank_)], stage - 1),
                              part(out, stage - 1));
            }
            return messages;
          }),
      "reduce_scatter");
}

Work Communicator::all_to_all(const Tensor& input, const Tensor& output,
                              std::span<const std::int64_t> send,
                              std::span<const std::int64_t> receive) {
  TESSERA_CHECK(input.dtype() == output.dtype(), "all_to_all: {} does not go into {}",
                to_string(input.dtype()), to_string(output.dtype()));
  const auto out = cut(flat(input, "all_to_all"),
                       counts_or_equal(send, input.numel(), size_, "all_to_all (send)"));
  const auto in = cut(flat(output, "all_to_all"),
                      counts_or_equal(receive, output.numel(), size_, "all_to_all (receive)"));
  const auto own = static_cast<std::size_t>(rank_);
  TESSERA_CHECK(in[own].numel() == out[own].numel(),
                "all_to_all: this rank sends itself {} elements and expects {}", out[own].numel(),
                in[own].numel());
  const int tag = next_tag();
  return start_collective(std::make_shared<StagedWork>(1,
                                                       [=, this](std::size_t) {
                                                         Messages messages;
                                                         copy_elements(in[own], out[own]);
                                                         exchange(*this, out, in, tag, messages);
                                                         return messages;
                                                       }),
                          "all_to_all");
}

Work Communicator::broadcast(const Tensor& tensor, int root) {
  TESSERA_CHECK(root >= 0 && root < size_, "broadcast: no rank {} among {}", root, size_);
  const Tensor whole = flat(tensor, "broadcast");
  const int tag = next_tag();
  return start_collective(
      std::make_shared<StagedWork>(1,
                                   [=, this](std::size_t) {
                                     Messages messages;
                                     if (rank_ != root) {
                                       messages.push_back({irecv(whole, root, tag), root});
                                       return messages;
                                     }
                                     for (int r = 0; r < size_; ++r) {
                                       if (r != root) messages.push_back({isend(whole, r, tag), r});
                                     }
                                     return messages;
                                   }),
      "broadcast");
}

Work Communicator::barrier() {
  // Empty messages from everybody to everybody; a Context of its own carries the empty tensor.
  if (!nothing_.defined()) nothing_ = Tensor::empty(*Context::create(), {0}, DType::kU8);
  const int tag = next_tag();
  const std::vector<Tensor> all(static_cast<std::size_t>(size_), nothing_);
  return start_collective(std::make_shared<StagedWork>(1,
                                                       [=, this](std::size_t) {
                                                         Messages messages;
                                                         exchange(*this, all, all, tag, messages);
                                                         return messages;
                                                       }),
                          "barrier");
}

Tensor Communicator::allocate(Context& context, const Shape& shape, DType dtype) {
  return Tensor::zeros(context, shape, dtype, MemoryCategory::kCommunication);
}

}  // namespace tessera::comm
