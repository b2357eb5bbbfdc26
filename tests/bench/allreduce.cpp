// SPDX-License-Identifier: Apache-2.0
// all_reduce, reduce_scatter and all_gather of this library beside MPI's own, on one node:
// mpirun -n 2 allreduce [--json]. Times are medians over rounds that alternate between the two, so
// that drift of the machine meets both; every rank's time counts, the slowest is shown.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tessera/comm/backends.hpp"
#include "tessera/comm/mpi.hpp"
#include "tessera/core/context.hpp"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

/// The slowest rank's time of one call.
double timed(const std::function<void()>& call) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto begin = Clock::now();
  call();
  double mine = seconds(Clock::now() - begin);
  double slowest = 0.0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Contender {
  std::string name;
  std::function<void()> call;
  std::vector<double> times;
};

/// The contenders for one size, in microseconds.
std::vector<Contender> contenders(comm::Communicator& world, comm::Communicator& messages,
                                  Context& context, std::int64_t bytes) {
  const std::int64_t count = bytes / 4;
  const int ranks = world.size();
  const Tensor x = Tensor::zeros(context, {count}, DType::kF32);
  const Tensor shared = world.allocate(context, {count}, DType::kF32);
  const Tensor piece = Tensor::zeros(context, {count / ranks}, DType::kF32);
  const int n = static_cast<int>(count);
  return {
      {"mpi.all_reduce",
       [x, n] { MPI_Allreduce(MPI_IN_PLACE, x.raw(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); },
       {}},
      {"all_reduce", [&world, x] { world.all_reduce(x).wait(); }, {}},
      {"all_reduce.allocated", [&world, shared] { world.all_reduce(shared).wait(); }, {}},
      {"all_reduce.messages", [&messages, x] { messages.all_reduce(x).wait(); }, {}},
      {"mpi.reduce_scatter",
       [x, piece, n, ranks] {
         MPI_Reduce_scatter_block(x.raw(), piece.raw(), n / ranks, MPI_FLOAT, MPI_SUM,
                                  MPI_COMM_WORLD);
       },
       {}},
      {"reduce_scatter", [&world, x, piece] { world.reduce_scatter(x, piece).wait(); }, {}},
      {"reduce_scatter.allocated",
       [&world, shared, piece] { world.reduce_scatter(shared, piece).wait(); },
       {}},
      {"mpi.all_gather",
       [x, piece, n, ranks] {
         MPI_Allgather(piece.raw(), n / ranks, MPI_FLOAT, x.raw(), n / ranks, MPI_FLOAT,
                       MPI_COMM_WORLD);
       },
       {}},
      {"all_gather", [&world, x, piece] { world.all_gather(piece, x).wait(); }, {}},
      {"all_gather.allocated",
       [&world, shared, piece] { world.all_gather(piece, shared).wait(); },
       {}},
  };
}

void run(bool as_json) {
  const auto world = comm::make_world("mpi");
  const auto messages = comm::from_mpi(MPI_COMM_WORLD, comm::SharedMemory::kAvoid);
  const auto context = Context::create();
  for (std::int64_t bytes = std::int64_t{1} << 10; bytes <= std::int64_t{64} << 20; bytes *= 4) {
    std::vector<Contender> all = contenders(*world, *messages, *context, bytes);
    const int rounds = static_cast<int>(std::clamp<std::int64_t>((200 << 20) / bytes, 7, 200));
    for (int round = -2; round < rounds; ++round) {
      for (Contender& contender : all) {
        const double time = timed(contender.call);
        if (round >= 0) contender.times.push_back(time);
      }
    }
    if (world->rank() != 0) continue;
    for (Contender& contender : all) {
      const double best = *std::min_element(contender.times.begin(), contender.times.end());
      constexpr const char* table =
          "{} ranks {:>9} B {:<26} median {:>9.1f} us, best {:>9.1f} us\n";
      constexpr const char* json =
          "{{\"ranks\":{},\"bytes\":{},\"name\":\"{}\",\"median_us\":{:.1f},\"best_us\":{:.1f}}}\n";
      fmt::print(fmt::runtime(as_json ? json : table), world->size(), bytes, contender.name,
                 1e6 * median(contender.times), 1e6 * best);
    }
  }
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  CLI::App app("all_reduce, reduce_scatter and all_gather beside MPI's own");
  bool as_json = false;
  app.add_flag("--json", as_json, "one JSON object a line");
  CLI11_PARSE(app, argc, argv);
  tessera::run(as_json);
  return 0;
}
