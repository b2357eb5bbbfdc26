// SPDX-License-Identifier: Apache-2.0
// The angles of rotary position embeddings: base frequencies theta^(-2i/D) (Su et al., arXiv
// 2104.09864) and the ways to stretch them beyond the context that a model was trained with. The
// formulas are those of Hugging Face's modeling_rope_utils, so that their checkpoints load.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::nn {

enum class RopeScaling : std::uint8_t {
  kNone,
  kLinear,   ///< positions divided by `factor` (Chen et al., arXiv 2306.15595)
  kDynamic,  ///< theta grows with the length ("dynamic NTK"): computed for `length`
  kYarn,     ///< between both by wavelength, with attention scaling (Peng et al., arXiv 2309.00071)
  kLlama3,   ///< long wavelengths divided by `factor`, a smooth band between (Llama 3.1)
};

struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  std::int64_t original_length = 0;    ///< positions of the original training
  std::int64_t length = 0;             ///< positions now; kDynamic only
  double low_frequency_factor = 1.0;   ///< kLlama3
  double high_frequency_factor = 4.0;  ///< kLlama3
  double beta_fast = 32.0;             ///< kYarn: rotations above which nothing is stretched
  double beta_slow = 1.0;              ///< kYarn: rotations below which all is

  /// kConfig errors: theta or factor not positive, original_length missing where it is needed.
  void validate() const;
};

struct RopeFrequencies {
  std::vector<double> radians_per_position;  ///< head_size / 2 of them
  double attention_factor = 1.0;             ///< multiplies cosines and sines (kYarn)
};

/// kConfig error for an odd head size.
RopeFrequencies rope_frequencies(const RopeConfig& config, std::int64_t head_size);

}  // namespace tessera::nn
