// SPDX-License-Identifier: Apache-2.0
// Collectives on tensors of allocate(): every rank reads and writes the others' memory directly.
// Three steps: everybody is here (tick), each rank does its own slice in chunks (tick), everybody
// is through.
#include <algorithm>

#include "group_operation.hpp"
#include "pieces.hpp"
#include "reduce.hpp"

namespace tessera::comm {
namespace {

using Next = GroupOperation::Next;

/// Every rank's copy of a tensor that lies in a shared buffer.
std::vector<std::byte*> copies_of(const Tensor& tensor, const SharedBuffer& buffer, int rank) {
  const std::int64_t offset =
      static_cast<std::byte*>(tensor.raw()) - buffer.parts[static_cast<std::size_t>(rank)];
  std::vector<std::byte*> copies = buffer.parts;
  for (std::byte*& copy : copies) copy += offset;
  return copies;
}

/// Does elements [first, last) in chunks between the two ticks.
template <typename F>
GroupOperation::Action in_chunks(std::int64_t first, std::int64_t last, std::int64_t element, F f) {
  const std::int64_t chunk = kSlotBytes / element;
  return [first, last, chunk, f](GroupOperation& self) {
    if (self.step == 0) return Next::kTick;
    if (self.step == 2) return Next::kDone;
    const std::int64_t at = first + self.done;
    const std::int64_t n = std::min(chunk, last - at);
    if (n > 0) f(at, n);
    self.done += n;
    return first + self.done < last ? Next::kAgain : Next::kTick;
  };
}

}  // namespace

Work GroupCommunicator::all_reduce_in_place(const Tensor& tensor, ReduceOp op,
                                            const SharedBuffer& buffer) {
  const auto [first, last] = slice(tensor.numel(), size_, rank_);
  const auto element = static_cast<std::int64_t>(size_of(tensor.dtype()));
  return start(std::make_shared<GroupOperation>(
      *this, "all_reduce", std::vector{tensor},
      in_chunks(first, last, element,
                [op, element, own = Bytes(tensor), dtype = tensor.dtype(),
                 copies = copies_of(tensor, buffer, rank_)](std::int64_t at, std::int64_t n) {
                  std::vector<const void*> inputs;
                  for (const std::byte* copy : copies) inputs.push_back(copy + at * element);
                  reduce_pieces(dtype, op, own.at(at), inputs, n);
                  for (std::byte* copy : copies) {
                    copy_bytes(copy + at * element, own.at(at), n * element);
                  }
                })));
}

Work GroupCommunicator::reduce_scatter_in_place(const Tensor& input, const Tensor& output,
                                                ReduceOp op,
                                                const std::vector<std::int64_t>& counts,
                                                const SharedBuffer& buffer) {
  const std::int64_t first = starts_of(counts)[static_cast<std::size_t>(rank_)];
  const auto element = static_cast<std::int64_t>(size_of(input.dtype()));
  return start(std::make_shared<GroupOperation>(
      *this, "reduce_scatter", std::vector{input, output},
      in_chunks(first, first + output.numel(), element,
                [op, element, first, out = Bytes(output), dtype = input.dtype(),
                 copies = copies_of(input, buffer, rank_)](std::int64_t at, std::int64_t n) {
                  std::vector<const void*> inputs;
                  for (const std::byte* copy : copies) inputs.push_back(copy + at * element);
                  reduce_pieces(dtype, op, out.at(at - first), inputs, n);
                })));
}

Work GroupCommunicator::all_gather_in_place(const Tensor& input, const Tensor& output,
                                            const std::vector<std::int64_t>& counts,
                                            const SharedBuffer& buffer) {
  const std::int64_t first = starts_of(counts)[static_cast<std::size_t>(rank_)];
  const auto element = static_cast<std::int64_t>(size_of(input.dtype()));
  return start(std::make_shared<GroupOperation>(
      *this, "all_gather", std::vector{input, output},
      in_chunks(first, first + input.numel(), element,
                [element, first, in = Bytes(input), copies = copies_of(output, buffer, rank_)](
                    std::int64_t at, std::int64_t n) {
                  for (std::byte* copy : copies) {
                    copy_bytes(copy + at * element, in.at(at - first), n * element);
                  }
                })));
}

}  // namespace tessera::comm
