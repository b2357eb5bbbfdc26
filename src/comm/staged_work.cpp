// SPDX-License-Identifier: Apache-2.0
#include "staged_work.hpp"

#include <fmt/format.h>

#include <set>

namespace tessera::comm {

bool StagedWork::done() {
  while (true) {
    for (const Message& message : messages_) {
      if (!message.work.done()) return false;
    }
    for (const Message& message : messages_) message.work.wait();  // rethrows
    messages_.clear();
    if (next_ == count_) return true;
    messages_ = stage_(next_++);
  }
}

void StagedWork::wait(std::chrono::steady_clock::time_point) {
  // Every message has the communicator's deadline.
  while (!done()) {
    for (const Message& message : messages_) message.work.wait();
  }
}

std::string StagedWork::waiting_for() const {
  std::set<int> peers;
  for (const Message& message : messages_) {
    if (!message.work.done()) peers.insert(message.peer);
  }
  return peers.empty() ? "" : fmt::format("; waiting for rank {}", fmt::join(peers, ", "));
}

}  // namespace tessera::comm
