// SPDX-License-Identifier: Apache-2.0
// One JSON object on one line, keys in the order given. NaN and Inf are not JSON: they become null
// and their keys are listed under "nonfinite".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::io {

class JsonLine {
 public:
  /// 17 significant digits: the double comes back exactly.
  JsonLine& number(std::string_view key, double value);
  JsonLine& integer(std::string_view key, std::int64_t value);
  JsonLine& text(std::string_view key, std::string_view value);
  /// A nested object.
  JsonLine& object(std::string_view key, const JsonLine& value);

  /// "{...}" without a line end.
  std::string str() const;

 private:
  void key(std::string_view name);

  std::string body_;
  std::string nonfinite_;
};

}  // namespace tessera::io
