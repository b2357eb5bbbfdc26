// SPDX-License-Identifier: Apache-2.0
// Runs gradients through a graph. Nodes run in the reverse order of their creation, so the order of
// every sum is fixed. A pass can stop at a boundary and go on later, so that a pipeline schedule
// can interleave two of them; and it can leave the weight gradients for later (the W of zero-bubble
// schedules).
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

/// An output and the gradient to start from (its shape and dtype; undefined: ones for a scalar).
struct Root {
  Variable output;
  Tensor gradient;
};

/// Checks that the same seed on every rank counts `output` once: it must be P or I on every axis.
/// (The gradient of an R value is a pending sum: a seed of 1 on each of n ranks is n.) Throws
/// Error{kShardingType} that says what to do. Done for seeds left undefined; `what` names the
/// output in the message.
void require_seed_counts_once(const Variable& output, std::string_view what);

enum class BackwardPart {
  kAll,
  kInput,  ///< only gradients that flow on to activations; weight gradients are returned as
           ///< deferred (those of a closure that makes both come at once)
};

enum class KeepGraph { kNo, kYes };

/// Weight gradients that a kInput pass left over. It holds what they need and nothing else.
class DeferredWeights {
 public:
  DeferredWeights();
  DeferredWeights(DeferredWeights&&) noexcept;
  DeferredWeights& operator=(DeferredWeights&&) noexcept;
  ~DeferredWeights();
  bool empty() const;
  /// Computes them, accumulates into the leaves and fires their hooks. Once.
  void run();

 private:
  friend class BackwardPass;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One pass, in steps.
class BackwardPass {
 public:
  BackwardPass(std::span<const Root> roots, BackwardPart part = BackwardPart::kAll,
               KeepGraph keep = KeepGraph::kNo);
  ~BackwardPass();
  BackwardPass(const BackwardPass&) = delete;
  BackwardPass& operator=(const BackwardPass&) = delete;

  /// Runs every node made after `boundary` (a Variable of the graph, for example a module's input).
  void run_to(const Variable& boundary);
  /// Runs the rest.
  void run();
  /// The deferred part, after run().
  DeferredWeights take_deferred();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A whole pass: gradients accumulate in the leaves' grad().
void backward(std::span<const Root> roots, KeepGraph keep = KeepGraph::kNo);
void backward(const Variable& output, const Tensor& gradient = {}, KeepGraph keep = KeepGraph::kNo);

/// Gradients with respect to `leaves` only, returned (undefined where there is none); nothing is
/// accumulated and no hook fires. A Variable that an op made may stand among them: the graph is cut
/// there, and what lies behind it gets no gradient through it.
std::vector<Tensor> gradients(std::span<const Root> roots, std::span<const Variable> leaves,
                              KeepGraph keep = KeepGraph::kNo);

}  // namespace tessera::autograd
