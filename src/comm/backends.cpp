// SPDX-License-Identifier: Apache-2.0
#include "tessera/comm/backends.hpp"

#include <fmt/format.h>

#include "tessera_comm_backends.inc"

namespace tessera::comm {

namespace backends {
#define TESSERA_DECLARE(stem) std::shared_ptr<Communicator> make_##stem();
TESSERA_COMM_BACKENDS(TESSERA_DECLARE)
#undef TESSERA_DECLARE
}  // namespace backends

namespace {

struct Entry {
  std::string_view name;
  std::shared_ptr<Communicator> (*make)();  ///< a backend without a world (threads) refuses
};

constexpr Entry kBackends[] = {
#define TESSERA_ENTRY(stem) {#stem, backends::make_##stem},
    TESSERA_COMM_BACKENDS(TESSERA_ENTRY)
#undef TESSERA_ENTRY
};

}  // namespace

std::vector<std::string_view> backend_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kBackends) names.push_back(entry.name);
  return names;
}

std::shared_ptr<Communicator> make_world(std::string_view backend) {
  for (const Entry& entry : kBackends) {
    if (entry.name == backend) return entry.make();
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("no communicator backend \"{}\"; this build has {}", backend,
                          fmt::join(backend_names(), ", ")));
}

}  // namespace tessera::comm
