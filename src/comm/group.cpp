// SPDX-License-Identifier: Apache-2.0
#include "group.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "group_operation.hpp"
#include "pieces.hpp"
#include "reduce.hpp"
#include "tessera/core/context.hpp"

namespace tessera::comm {

using Next = GroupOperation::Next;

GroupCommunicator::GroupCommunicator(int rank, int size, std::shared_ptr<Engine> engine,
                                     SharedSegment segment)
    : Communicator(rank, size),
      engine_(std::move(engine)),
      queue_(engine_->add_queue()),
      segment_(std::move(segment)) {}

GroupCommunicator::~GroupCommunicator() { engine_->remove_queue(queue_); }

bool GroupCommunicator::poison(std::string_view reason) {
  engine_->poison()->poison(reason);
  return engine_->poison()->claim_report();
}

void GroupCommunicator::set_priority(int priority) { engine_->set_priority(queue_, priority); }

Work GroupCommunicator::start(std::shared_ptr<Operation> operation) {
  engine_->start(queue_, operation);
  return Work(std::move(operation), timeout_);
}

Work GroupCommunicator::start_unordered(std::shared_ptr<Operation> operation) {
  engine_->start_unordered(operation);
  return Work(std::move(operation), timeout_);
}

const SharedBuffer* GroupCommunicator::buffer_of(const Tensor& tensor) const {
  const auto* data = static_cast<const std::byte*>(tensor.raw());
  for (const auto& weak : buffers_) {
    const std::shared_ptr<SharedBuffer> buffer = weak.lock();
    if (buffer == nullptr) continue;
    const std::byte* own = buffer->parts[static_cast<std::size_t>(rank_)];
    if (data >= own && data + tensor.bytes() <= own + buffer->bytes) return buffer.get();
  }
  return nullptr;
}

Work GroupCommunicator::all_reduce(const Tensor& tensor, ReduceOp op) {
  require_contiguous(tensor, "all_reduce");
  engine_->check();
  if (size_ == 1 || tensor.numel() == 0) return {};
  const Bytes own(tensor);
  const DType dtype = tensor.dtype();
  const std::int64_t count = tensor.numel();
  const std::int64_t chunk = kSlotBytes / own.element;
  if (const SharedBuffer* buffer = buffer_of(tensor)) {
    return all_reduce_in_place(tensor, op, *buffer);
  }
  // Staged: post a chunk, reduce the own slice of it into the own slot, collect the slices.
  return start(std::make_shared<GroupOperation>(
      *this, "all_reduce", std::vector{tensor},
      [this, own, dtype, op, count, chunk](GroupOperation& self) {
        const std::int64_t n = std::min(chunk, count - self.done);
        if (self.step % 2 == 1) {
          const auto [first, last] = slice(n, size_, rank_);
          std::vector<const void*> inputs;
          for (int r = 0; r < size_; ++r) inputs.push_back(self.slot(r) + first * own.element);
          if (last > first) {
            reduce_pieces(dtype, op, self.slot(rank_) + first * own.element, inputs, last - first);
          }
          return Next::kTick;
        }
        if (self.step > 0) {
          for (int r = 0; r < size_; ++r) {
            const auto [first, last] = slice(n, size_, r);
            copy_bytes(own.at(self.done + first), self.slot(r) + first * own.element,
                       (last - first) * own.element);
          }
          self.flip();
          self.done += n;
          if (self.done == count) return Next::kDone;
        }
        const std::int64_t next = std::min(chunk, count - self.done);
        copy_bytes(self.slot(rank_), own.at(self.done), next * own.element);
        return Next::kTick;
      }));
}

Work GroupCommunicator::all_gather(const Tensor& input, const Tensor& output,
                                   std::span<const std::int64_t> given) {
  require_contiguous(input, "all_gather");
  require_contiguous(output, "all_gather");
  const std::vector<std::int64_t> counts =
      counts_or_equal(given, output.numel(), size_, "all_gather");
  require_piece(input, output, counts, rank_, "all_gather");
  engine_->check();
  const Bytes in(input);
  const Bytes out(output);
  if (size_ == 1) {
    copy_bytes(out.data, in.data, input.numel() * in.element);
    return {};
  }
  const std::int64_t most = largest(counts);
  if (most == 0) return {};
  if (const SharedBuffer* buffer = buffer_of(output)) {
    return all_gather_in_place(input, output, counts, *buffer);
  }
  const std::int64_t chunk = kSlotBytes / in.element;
  const std::vector<std::int64_t> starts = starts_of(counts);
  return start(std::make_shared<GroupOperation>(
      *this, "all_gather", std::vector{input, output},
      [this, in, out, counts, starts, most, chunk](GroupOperation& self) {
        const auto part = [&](std::int64_t done, std::size_t r) {
          return std::clamp(counts[r] - done, std::int64_t{0}, chunk);
        };
        if (self.step > 0) {
          for (std::size_t r = 0; r < counts.size(); ++r) {
            copy_bytes(out.at(starts[r] + self.done), self.slot(static_cast<int>(r)),
                       part(self.done, r) * out.element);
          }
          self.flip();
          self.done += chunk;
          if (self.done >= most) return Next::kDone;
        }
        copy_bytes(self.slot(rank_), in.at(self.done),
                   part(self.done, static_cast<std::size_t>(rank_)) * in.element);
        return Next::kTick;
      }));
}

Work GroupCommunicator::reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op,
                                       std::span<const std::int64_t> given) {
  require_contiguous(input, "reduce_scatter");
  require_contiguous(output, "reduce_scatter");
  const std::vector<std::int64_t> counts =
      counts_or_equal(given, input.numel(), size_, "reduce_scatter");
  require_piece(output, input, counts, rank_, "reduce_scatter");
  engine_->check();
  const Bytes in(input);
  const Bytes out(output);
  if (size_ == 1) {
    copy_bytes(out.data, in.data, input.numel() * in.element);
    return {};
  }
  const std::int64_t most = largest(counts);
  if (most == 0) return {};
  if (const SharedBuffer* buffer = buffer_of(input)) {
    return reduce_scatter_in_place(input, output, op, counts, *buffer);
  }
  const std::int64_t chunk = std::max<std::int64_t>(1, kSlotBytes / in.element / size_);
  const std::vector<std::int64_t> starts = starts_of(counts);
  const DType dtype = input.dtype();
  return start(std::make_shared<GroupOperation>(
      *this, "reduce_scatter", std::vector{input, output},
      [this, in, out, counts, starts, most, chunk, dtype, op](GroupOperation& self) {
        const auto part = [&](std::int64_t done, std::size_t r) {
          return std::clamp(counts[r] - done, std::int64_t{0}, chunk);
        };
        if (self.step > 0) {
          const std::int64_t n = part(self.done, static_cast<std::size_t>(rank_));
          std::vector<const void*> inputs;
          for (int r = 0; r < size_; ++r) {
            inputs.push_back(self.slot(r) + rank_ * chunk * in.element);
          }
          if (n > 0) reduce_pieces(dtype, op, out.at(self.done), inputs, n);
          self.flip();
          self.done += chunk;
          if (self.done >= most) return Next::kDone;
        }
        for (std::size_t r = 0; r < counts.size(); ++r) {
          copy_bytes(self.slot(rank_) + static_cast<std::int64_t>(r) * chunk * in.element,
                     in.at(starts[r] + self.done), part(self.done, r) * in.element);
        }
        return Next::kTick;
      }));
}

