// SPDX-License-Identifier: Apache-2.0
// Data-parallel training in which rank 1 fails in the middle of the backward pass of step 2, while
// the other ranks wait for its gradients.
#include "tessera/autograd/backward.hpp"
#include "tessera/comm/run_main.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/text.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/parallel/ddp.hpp"

using namespace tessera;

namespace {

void train(const std::shared_ptr<comm::Communicator>& world) {
  ContextOptions options;
  options.rank = world->rank();
  options.world_size = world->size();
  const auto context = Context::create(options);
  const spmd::AxisSpec axes[] = {{"dp", world->size()}};
  const spmd::Mesh mesh(*context, world, axes);
  nn::Decoder model(
      nn::BuildContext{context.get(), mesh.axes(), DType::kF32, ""},
      nn::DecoderConfig{.layers = 4, .width = 16, .heads = 2, .vocabulary = 256, .sequence = 8});
  parallel::Ddp ddp(model, mesh, "dp", {4096, DType::kF32});
  const ShardingType type = mesh.type("dp", AxisType::shard(0));
  int step = 0;
  int ops = 0;
  context->add_observer([&](OpPhase phase, std::string_view, const Tensor&, const ShardingType&) {
    if (phase != OpPhase::kBackward || step != 2 || world->rank() != 1) return;
    if (++ops == 20) throw Error(ErrorCode::kIo, "the disk of rank 1 is on fire");
  });
  const data::HostBatch rows{2, 8, data::encode_bytes("abcdefghijklmnop"),
                             data::encode_bytes("bcdefghijklmnopq")};
  for (; step < 4; ++step) {
    const data::Batch batch = data::to_batch(*context, rows);
    const nn::LossTerm terms[] = {model.loss(autograd::Variable(batch.tokens, type),
                                             autograd::Variable(batch.targets, type), 32.0)};
    ddp.begin_last_backward();
    autograd::backward(nn::loss_roots(terms));
    ddp.finish_step();
    for (const auto& parameter : model.parameters()) parameter->variable.zero_grad();
  }
}

}  // namespace

int main() {
  return comm::run_main([](const std::shared_ptr<comm::Communicator>& world) {
    train(world);
    return 0;
  });
}
