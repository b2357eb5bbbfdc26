// SPDX-License-Identifier: Apache-2.0
#include "tessera/train/open_text.hpp"

#include <fmt/format.h>

#include <vector>

#include "tessera/core/context.hpp"

namespace tessera::train {

std::shared_ptr<const data::ByteText> open_text(const Config& config, comm::Communicator& world) {
  auto text = std::make_shared<const data::ByteText>(config.data.path);
  const auto context = Context::create();
  const std::vector<std::int64_t> own{text->size(), static_cast<std::int64_t>(text->digest())};
  const Tensor all = Tensor::zeros(*context, {world.size(), 2}, DType::kI64);
  world.all_gather(Tensor::from(*context, {1, 2}, own), all).wait();
  const auto* values = all.data<std::int64_t>();
  for (int rank = 1; rank < world.size(); ++rank) {
    const std::int64_t* other = values + 2 * rank;
    if (other[0] == values[0] && other[1] == values[1]) continue;
    throw Error(
        ErrorCode::kConfig,
        fmt::format("the ranks read different texts: {} has {} bytes on rank 0 and {} "
                    "(digest {:x} and {:x}) on rank {}; give all ranks one file",
                    config.data.path, values[0], other[0], static_cast<std::uint64_t>(values[1]),
                    static_cast<std::uint64_t>(other[1]), rank));
  }
  return text;
}

}  // namespace tessera::train