Work GroupCommunicator::all_to_all(const Tensor& input, const Tensor& output,
                                   std::span<const std::int64_t> given_send,
                                   std::span<const std::int64_t> given_receive) {
  require_contiguous(input, "all_to_all");
  require_contiguous(output, "all_to_all");
  TESSERA_CHECK(input.dtype() == output.dtype(), "all_to_all: {} does not go into {}",
                to_string(input.dtype()), to_string(output.dtype()));
  const auto send = counts_or_equal(given_send, input.numel(), size_, "all_to_all (send)");
  const auto receive =
      counts_or_equal(given_receive, output.numel(), size_, "all_to_all (receive)");
  engine_->check();
  const Bytes in(input);
  const Bytes out(output);
  if (size_ == 1) {
    TESSERA_CHECK(send == receive, "all_to_all: this rank sends {} elements and expects {}",
                  send[0], receive[0]);
    copy_bytes(out.data, in.data, input.numel() * in.element);
    return {};
  }
  const auto send_starts = starts_of(send);
  const auto receive_starts = starts_of(receive);
  const std::int64_t chunk = std::max<std::int64_t>(1, kSlotBytes / in.element / size_);
  const auto most = std::make_shared<std::int64_t>(0);
  // First the counts of all pairs, so that every rank knows how many chunks there are.
  return start(std::make_shared<GroupOperation>(
      *this, "all_to_all", std::vector{input, output},
      [this, in, out, send, receive, send_starts, receive_starts, chunk,
       most](GroupOperation& self) {
        const std::int64_t row = size_ * static_cast<std::int64_t>(sizeof(std::int64_t));
        const auto part = [&](std::int64_t count) {
          return std::clamp(count - self.done, std::int64_t{0}, chunk);
        };
        if (self.step == 0) {
          copy_bytes(self.slot(rank_), reinterpret_cast<const std::byte*>(send.data()), row);
          return Next::kTick;
        }
        if (self.step == 1) {
          for (int r = 0; r < size_; ++r) {
            std::vector<std::int64_t> theirs(static_cast<std::size_t>(size_));
            copy_bytes(reinterpret_cast<std::byte*>(theirs.data()), self.slot(r), row);
            *most = std::max(*most, largest(theirs));
            const std::int64_t to_me = theirs[static_cast<std::size_t>(rank_)];
            TESSERA_CHECK(to_me == receive[static_cast<std::size_t>(r)],
                          "all_to_all: rank {} sends {} elements, this rank expects {}", r, to_me,
                          receive[static_cast<std::size_t>(r)]);
          }
          self.flip();
          if (*most == 0) return Next::kDone;
        } else {
          for (std::size_t r = 0; r < receive.size(); ++r) {
            copy_bytes(out.at(receive_starts[r] + self.done),
                       self.slot(static_cast<int>(r)) + rank_ * chunk * in.element,
                       part(receive[r]) * in.element);
          }
          self.flip();
          self.done += chunk;
          if (self.done >= *most) return Next::kDone;
        }
        for (std::size_t r = 0; r < send.size(); ++r) {
          copy_bytes(self.slot(rank_) + static_cast<std::int64_t>(r) * chunk * in.element,
                     in.at(send_starts[r] + self.done), part(send[r]) * in.element);
        }
        return Next::kTick;
      }));
}

