// SPDX-License-Identifier: Apache-2.0
// Bandwidth of the memory-bound ops on tensors larger than the caches, beside the copy and triad
// (McCalpin's STREAM) of plain loops in the same process. Bytes are those that an op must read and
// write at least once; the lines that a store fetches first are not counted, on either side.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/core/context.hpp"
#include "tessera/core/parallel_for.hpp"
#include "tessera/ops/activation.hpp"
#include "tessera/ops/adamw.hpp"
#include "tessera/ops/add.hpp"
#include "tessera/ops/copy.hpp"
#include "tessera/ops/cross_entropy.hpp"
#include "tessera/ops/dropout.hpp"
#include "tessera/ops/embedding.hpp"
#include "tessera/ops/layer_norm.hpp"
#include "tessera/ops/scale.hpp"
#include "tessera/ops/sum.hpp"

namespace {

using namespace tessera;

constexpr std::int64_t kWidth = 768;
constexpr std::int64_t kVocabulary = 50257;

struct Options {
  int threads = 1;
  std::int64_t mib = 256;
  int repeats = 5;
  bool is_json = false;
  std::string only;
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {
    ContextOptions context;
    context.threads = options.threads;
    context_ = Context::create(context);
    rows_ = std::max<std::int64_t>(1, (options.mib << 20) / 4 / kWidth);
  }

  void run() {
    measure_roof();
    elementwise();
    normalisation();
    tables();
    reductions();
  }

 private:
  using Body = std::function<void()>;

  Tensor filled(const Shape& shape, DType dtype = DType::kF32) {
    Tensor t = Tensor::empty(*context_, shape, DType::kF32);
    float* data = t.data<float>();
    parallel_for(context_->stream(), t.numel(), 1, [&](std::int64_t a, std::int64_t b) {
      for (std::int64_t i = a; i < b; ++i) {
        data[i] = static_cast<float>((i * 2654435761) & 0xFFFF) / 16384.0F - 2.0F;
      }
    });
    return ops::cast(t, dtype);
  }

