// SPDX-License-Identifier: Apache-2.0
// The configuration of a run: a TOML file, with every key settable as section.key=value. An unknown
// key is an error that names the nearest known one.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "tessera/comm/communicator.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/optim/adamw.hpp"
#include "tessera/optim/schedule.hpp"

namespace tessera::train {

struct Config {
  struct {
    std::string kind = "gpt";  ///< gpt, or llama: RMSNorm, SwiGLU, RoPE, no biases, untied head
    std::int64_t layers = 4;
    std::int64_t width = 128;
    std::int64_t heads = 4;
    std::int64_t kv_heads = 0;  ///< heads of keys and values; 0: as many as heads
    std::int64_t hidden = 0;    ///< of the MLP; 0: 4 width
    double rope_theta = 10000.0;
    std::int64_t vocabulary = 256;
    double dropout = 0.0;
  } model;
  struct {
    std::string path;  ///< a text file; every byte is a token
  } data;
  struct {
    std::int64_t steps = 1000;
    std::int64_t batch = 8;  ///< sequences per data-parallel rank and micro-batch
    std::int64_t sequence = 128;
    std::int64_t accumulation = 1;  ///< micro-batches per step
    std::int64_t seed = 0;
    double clip = 1.0;                ///< largest gradient norm; 0 is no clipping
    std::int64_t evaluate_every = 0;  ///< steps between evaluations; 0: only at the end
    std::int64_t skip_limit = 10;     ///< non-finite steps in a row before the run fails
  } train;
  struct {
    std::string name = "adamw";
    double lr = 1e-3;
    double min_lr = 1e-4;
    std::int64_t warmup = 50;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double weight_decay = 0.1;
  } optim;
  struct {
    std::int64_t dp_replicate = 0;  ///< data-parallel ranks; 0: all
    double bucket_mib = 4.0;
    double timeout_s = 600.0;  ///< the deadline of every wait for another rank
  } parallel;
  struct {
    std::string directory = "runs/run";
    bool overwrite = false;     ///< replace an existing run directory's files
    std::int64_t every = 10;    ///< steps between progress lines
    std::int64_t sample = 300;  ///< bytes of text to generate at the end
    double temperature = 0.8;
  } log;

  nn::DecoderConfig decoder() const;
  std::chrono::milliseconds timeout() const;
  optim::AdamWConfig adamw() const;
  optim::WarmupCosine schedule() const;
};

/// Reads TOML text; `origin` names it in messages. Errors are kConfig: syntax (with the line),
/// unknown keys, wrong types.
Config parse_config(std::string_view toml, const std::string& origin);

/// Sets one "section.key=value".
void set_key(Config& config, std::string_view assignment);

/// A file and then the assignments, validated.
Config load_config(const std::filesystem::path& path, std::span<const std::string> assignments);

/// Checks every value's range; kConfig errors name the key, the value and the range.
void validate(const Config& config);

/// The whole configuration as TOML, every key, in a fixed order.
std::string to_toml(const Config& config);

/// Collective: Error{kConfig} that names the key and the values when a rank's configuration differs
/// from rank 0's.
void check_ranks_agree(const Config& config, comm::Communicator& world);

}  // namespace tessera::train
