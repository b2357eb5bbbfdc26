// SPDX-License-Identifier: Apache-2.0
// Devices and the only device dispatcher. This is the one public header that knows build flags.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace tessera {

enum class DeviceType : std::uint8_t { kCpu, kCuda };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

/// "cpu" or "cuda:0".
std::string to_string(Device device);

namespace detail {
[[noreturn]] void throw_device_unsupported(Device device);
[[noreturn]] void throw_kernel_unsupported(const char* kernel);
}  // namespace detail

/// Calls `f.template operator()<D>()` with the device's type as the template argument:
/// `on_device(x.device(), [&]<DeviceType D>() { scale_kernel<D>(args, stream); });`
/// A missing kernel is a link error. (Until every kernel has its CUDA version, those that have none
/// are generated and throw Error{kUnsupported}.)
template <typename F>
decltype(auto) on_device(Device device, F&& f) {
#ifdef TESSERA_CUDA
  if (device.type == DeviceType::kCuda) {
    return std::forward<F>(f).template operator()<DeviceType::kCuda>();
  }
#else
  if (device.type != DeviceType::kCpu) detail::throw_device_unsupported(device);
#endif
  return std::forward<F>(f).template operator()<DeviceType::kCpu>();
}

}  // namespace tessera