Work GroupCommunicator::broadcast(const Tensor& tensor, int root) {
  require_contiguous(tensor, "broadcast");
  TESSERA_CHECK(root >= 0 && root < size_, "broadcast: no rank {} among {}", root, size_);
  engine_->check();
  if (size_ == 1 || tensor.numel() == 0) return {};
  const Bytes own(tensor);
  const std::int64_t count = tensor.numel();
  const std::int64_t chunk = kSlotBytes / own.element;
  return start(std::make_shared<GroupOperation>(
      *this, "broadcast", std::vector{tensor},
      [this, own, count, chunk, root](GroupOperation& self) {
        if (self.step > 0) {
          const std::int64_t n = std::min(chunk, count - self.done);
          if (rank_ != root) copy_bytes(own.at(self.done), self.slot(root), n * own.element);
          self.flip();
          self.done += n;
          if (self.done == count) return Next::kDone;
        }
        const std::int64_t n = std::min(chunk, count - self.done);
        if (rank_ == root) copy_bytes(self.slot(rank_), own.at(self.done), n * own.element);
        return Next::kTick;
      }));
}

Work GroupCommunicator::barrier() {
  engine_->check();
  if (size_ == 1) return {};
  return start(std::make_shared<GroupOperation>(
      *this, "barrier", std::vector<Tensor>{},
      [](GroupOperation& self) { return self.step == 0 ? Next::kTick : Next::kDone; }));
}

Tensor GroupCommunicator::allocate(Context& context, const Shape& shape, DType dtype) {
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  barrier().wait();
  auto buffer = std::make_shared<SharedBuffer>(bytes == 0 ? SharedBuffer{} : make_buffer(bytes));
  if (buffer->parts.empty()) {
    return Tensor::zeros(context, shape, dtype, MemoryCategory::kCommunication);
  }
  std::erase_if(buffers_, [](const auto& weak) { return weak.expired(); });
  buffers_.push_back(buffer);
  std::byte* own = buffer->parts[static_cast<std::size_t>(rank_)];
  std::memset(own, 0, bytes);
  barrier().wait();  // nobody reduces before all are zeroed
  auto storage = std::make_shared<Storage>(context.shared_from_this(), own, bytes,
                                           MemoryCategory::kCommunication, [buffer] {});
  return Tensor(std::move(storage), dtype, shape, contiguous_strides(shape), 0);
}

}  // namespace tessera::comm
