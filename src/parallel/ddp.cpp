// SPDX-License-Identifier: Apache-2.0
#include "tessera/parallel/ddp.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/core/error.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::parallel {
namespace {

struct Bucket {
  std::vector<spmd::ParameterPtr> parameters;
  DType dtype = DType::kF32;
  Tensor gradients;         ///< flat; the parameters' gradient buffers are views of it
  Tensor reduced;           ///< what is sent: `gradients` itself, or a copy in the reduction dtype
  std::size_t waiting = 0;  ///< parameters without a final gradient in this backward pass
  comm::Work work;
};

}  // namespace

struct Ddp::Impl {
  const spmd::Mesh& mesh;
  std::string group;
  std::shared_ptr<comm::Communicator> communicator;
  std::vector<spmd::ParameterPtr> parameters;
  std::vector<Bucket> buckets;
  std::size_t next = 0;  ///< buckets start in this order on every rank
  bool is_last_backward = false;

  Impl(const spmd::Mesh& m, std::string g)
      : mesh(m), group(std::move(g)), communicator(m.communicator(group)) {}

  bool is_alone() const { return communicator->size() == 1; }
  void fill_buckets(const DdpOptions& options);
  void allocate(Bucket& bucket, const DdpOptions& options);
  void start_ready();
  void start(Bucket& bucket);
  void require_pending(const spmd::Parameter& parameter) const;
};

void Ddp::Impl::fill_buckets(const DdpOptions& options) {
  std::size_t bytes = 0;
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    const autograd::Variable& variable = (*it)->variable;
    const std::size_t size =
        static_cast<std::size_t>(variable.value().numel()) * size_of(variable.grad_dtype());
    if (buckets.empty() || buckets.back().dtype != variable.grad_dtype() ||
        (bytes > 0 && bytes + size > options.bucket_bytes)) {
      buckets.emplace_back();
      buckets.back().dtype = variable.grad_dtype();
      bytes = 0;
    }
    buckets.back().parameters.push_back(*it);
    bytes += size;
  }
  if (is_alone()) return;  // nothing is sent, so gradients lie where they come up
  for (Bucket& bucket : buckets) allocate(bucket, options);
}

void Ddp::Impl::allocate(Bucket& bucket, const DdpOptions& options) {
  std::int64_t count = 0;
  for (const spmd::ParameterPtr& parameter : bucket.parameters) {
    count += parameter->variable.value().numel();
  }
  const DType sent = bucket.dtype == DType::kF64 ? DType::kF64 : options.reduce_dtype;
  bucket.reduced = communicator->allocate(mesh.context(), {count}, sent);
  bucket.gradients = sent == bucket.dtype ? bucket.reduced
                                          : Tensor::zeros(mesh.context(), {count}, bucket.dtype,
                                                          MemoryCategory::kGradient);
  std::int64_t first = 0;
  for (const spmd::ParameterPtr& parameter : bucket.parameters) {
    autograd::Variable& variable = parameter->variable;
    const std::int64_t size = variable.value().numel();
    variable.set_grad_buffer(bucket.gradients.narrow(0, first, size).reshape(variable.shape()));
    first += size;
  }
}

/// Starts buckets whose gradients are final, in the fixed order only.
void Ddp::Impl::start_ready() {
  while (next < buckets.size() && buckets[next].waiting == 0) start(buckets[next++]);
}

void Ddp::Impl::start(Bucket& bucket) {
  const ProfileScope profile(mesh.context().profiler(), "ddp.start_all_reduce", "comm");
  for (const spmd::ParameterPtr& parameter : bucket.parameters) {
    autograd::VariableState& state = *parameter->variable.state();
    if (state.grad.defined()) continue;
    // No gradient here: it counts as zero; other ranks may have one.
    state.grad = is_alone() ? Tensor::zeros(mesh.context(), state.value.shape(), state.grad_dtype,
                                            MemoryCategory::kGradient)
                            : state.grad_buffer;
    if (!is_alone()) ops::fill(state.grad, 0.0);
    state.grad_type = state.type.dual();
  }
  if (is_alone()) return;
  if (!bucket.reduced.shares_storage(bucket.gradients)) {
    ops::copy_into(bucket.reduced, bucket.gradients);
  }
  bucket.work = communicator->all_reduce(bucket.reduced);
}

