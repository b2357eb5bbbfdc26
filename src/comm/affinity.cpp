// SPDX-License-Identifier: Apache-2.0
#include "tessera/comm/affinity.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tessera/core/context.hpp"

namespace tessera::comm {
namespace {

/// A mask as fixed bytes, to be gathered.
struct Packed {
  std::array<char, 64> host{};
  std::array<std::uint8_t, 128> bits{};  ///< 1024 cores
};

Packed packed(const CoreMask& mask) {
  Packed out;
  mask.host.copy(out.host.data(), out.host.size() - 1);
  for (const int core : mask.cores) {
    auto& byte = out.bits.at(static_cast<std::size_t>(core / 8));
    byte = static_cast<std::uint8_t>(byte | (1U << (core % 8)));
  }
  return out;
}

CoreMask unpacked(const Packed& in) {
  CoreMask mask{in.host.data(), {}};
  for (int core = 0; core < 1024; ++core) {
    if ((in.bits[static_cast<std::size_t>(core / 8)] >> (core % 8) & 1) != 0) {
      mask.cores.push_back(core);
    }
  }
  return mask;
}

}  // namespace

int threads_for_rank(const std::vector<CoreMask>& masks, int rank) {
  const CoreMask& own = masks.at(static_cast<std::size_t>(rank));
  double share = 0.0;
  for (const int core : own.cores) {
    const auto sharers = std::count_if(masks.begin(), masks.end(), [&](const CoreMask& mask) {
      return mask.host == own.host &&
             std::find(mask.cores.begin(), mask.cores.end(), core) != mask.cores.end();
    });
    share += 1.0 / static_cast<double>(sharers);
  }
  return std::max(1, static_cast<int>(share + 1e-9));
}

CoreMask own_core_mask() {
  CoreMask mask;
  std::array<char, 64> host{};
  gethostname(host.data(), host.size() - 1);
  mask.host = host.data();
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) mask.cores.push_back(core);
    }
  }
  return mask;
}

int rank_threads(Communicator& world) {
  const auto context = Context::create();
  const Packed own = packed(own_core_mask());
  const auto size = static_cast<std::int64_t>(sizeof(Packed));
  const Tensor mine = Tensor::empty(*context, {size}, DType::kU8);
  std::memcpy(mine.raw(), &own, sizeof(own));
  const Tensor all = Tensor::empty(*context, {size * world.size()}, DType::kU8);
  world.all_gather(mine, all).wait();
  std::vector<CoreMask> masks;
  for (int r = 0; r < world.size(); ++r) {
    Packed theirs;
    std::memcpy(&theirs, static_cast<std::byte*>(all.raw()) + r * size, sizeof(theirs));
    masks.push_back(unpacked(theirs));
  }
  return threads_for_rank(masks, world.rank());
}

}  // namespace tessera::comm
