// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/device.hpp"

#include <fmt/format.h>

#include "tessera/core/error.hpp"

namespace tessera {

std::string to_string(Device device) {
  return device.type == DeviceType::kCpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

void detail::throw_device_unsupported(Device device) {
  throw Error(ErrorCode::kUnsupported,
              fmt::format("this operation has no kernel for {} in this build; use the device cpu",
                          to_string(device)));
}

void detail::throw_kernel_unsupported(const char* kernel) {
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{} has no CUDA version yet; use the device cpu", kernel));
}

}  // namespace tessera
