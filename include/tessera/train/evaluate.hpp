// SPDX-License-Identifier: Apache-2.0
// Held-out loss, generated text, and the final weights.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tessera/data/text.hpp"
#include "tessera/nn/gpt.hpp"
#include "tessera/spmd/mesh.hpp"

namespace tessera::train {

/// Mean loss over the held-out windows, nats per token; the windows are divided among the ranks of
/// `group`, `rows` at a time. Collective. Dropout is off.
double evaluate(nn::Gpt& model, const data::ByteSamples& samples, const spmd::Mesh& mesh,
                std::string_view group, std::int64_t rows);

/// `prompt` and `count` more bytes, drawn one by one from softmax(logits / temperature) with random
/// numbers of `seed`. Not collective.
std::string generate(nn::Gpt& model, std::string_view prompt, std::int64_t count,
                     double temperature, std::uint64_t seed);

/// All parameters, f32 or f64 as they are, as safetensors with the model's sizes as metadata. To be
/// called on one rank that holds all.
void save_weights(const std::filesystem::path& path, const nn::Gpt& model);

}  // namespace tessera::train
