// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/rope.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tessera/core/error.hpp"

namespace tessera::nn {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

void require(bool ok, const std::string& message) {
  if (!ok) throw Error(ErrorCode::kConfig, message);
}

std::vector<double> base_frequencies(double theta, std::int64_t head_size) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < head_size; i += 2) {
    frequencies.push_back(
        std::pow(theta, -static_cast<double>(i) / static_cast<double>(head_size)));
  }
  return frequencies;
}

double dynamic_theta(const RopeConfig& config, std::int64_t head_size) {
  const auto d = static_cast<double>(head_size);
  const double stretch = config.factor *
                             static_cast<double>(std::max(config.length, config.original_length)) /
                             static_cast<double>(config.original_length) -
                         (config.factor - 1.0);
  return config.theta * std::pow(stretch, d / (d - 2.0));
}

void scale_llama3(const RopeConfig& config, std::vector<double>& frequencies) {
  const auto original = static_cast<double>(config.original_length);
  for (double& f : frequencies) {
    const double rotations = original * f / kTwoPi;  // within the original context
    if (rotations < config.low_frequency_factor) {
      f /= config.factor;
    } else if (rotations <= config.high_frequency_factor) {
      const double smooth = (rotations - config.low_frequency_factor) /
                            (config.high_frequency_factor - config.low_frequency_factor);
      f = (1.0 - smooth) * f / config.factor + smooth * f;
    }
  }
}

/// The pair whose wavelength makes `rotations` turns within the original context.
double yarn_pair(const RopeConfig& config, std::int64_t head_size, double rotations) {
  return static_cast<double>(head_size) *
         std::log(static_cast<double>(config.original_length) / (rotations * kTwoPi)) /
         (2.0 * std::log(config.theta));
}

void scale_yarn(const RopeConfig& config, std::int64_t head_size,
                std::vector<double>& frequencies) {
  const double low = std::max(std::floor(yarn_pair(config, head_size, config.beta_fast)), 0.0);
  double high = std::min(std::ceil(yarn_pair(config, head_size, config.beta_slow)),
                         static_cast<double>(head_size - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / config.factor * ramp + frequencies[i] * (1.0 - ramp);
  }
}

}  // namespace

void RopeConfig::validate() const {
  require(theta > 0.0 && std::isfinite(theta),
          fmt::format("rope: theta must be positive, not {}", theta));
  require(factor > 0.0 && std::isfinite(factor),
          fmt::format("rope: factor must be positive, not {}", factor));
  const bool needs_length = scaling == RopeScaling::kDynamic || scaling == RopeScaling::kYarn ||
                            scaling == RopeScaling::kLlama3;
  require(!needs_length || original_length > 0,
          "rope: this scaling needs original_length, the positions of the original training");
  require(scaling != RopeScaling::kLlama3 || high_frequency_factor > low_frequency_factor,
          fmt::format("rope: high_frequency_factor {} must be above low_frequency_factor {}",
                      high_frequency_factor, low_frequency_factor));
}

RopeFrequencies rope_frequencies(const RopeConfig& config, std::int64_t head_size) {
  config.validate();
  require(head_size > 0 && head_size % 2 == 0,
          fmt::format("rope: the head size must be even, not {}", head_size));
  RopeFrequencies result;
  result.radians_per_position = base_frequencies(config.theta, head_size);
  switch (config.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      for (double& f : result.radians_per_position) f /= config.factor;
      break;
    case RopeScaling::kDynamic:
      result.radians_per_position = base_frequencies(dynamic_theta(config, head_size), head_size);
      break;
    case RopeScaling::kYarn:
      scale_yarn(config, head_size, result.radians_per_position);
      if (config.factor > 1.0) result.attention_factor = 0.1 * std::log(config.factor) + 1.0;
      break;
    case RopeScaling::kLlama3:
      scale_llama3(config, result.radians_per_position);
      break;
  }
  return result;
}

}  // namespace tessera::nn
