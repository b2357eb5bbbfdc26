// SPDX-License-Identifier: Apache-2.0
#include "tessera/io/json_line.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace tessera::io {
namespace {

std::string quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void JsonLine::key(std::string_view name) {
  if (!body_.empty()) body_ += ',';
  body_ += quoted(name) + ':';
}

JsonLine& JsonLine::number(std::string_view name, double value) {
  key(name);
  if (std::isfinite(value)) {
    body_ += fmt::format("{:.17g}", value);
  } else {
    body_ += "null";
    nonfinite_ += (nonfinite_.empty() ? "" : ",") + quoted(name);
  }
  return *this;
}

JsonLine& JsonLine::integer(std::string_view name, std::int64_t value) {
  key(name);
  body_ += fmt::format("{}", value);
  return *this;
}

JsonLine& JsonLine::text(std::string_view name, std::string_view value) {
  key(name);
  body_ += quoted(value);
  return *this;
}

JsonLine& JsonLine::object(std::string_view name, const JsonLine& value) {
  key(name);
  body_ += value.str();
  return *this;
}

std::string JsonLine::str() const {
  if (nonfinite_.empty()) return "{" + body_ + "}";
  return "{" + body_ + ",\"nonfinite\":[" + nonfinite_ + "]}";
}

}  // namespace tessera::io
