// SPDX-License-Identifier: Apache-2.0
// GFLOP/s of the matrix product over the shapes of GPT-2 124M's layers (M = 1024 tokens), and of
// attention against it. For each thread count: f32 by the default path, f32 by the batch-invariant
// kernel, f64. Causal attention counts the visible half of the scores only.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "tessera/core/context.hpp"
#include "tessera/core/random.hpp"
#include "tessera/ops/attention.hpp"
#include "tessera/ops/matmul.hpp"

namespace {

using namespace tessera;

struct Case {
  const char* name;
  std::int64_t m, n, k;
  ops::Transpose transpose_a, transpose_b;
};

constexpr auto kNo = ops::Transpose::kNo;
constexpr auto kYes = ops::Transpose::kYes;
constexpr Case kCases[] = {
    {"qkv.forward", 1024, 2304, 768, kNo, kYes},   {"qkv.input", 1024, 768, 2304, kNo, kNo},
    {"qkv.weight", 2304, 768, 1024, kYes, kNo},    {"output.forward", 1024, 768, 768, kNo, kYes},
    {"output.input", 1024, 768, 768, kNo, kNo},    {"output.weight", 768, 768, 1024, kYes, kNo},
    {"up.forward", 1024, 3072, 768, kNo, kYes},    {"up.input", 1024, 768, 3072, kNo, kNo},
    {"up.weight", 3072, 768, 1024, kYes, kNo},     {"down.forward", 1024, 768, 3072, kNo, kYes},
    {"down.input", 1024, 3072, 768, kNo, kNo},     {"down.weight", 768, 3072, 1024, kYes, kNo},
    {"head.forward", 1024, 50257, 768, kNo, kYes}, {"head.input", 1024, 768, 50257, kNo, kNo},
    {"head.weight", 50257, 768, 1024, kYes, kNo},
};

template <typename T>
Tensor random_tensor(Context& context, const Shape& shape, std::uint64_t seed) {
  std::vector<T> values(static_cast<std::size_t>(shape.numel()));
  std::uint64_t i = seed;
  for (T& value : values) {
    value =
        static_cast<T>(static_cast<double>(random_bits(RandomKey{7}, i++)) / 4294967296.0 - 0.5);
  }
  return Tensor::from(context, shape, values);
}

/// Least seconds of `rounds` calls, after one to warm up.
template <typename F>
double least_seconds(int rounds, F&& f) {
  f();
  double least = 1e30;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    least = std::min(
        least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return least;
}

class Report {
 public:
  explicit Report(bool is_json) : is_json_(is_json) {}
  void add(const std::string& name, double gflops) {
    gflops_ += entry(gflops_, name, gflops);
    if (!is_json_) fmt::print("{:<44}{:8.1f} GFLOP/s\n", name, gflops);
    std::fflush(stdout);
  }
  /// A rate and what it is of the layers' matmul rate.
  void add(const std::string& name, double gflops, double matmul_gflops) {
    const double percent = 100.0 * gflops / matmul_gflops;
    gflops_ += entry(gflops_, name, gflops);
    percent_ += entry(percent_, name, percent);
    if (!is_json_) fmt::print("{:<44}{:8.1f} GFLOP/s {:5.0f} % of matmul\n", name, gflops, percent);
    std::fflush(stdout);
  }
  void finish() const {
    if (!is_json_) return;
    fmt::print("{{\"bench\":\"gemm\",\"gflops\":{{{}}},\"percent_of_matmul\":{{{}}}}}\n", gflops_,
               percent_);
  }

 private:
  static std::string entry(const std::string& before, const std::string& name, double value) {
    return fmt::format("{}\"{}\":{:.1f}", before.empty() ? "" : ",", name, value);
  }

  bool is_json_;
  std::string gflops_, percent_;
};

/// The time-weighted rate over the layer shapes, which attention is compared with.
template <typename T>
double bench_matmul(Context& context, const std::string& prefix, int rounds, bool has_head,
                    Report& report) {
  double flops_total = 0.0;
  double seconds_total = 0.0;
  for (const Case& c : kCases) {
    const bool is_head = std::string(c.name).starts_with("head");
    if (is_head && !has_head) continue;
    const Tensor a =
        random_tensor<T>(context, c.transpose_a == kYes ? Shape{c.k, c.m} : Shape{c.m, c.k}, 1);
    const Tensor b =
        random_tensor<T>(context, c.transpose_b == kYes ? Shape{c.n, c.k} : Shape{c.k, c.n}, 2);
    const Tensor out = Tensor::zeros(context, {c.m, c.n}, dtype_of<T>);
    const double seconds = least_seconds(is_head ? 2 : rounds, [&] {
      ops::matmul_into(out, a, b, c.transpose_a, c.transpose_b, false);
    });
    const double flops = 2.0 * static_cast<double>(c.m * c.n) * static_cast<double>(c.k);
    report.add(prefix + c.name, flops / seconds * 1e-9);
    if (is_head) continue;
    flops_total += flops;
    seconds_total += seconds;
  }
  report.add(prefix + "layers", flops_total / seconds_total * 1e-9);
  return flops_total / seconds_total * 1e-9;
}

template <typename T>
void bench_attention(Context& context, const std::string& prefix, int rounds, double matmul_gflops,
                     Report& report) {
  for (const std::int64_t t : {256, 512, 1024, 2048}) {
    const std::int64_t batch = 4096 / t;
    const std::int64_t heads = 12;
    const std::int64_t d = 64;
    const Tensor packed = random_tensor<T>(context, {batch, t, 3, heads, d}, 3);
    const Tensor q = packed.select(2, 0);
    const Tensor k = packed.select(2, 1);
    const Tensor v = packed.select(2, 2);
    const Tensor dpacked = Tensor::zeros(context, packed.shape(), dtype_of<T>);
    for (const auto mask : {ops::AttentionMask::kCausal, ops::AttentionMask::kNone}) {
      const bool is_causal = mask == ops::AttentionMask::kCausal;
      const double seen = static_cast<double>(is_causal ? t * (t + 1) / 2 : t * t);
      const double flops = 4.0 * seen * static_cast<double>(batch * heads * d);
      const auto name = [&](const char* pass) {
        return fmt::format("{}attention.{}.{}.t{}", prefix, is_causal ? "causal" : "full", pass, t);
      };
      const auto add = [&](const char* pass, double gflops) {
        report.add(name(pass), gflops, matmul_gflops);
      };
      ops::AttentionResult result;
      add("forward", flops * 1e-9 / least_seconds(rounds, [&] {
                       result = ops::attention(q, k, v, mask, 0.125);
                     }));
      add("backward", 2.5 * flops * 1e-9 / least_seconds(rounds, [&] {
                        ops::attention_backward(dpacked.select(2, 0), dpacked.select(2, 1),
                                                dpacked.select(2, 2), result.out, q, k, v,
                                                result.out, result.lse, mask, 0.125);
                      }));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("GFLOP/s of matmul and attention.\nExample: gemm --threads 1 2 --json");
  std::vector<int> thread_counts{1, 2};
  int rounds = 5;
  bool is_json = false;
  bool has_head = false;
  bool skips_attention = false;
  app.add_option("--threads", thread_counts, "thread counts");
  app.add_option("--rounds", rounds, "the best of so many calls counts");
  app.add_flag("--json", is_json, "one JSON line");
  app.add_flag("--head", has_head, "also the shapes of the 50257-word head");
  app.add_flag("--no-attention", skips_attention, "matmul only");
  CLI11_PARSE(app, argc, argv);

  Report report(is_json);
  for (const int threads : thread_counts) {
    ContextOptions options;
    options.threads = threads;
    const auto context = Context::create(options);
    options.numerics = Numerics::kLayoutInvariant;
    const auto invariant = Context::create(options);
    const std::string suffix = fmt::format("threads{}.", threads);
    const double f32 = bench_matmul<float>(*context, suffix + "f32.", rounds, has_head, report);
    bench_matmul<float>(*invariant, suffix + "f32_invariant.", rounds, has_head, report);
    const double f64 = bench_matmul<double>(*context, suffix + "f64.", rounds, has_head, report);
    if (skips_attention) continue;
    bench_attention<float>(*context, suffix + "f32.", rounds, f32, report);
    bench_attention<double>(*context, suffix + "f64.", rounds, f64, report);
  }
  report.finish();
  return 0;
}
