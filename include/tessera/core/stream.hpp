// SPDX-License-Identifier: Apache-2.0
// Where kernels run. The CPU stream is synchronous: a kernel has finished when its call returns.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/core/device.hpp"

namespace tessera {

class Stream {
 public:
  Stream(Device device, int threads) : device_(device), threads_(threads) {}

  Device device() const { return device_; }
  /// Threads that a CPU kernel may use, at least 1.
  int threads() const { return threads_; }
  void set_threads(int threads) { threads_ = threads; }
  /// Returns when all work given to the stream is done.
  void synchronize() {}
  /// What a device's libraries keep per stream (handles); made by the kernel that first needs it.
  std::shared_ptr<void>& libraries() { return libraries_; }

 private:
  Device device_;
  int threads_;
  std::shared_ptr<void> libraries_;
};

}  // namespace tessera
