// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: the shared memory is the heap, messages are copied into a
// mailbox.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "group.hpp"

namespace tessera::comm {

/// What the ranks of one group share.
struct ThreadGroup {
  explicit ThreadGroup(int size);

  SharedSegment segment() const;

  struct Message {
    std::vector<std::byte> bytes;
  };
  /// Messages of one (from, to, tag); receives are served in the order they were posted.
  struct Mailbox {
    std::deque<Message> messages;
    std::uint64_t posted = 0;
    std::uint64_t served = 0;
  };
  int size;
  std::shared_ptr<TickCounter[]> ticks;
  std::shared_ptr<std::byte[]> slots;

  std::mutex mutex;
  std::map<std::tuple<int, int, int>, Mailbox> mail;                   ///< (from, to, tag)
  std::map<std::pair<int, int>, std::shared_ptr<ThreadGroup>> splits;  ///< (number, color)
  std::map<int, std::shared_ptr<std::byte[]>> buffers;                 ///< by number of allocation
};

class ThreadCommunicator final : public GroupCommunicator {
 public:
  ThreadCommunicator(std::string_view name, int rank, std::shared_ptr<ThreadGroup> group,
                     std::shared_ptr<Engine> engine);

  std::string_view name() const override { return name_; }
  Work isend(const Tensor& tensor, int peer, int tag) override;
  Work irecv(const Tensor& tensor, int peer, int tag) override;
  std::shared_ptr<Communicator> split(int color, int key) override;

 protected:
  SharedBuffer make_buffer(std::size_t bytes) override;

 private:
  std::string_view name_;
  std::shared_ptr<ThreadGroup> group_;
  int splits_ = 0;
  int allocations_ = 0;
};

}  // namespace tessera::comm