void Ddp::Impl::require_pending(const spmd::Parameter& parameter) const {
  const autograd::Variable& variable = parameter.variable;
  if (!variable.grad().defined() || variable.grad_type() == variable.type().dual()) return;
  throw Error(ErrorCode::kShardingType,
              fmt::format("Ddp::finish_step(): the gradient of {} is [{}], reduced already; it is "
                          "called once per step, before the optimizer's step and zero_grad()",
                          parameter.name, to_string(variable.grad_type())));
}

Ddp::Ddp(nn::Module& module, const spmd::Mesh& mesh, std::string group, const DdpOptions& options)
    : impl_(std::make_unique<Impl>(mesh, std::move(group))) {
  TESSERA_CHECK(options.bucket_bytes > 0, "Ddp: bucket_bytes must be positive");
  TESSERA_CHECK(is_floating(options.reduce_dtype), "Ddp: reduce_dtype must be a float, not {}",
                to_string(options.reduce_dtype));
  impl_->parameters = module.parameters();
  for (const spmd::ParameterPtr& parameter : impl_->parameters) {
    TESSERA_CHECK(
        parameter->placement.type.axes() == mesh.axes(),
        "Ddp: {} is typed on [{}], not on this mesh; build the module with the mesh's axes",
        parameter->name, to_string(parameter->placement.type));
    ShardingType type = parameter->placement.type;
    for (const AxisId axis : mesh.group(impl_->group)) {
      TESSERA_CHECK(
          type[axis].kind == AxisKind::kInvariant,
          "Ddp: {} is {} at rest on a data axis; data parallelism needs it invariant there",
          parameter->name, to_string(type[axis]));
    }
    parameter->set_compute_type(mesh.with(type, impl_->group, AxisType::replicate()));
  }
  impl_->fill_buckets(options);
  for (std::size_t b = 0; b < impl_->buckets.size(); ++b) {
    for (const spmd::ParameterPtr& parameter : impl_->buckets[b].parameters) {
      parameter->variable.set_grad_ready_hook([impl = impl_.get(), b] {
        if (!impl->is_last_backward) return;
        --impl->buckets[b].waiting;
        impl->start_ready();
      });
    }
  }
}

Ddp::~Ddp() {
  for (const spmd::ParameterPtr& parameter : impl_->parameters) {
    parameter->variable.set_grad_ready_hook(nullptr);
  }
}

void Ddp::begin_last_backward() {
  TESSERA_CHECK(!impl_->is_last_backward,
                "Ddp: begin_last_backward() was called twice without finish_step()");
  for (Bucket& bucket : impl_->buckets) bucket.waiting = bucket.parameters.size();
  impl_->next = 0;
  impl_->is_last_backward = true;
}

void Ddp::finish_step() {
  bool has_gradient = impl_->parameters.empty();
  for (const spmd::ParameterPtr& parameter : impl_->parameters) {
    has_gradient = has_gradient || parameter->variable.grad().defined();
    impl_->require_pending(*parameter);
  }
  TESSERA_CHECK(has_gradient,
                "Ddp::finish_step(): no parameter has a gradient; call backward first (a rank "
                "without data in a step runs it on a loss term whose labels are all ignored)");
  if (!impl_->is_last_backward) begin_last_backward();
  while (impl_->next < impl_->buckets.size()) impl_->start(impl_->buckets[impl_->next++]);
  for (Bucket& bucket : impl_->buckets) {
    if (!impl_->is_alone()) {
      bucket.work.wait();
      bucket.work = comm::Work();
      if (!bucket.reduced.shares_storage(bucket.gradients)) {
        ops::copy_into(bucket.gradients, bucket.reduced);
      }
    }
    for (const spmd::ParameterPtr& parameter : bucket.parameters) {
      const ShardingType type = parameter->variable.grad_type();
      parameter->variable.set_grad(parameter->variable.grad(),
                                   impl_->mesh.with(type, impl_->group, AxisType::invariant()));
    }
  }
  impl_->is_last_backward = false;
}

std::size_t Ddp::bucket_count() const { return impl_->buckets.size(); }

}  // namespace tessera::parallel
