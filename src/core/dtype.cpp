// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/dtype.hpp"

namespace tessera {

const char* to_string(DType dtype) {
  constexpr const char* names[kDTypeCount] = {"f64",    "f32", "f16", "bf16", "f8e4m3",
                                              "f8e5m2", "i64", "i32", "u8"};
  return names[static_cast<std::size_t>(dtype)];
}

}  // namespace tessera
