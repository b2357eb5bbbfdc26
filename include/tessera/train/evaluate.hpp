// SPDX-License-Identifier: Apache-2.0
// Held-out loss, generated text, and the final weights.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tessera/data/text.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/spmd/mesh.hpp"

namespace tessera::train {

/// Mean loss over the held-out windows, nats per token; the windows are divided among the ranks of
/// `group`, `rows` at a time. Collective. Dropout is off. Error{kInterrupted} after a signal.
double evaluate(nn::Decoder& model, const data::ByteSamples& samples, const spmd::Mesh& mesh,
                std::string_view group, std::int64_t rows);

/// Error{kNonFinite} for the held-out loss of a finished run that is no number: its weights are not
/// worth keeping.
void check_final_loss(double val_loss);

/// `prompt` and `count` more bytes, drawn one by one from softmax(logits / temperature) with random
/// numbers of `seed`; every byte is one forward pass over at most the model's sequence. Not
/// collective. Error{kInterrupted} after a signal.
std::string generate(nn::Decoder& model, std::string_view prompt, std::int64_t count,
                     double temperature, std::uint64_t seed);

/// The text with control characters, which could confuse a terminal, replaced by '?'.
std::string printable(std::string_view text);

/// All parameters, f32 or f64 as they are, as safetensors with the model's sizes as metadata. To be
/// called on one rank that holds all.
void save_weights(const std::filesystem::path& path, const nn::Decoder& model);

}  // namespace tessera::train