  Tensor indices(std::int64_t count, std::int64_t below) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    std::uint64_t state = 1;
    for (std::int32_t& value : values) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      value = static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(below));
    }
    return Tensor::from(*context_, {count}, values);
  }

  /// Best of several calls, after one that warms up.
  double gb_per_second(std::int64_t bytes, const Body& body) const {
    using Clock = std::chrono::steady_clock;
    body();
    double best = 1e30;
    for (int i = 0; i < options_.repeats; ++i) {
      const auto begin = Clock::now();
      body();
      best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
    }
    return static_cast<double>(bytes) / best * 1e-9;
  }

  void report(const std::string& op, std::int64_t bytes, const Body& body) const {
    if (!options_.only.empty() && op.find(options_.only) == std::string::npos) return;
    const double rate = gb_per_second(bytes, body);
    if (options_.is_json) {
      fmt::print(
          "{{\"bench\":\"ops\",\"op\":\"{}\",\"threads\":{},\"bytes\":{},\"gb_per_second\":{:.3f},"
          "\"triad_gb_per_second\":{:.3f},\"of_triad\":{:.3f}}}\n",
          op, options_.threads, bytes, rate, triad_, rate / triad_);
    } else {
      fmt::print("{:28} {:8.2f} GB/s  {:5.2f} of triad\n", op, rate, rate / triad_);
    }
    std::fflush(stdout);
  }

  void measure_roof() {
    const Tensor a = filled({rows_, kWidth});
    const Tensor b = filled({rows_, kWidth});
    const Tensor c = filled({rows_, kWidth});
    const auto loop = [&](auto&& body) {
      return [&, body] {
        parallel_for(context_->stream(), a.numel(), 1, [&](std::int64_t i, std::int64_t j) {
          body(a.data<float>() + i, b.data<float>() + i, c.data<float>() + i, j - i);
        });
      };
    };
    const auto bytes = static_cast<std::int64_t>(a.bytes());
    triad_ =
        gb_per_second(3 * bytes, loop([](const float* x, const float* y, float* z, std::int64_t n) {
                        for (std::int64_t i = 0; i < n; ++i) z[i] = x[i] + 0.5F * y[i];
                      }));
    report("roof_triad", 3 * bytes,
           loop([](const float* x, const float* y, float* z, std::int64_t n) {
             for (std::int64_t i = 0; i < n; ++i) z[i] = x[i] + 0.5F * y[i];
           }));
    report("roof_copy", 2 * bytes, loop([](const float* x, const float*, float* z, std::int64_t n) {
             std::copy(x, x + n, z);
           }));
  }

  void elementwise() {
    const Tensor x = filled({rows_, kWidth});
    const Tensor dy = filled({rows_, kWidth});
    const Tensor y = Tensor::zeros(*context_, {rows_, kWidth}, DType::kF32);
    const Tensor bias = filled({kWidth});
    const auto n = static_cast<std::int64_t>(x.bytes());
    report("fill", n, [&] { ops::fill(y, 0.25); });
    report("copy", 2 * n, [&] { ops::copy_into(y, x); });
    const std::int64_t b = rows_ / 256;
    if (b > 0) {
      const Tensor heads = x.narrow(0, 0, b * 256).reshape({b, 256, kWidth / 64, 64});
      report("copy_swapped_heads", 2 * b * 256 * kWidth * 4, [&] {
        ops::copy(heads.permute({0, 2, 1, 3}));
      });
    }
    report("copy_transposed", 2 * n, [&] { ops::copy(x.transpose(0, 1)); });
    report("cast_f32_bf16", n + n / 2, [&] { ops::cast(x, DType::kBF16); });
    const Tensor low = ops::cast(x, DType::kBF16);
    report("cast_bf16_f32", n + n / 2, [&] { ops::cast(low, DType::kF32); });
    report("cast_f32_f16", n + n / 2, [&] { ops::cast(x, DType::kF16); });
    report("add", 3 * n, [&] { ops::add_into(y, x, dy); });
    report("add_bias", 2 * n, [&] { ops::add_into(y, x, bias); });
    report("axpy", 3 * n, [&] { ops::axpy(y, x, 0.5); });
    report("axpy_bf16_to_f32", 2 * n + n / 2, [&] { ops::axpy(y, low, 0.5); });
    report("scale", 2 * n, [&] { ops::scale(x, 0.5); });
    report("scale_in_place", 2 * n, [&] { ops::scale_(y, 1.0); });
    report("gelu", 2 * n, [&] { ops::activation(x, ops::Activation::kGelu); });
    report("gelu_backward", 3 * n,
           [&] { ops::activation_backward(x, dy, ops::Activation::kGelu); });
    const ops::GlobalWindow window{x.shape(), Shape::filled(2, 0)};
    report("dropout", 2 * n, [&] { ops::dropout(x, 0.1, RandomKey{7}, window); });
    const Tensor m = Tensor::zeros(*context_, {rows_, kWidth}, DType::kF32);
    const Tensor v = Tensor::zeros(*context_, {rows_, kWidth}, DType::kF32);
    const std::vector<ops::AdamWState> state{{y, dy, m, v, 0.1}};
    report("adamw", 7 * n, [&] { ops::adamw(state, {.lr = 1e-4, .step = 3}); });
  }

  void normalisation() {
    const Tensor x = filled({rows_, kWidth});
    const Tensor dy = filled({rows_, kWidth});
    const Tensor w = filled({kWidth});
    const Tensor dw = Tensor::zeros(*context_, {kWidth}, DType::kF32);
    const Tensor db = Tensor::zeros(*context_, {kWidth}, DType::kF32);
    const auto n = static_cast<std::int64_t>(x.bytes());
    const auto r = ops::layer_norm(x, w, w, 1e-5);
    report("layer_norm", 2 * n, [&] { ops::layer_norm(x, w, w, 1e-5); });
    report("layer_norm_backward", 3 * n,
           [&] { ops::layer_norm_backward(dy, x, w, r.mean, r.rstd); });
    report("layer_norm_weight_backward", 2 * n,
           [&] { ops::layer_norm_weight_backward(dw, db, dy, x, r.mean, r.rstd); });
  }

  void tables() {
    const Tensor table = filled({kVocabulary, kWidth});
    const Tensor tokens = indices(rows_, kVocabulary);
    const Tensor dy = filled({rows_, kWidth});
    const auto n = static_cast<std::int64_t>(dy.bytes());
    report("embedding", 2 * n, [&] { ops::embedding(table, tokens); });
    report("embedding_backward", 3 * n, [&] { ops::embedding_backward(table, dy, tokens); });
    const std::int64_t lines = std::max<std::int64_t>(1, rows_ * kWidth / kVocabulary);
    const Tensor logits = filled({lines, kVocabulary});
    const Tensor targets = indices(lines, kVocabulary);
    const auto bytes = static_cast<std::int64_t>(logits.bytes());
    const Tensor lse = ops::cross_entropy(logits, targets).lse;
    report("cross_entropy", bytes, [&] { ops::cross_entropy(logits, targets); });
    report("cross_entropy_backward", 2 * bytes,
           [&] { ops::cross_entropy_backward(1.0, logits, targets, lse); });
  }

  void reductions() {
    const Tensor x = filled({rows_, kWidth});
    const auto n = static_cast<std::int64_t>(x.bytes());
    const int rows[] = {0};
    const int columns[] = {1};
    report("sum", n, [&] { ops::sum(x); });
    report("sum_of_rows", n, [&] { ops::sum(x, rows); });
    report("sum_of_columns", n, [&] { ops::sum(x, columns); });
    report("square_sums", n, [&] { ops::square_sums(x, 1 << 16); });
  }

  Options options_;
  std::shared_ptr<Context> context_;
  std::int64_t rows_ = 0;
  double triad_ = 1.0;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Bandwidth of the memory-bound ops"};
  Options options;
  app.add_option("--threads", options.threads, "CPU threads")->check(CLI::PositiveNumber);
  app.add_option("--mib", options.mib, "Size of one f32 tensor in MiB")->check(CLI::PositiveNumber);
  app.add_option("--repeats", options.repeats, "Timed calls")->check(CLI::PositiveNumber);
  app.add_option("--only", options.only, "Ops whose name contains this");
  app.add_flag("--json", options.is_json, "One JSON line per op");
  CLI11_PARSE(app, argc, argv);
  Bench(options).run();
  return 0;
}
