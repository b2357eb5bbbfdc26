// SPDX-License-Identifier: Apache-2.0
#include "thread_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "tessera/core/context.hpp"

namespace tessera::comm {
namespace {

class MailReceive final : public Operation {
 public:
  MailReceive(Engine& engine, std::string what, std::shared_ptr<ThreadGroup> group,
              std::tuple<int, int, int> key, Tensor tensor)
      : Operation(engine, std::move(what)),
        group_(std::move(group)),
        key_(key),
        tensor_(std::move(tensor)) {
    const std::lock_guard lock(group_->mutex);
    ticket_ = group_->mail[key_].posted++;
  }

  bool advance() override {
    ThreadGroup::Message message;
    {
      const std::lock_guard lock(group_->mutex);
      ThreadGroup::Mailbox& box = group_->mail[key_];
      if (box.served != ticket_ || box.messages.empty()) return false;
      message = std::move(box.messages.front());
      box.messages.pop_front();
      ++box.served;
    }
    TESSERA_CHECK(message.bytes.size() == tensor_.bytes(),
                  "a message of {} bytes came for a tensor of {} bytes", message.bytes.size(),
                  tensor_.bytes());
    if (!message.bytes.empty()) {
      std::memcpy(tensor_.raw(), message.bytes.data(), message.bytes.size());
    }
    return true;
  }

  void release() override { tensor_ = Tensor(); }

 private:
  std::shared_ptr<ThreadGroup> group_;
  std::tuple<int, int, int> key_;
  Tensor tensor_;
  std::uint64_t ticket_ = 0;
};

}  // namespace

ThreadGroup::ThreadGroup(int n)
    : size(n),
      ticks(new TickCounter[static_cast<std::size_t>(n)]),
      slots(n > 1 ? new std::byte[static_cast<std::size_t>(2 * kSlotBytes * n)] : nullptr) {}

SharedSegment ThreadGroup::segment() const {
  SharedSegment segment;
  segment.owner =
      std::make_shared<std::pair<std::shared_ptr<TickCounter[]>, std::shared_ptr<std::byte[]>>>(
          ticks, slots);
  segment.ticks = ticks.get();
  for (int r = 0; r < size && slots != nullptr; ++r) {
    segment.slots.push_back(slots.get() + 2 * kSlotBytes * r);
  }
  return segment;
}

ThreadCommunicator::ThreadCommunicator(std::string_view name, int rank,
                                       std::shared_ptr<ThreadGroup> group,
                                       std::shared_ptr<Engine> engine)
    : GroupCommunicator(rank, group->size, std::move(engine), group->segment()),
      name_(name),
      group_(std::move(group)) {}

Work ThreadCommunicator::isend(const Tensor& tensor, int peer, int tag) {
  TESSERA_CHECK(peer >= 0 && peer < size_, "isend: no rank {} among {}", peer, size_);
  TESSERA_CHECK(tensor.is_contiguous(), "isend: tensors must be contiguous");
  engine().check();
  ThreadGroup::Message message;
  message.bytes.resize(tensor.bytes());
  if (!message.bytes.empty()) {
    std::memcpy(message.bytes.data(), tensor.raw(), message.bytes.size());
  }
  const std::lock_guard lock(group_->mutex);
  group_->mail[{rank_, peer, tag}].messages.push_back(std::move(message));
  return {};
}

Work ThreadCommunicator::irecv(const Tensor& tensor, int peer, int tag) {
  TESSERA_CHECK(peer >= 0 && peer < size_, "irecv: no rank {} among {}", peer, size_);
  TESSERA_CHECK(tensor.is_contiguous(), "irecv: tensors must be contiguous");
  return start_unordered(std::make_shared<MailReceive>(
      engine(), fmt::format("{} from rank {} with tag {}", describe("irecv"), peer, tag), group_,
      std::tuple{peer, rank_, tag}, tensor));
}

std::shared_ptr<Communicator> ThreadCommunicator::split(int color, int key) {
  const auto context = Context::create();
  const std::vector<std::int64_t> mine{color, key};
  const Tensor all = Tensor::empty(*context, {2 * size_}, DType::kI64);
  all_gather(Tensor::from(*context, {2}, mine), all, {}).wait();
  const int number = splits_++;
  if (color < 0) {
    barrier().wait();  // as the members do below
    return nullptr;
  }
  const std::vector<std::int64_t> table = all.to_vector<std::int64_t>();
  std::vector<std::pair<std::int64_t, int>> members;
  for (int r = 0; r < size_; ++r) {
    if (table[static_cast<std::size_t>(2 * r)] == color) {
      members.emplace_back(table[static_cast<std::size_t>(2 * r + 1)], r);
    }
  }
  std::sort(members.begin(), members.end());
  const auto own = std::find_if(members.begin(), members.end(),
                                [this](const auto& member) { return member.second == rank_; });
  std::shared_ptr<ThreadGroup> group;
  {
    const std::lock_guard lock(group_->mutex);
    std::shared_ptr<ThreadGroup>& shared = group_->splits[{number, color}];
    if (shared == nullptr) shared = std::make_shared<ThreadGroup>(static_cast<int>(members.size()));
    group = shared;
  }
  barrier().wait();
  {
    const std::lock_guard lock(group_->mutex);
    group_->splits.erase({number, color});
  }
  auto made = std::make_shared<ThreadCommunicator>(name_, static_cast<int>(own - members.begin()),
                                                   std::move(group), shared_engine());
  made->set_timeout(timeout_);
  return made;
}

SharedBuffer ThreadCommunicator::make_buffer(std::size_t bytes) {
  const std::size_t stride = (bytes + 63) / 64 * 64;
  const int number = allocations_++;
  std::shared_ptr<std::byte[]> memory;
  {
    const std::lock_guard lock(group_->mutex);
    std::shared_ptr<std::byte[]>& shared = group_->buffers[number];
    if (shared == nullptr) {
      void* raw = ::operator new[](stride* static_cast<std::size_t>(size_), std::align_val_t{64});
      shared = std::shared_ptr<std::byte[]>(static_cast<std::byte*>(raw), [](std::byte* p) {
        ::operator delete[](p, std::align_val_t{64});
      });
    }
    memory = shared;
  }
  barrier().wait();
  {
    const std::lock_guard lock(group_->mutex);
    group_->buffers.erase(number);
  }
  SharedBuffer buffer{memory, {}, bytes};
  for (int r = 0; r < size_; ++r) {
    buffer.parts.push_back(memory.get() + stride * static_cast<std::size_t>(r));
  }
  return buffer;
}

}  // namespace tessera::comm
