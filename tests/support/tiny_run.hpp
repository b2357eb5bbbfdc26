// SPDX-License-Identifier: Apache-2.0
// A short training run of a tiny GPT in f64 with everything on that a layout could get wrong:
// dropout, ragged labels, accumulation, clipping. The same global data whatever the number of
// ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/parallel/ddp.hpp"

namespace tessera::testing {

struct TinyRunOptions {
  int steps = 20;
  int accumulation = 3;
  std::int64_t rows = 12;  ///< rows of a global micro-batch, divided among the ranks
  std::int64_t length = 9;
  double dropout = 0.1;
  double clip = 0.5;
  double lr = 1e-2;
  DType dtype = DType::kF64;
  Numerics numerics = Numerics::kDeterministic;
  parallel::DdpOptions ddp{};
  bool uses_ddp = true;
  bool traces = false;
};

struct TinyRunResult {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, std::vector<double>> gradients;  ///< of the last step, reduced
  std::map<std::string, std::vector<double>> weights;    ///< after the last step
  std::vector<Profiler::Event> events;                   ///< of the last step, when traced
  std::vector<std::size_t> used_bytes;                   ///< after each step, in use
  std::vector<std::size_t> cached_bytes;  ///< after each step, kept by the allocator for reuse
};

/// Runs on one rank of `world`; every rank returns the same result.
TinyRunResult tiny_run(std::shared_ptr<comm::Communicator> world, const TinyRunOptions& options);

/// Largest difference of two results' tensors, each relative to the larger of the tensor's maximum
/// and a thousandth of all tensors' maximum.
double relative_difference(const std::map<std::string, std::vector<double>>& a,
                           const std::map<std::string, std::vector<double>>& b);

}  // namespace tessera::testing
