// SPDX-License-Identifier: Apache-2.0
// A collective made of messages: a list of stages, each of which starts messages; the next begins
// when they are through. Nothing happens before the first question whether it is done.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/comm/work.hpp"

namespace tessera::comm {

class StagedWork final : public WorkState {
 public:
  struct Message {
    Work work;
    int peer;
  };
  using Stage = std::function<std::vector<Message>(std::size_t index)>;

  /// Calls `stage` with 0, ..., count - 1.
  StagedWork(std::size_t count, Stage stage) : count_(count), stage_(std::move(stage)) {}

  bool done() override;
  void wait(std::chrono::steady_clock::time_point deadline) override;
  /// Peers of the messages that are not through, for messages: "; waiting for rank 1, 3".
  std::string waiting_for() const;

 private:
  std::size_t count_;
  Stage stage_;
  std::vector<Message> messages_;
  std::size_t next_ = 0;
};

}  // namespace tessera::comm
