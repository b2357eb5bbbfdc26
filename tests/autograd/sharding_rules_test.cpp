// SPDX-License-Identifier: Apache-2.0
// The numeric proof of the sharding rules. For every differentiable function and every placement of
// its operands on a small mesh: where the rule accepts, the function is run per rank on the pieces,
// and outputs and gradients, put together by the derived types and their duals, must equal those of
// the whole; where it rejects, no type of the result makes them equal, or the placement stands in
// the table of conservative rejections.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "sharding_cases.hpp"
#include "simulated_mesh.hpp"

namespace tessera::autograd::testing {
namespace {

std::string name_of(const ShardingCase& c) {
  return c.label.empty() ? c.stem : c.stem + "." + c.label;
}

std::string to_string(const std::vector<Types>& operands) {
  std::string out;
  for (const Types& types : operands) {
    out += out.empty() ? "" : ", ";
    for (std::size_t a = 0; a < types.size(); ++a) {
      out += (a == 0 ? "" : " x ") + tessera::to_string(types[a]);
    }
  }
  return out;
}

bool has_varying(const std::vector<Types>& operands) {
  for (const Types& types : operands) {
    for (const AxisType& type : types) {
      if (type.kind == AxisKind::kVarying) return true;
    }
  }
  return false;
}

Array whole_operand(const CaseOperand& operand, std::uint64_t seed) {
  Array array{operand.shape, noise(operand.shape.numel(), seed)};
  if (operand.index_limit > 0) {
    for (double& v : array.data) v = std::floor((v + 1.0) / 2.0 * operand.index_limit);
  }
  return array;
}

Variable make_leaf(Context& context, const CaseOperand& operand, const Array& array,
                   const ShardingType& type) {
  const Tensor wide = Tensor::from(context, array.shape, array.data);
  if (operand.index_limit > 0) {
    std::vector<std::int32_t> indices(array.data.begin(), array.data.end());
    return Variable(Tensor::from(context, array.shape, indices), type);
  }
  return Variable(wide, type, operand.takes);
}

Array array_of(const Tensor& tensor) { return {tensor.shape(), values_of(tensor)}; }

/// Output and gradients of one call; gradients only of what takes them.
struct Outcome {
  Array y;
  std::map<std::size_t, Array> gradients;
};

Array output_gradient(const Shape& shape, std::uint64_t seed) {
  return {shape, noise(shape.numel(), 900 + seed)};
}

std::map<std::size_t, Array> run_backward(const Variable& y, const Array& dy,
                                          const Operands& leaves) {
  for (const Variable& leaf : leaves) Variable(leaf).zero_grad();
  backward(y, Tensor::from(y.context(), dy.shape, dy.data), KeepGraph::kYes);
  std::map<std::size_t, Array> gradients;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].grad().defined()) gradients[i] = array_of(leaves[i].grad());
  }
  return gradients;
}

Outcome run_whole(Context& context, const ShardingCase& c, const std::vector<Array>& operands,
                  std::uint64_t seed) {
  Operands leaves;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    leaves.push_back(make_leaf(context, c.operands[i], operands[i], {}));
  }
  const Variable y = c.call(leaves);
  return {array_of(y.value()), run_backward(y, output_gradient(y.shape(), seed), leaves)};
}

/// One placement of one case: the pieces, the ranks' outputs, and the comparison with the whole.
class Simulation {
 public:
  Simulation(const ShardingCase& c, SimulatedMesh mesh, std::vector<Types> types)
      : case_(c), mesh_(std::move(mesh)), types_(std::move(types)) {
    for (std::size_t i = 0; i < c.operands.size(); ++i) {
      const Array whole = whole_operand(c.operands[i], i);
      wholes_.push_back(whole);
      if (types_[i][0].kind == AxisKind::kVarying) {
        pieces_.emplace_back();
        for (int r = 0; r < mesh_.ranks(); ++r) {
          pieces_.back().push_back(
              whole_operand(c.operands[i], 50 + i * 10 + static_cast<std::uint64_t>(r)));
        }
      } else {
        pieces_.push_back(mesh_.cut(whole, types_[i], i));
      }
    }
  }

  /// Runs every rank. True when all accept: a program stops when one rank rejects.
  bool forward(bool checks_types) {
    ContextOptions options;
    options.check_types = checks_types;
    int accepted = 0;
    int rejected = 0;
    leaves_.clear();
    outputs_.clear();
    for (int rank = 0; rank < mesh_.ranks(); ++rank) {
      const auto context = Context::create(options);
      const AxisTable* axes = context->intern_axes(mesh_.table(rank));
      leaves_.emplace_back();
      for (std::size_t i = 0; i < types_.size(); ++i) {
        ShardingType type = checks_types ? ShardingType(axes) : ShardingType();
        for (int a = 0; a < type.count(); ++a) {
          type[a] = types_[i][static_cast<std::size_t>(a)];
          if (type[a].kind == AxisKind::kShard) type[a].size = wholes_[i].shape[type[a].dim];
        }
        leaves_.back().push_back(make_leaf(*context, case_.operands[i],
                                           pieces_[i][static_cast<std::size_t>(rank)], type));
      }
      try {
        outputs_.push_back(case_.call(leaves_.back()));
        ++accepted;
      } catch (const Error& error) {
        if (rejected++ == 0) {  // the first rank that rejects speaks
          message_ = error.message();
          code_ = error.code();
        }
        outputs_.emplace_back();
      }
    }
    return accepted == mesh_.ranks();
  }

  Types derived() const {
    const ShardingType& type = outputs_[0].type();
    Types types;
    for (int a = 0; a < type.count(); ++a) types.push_back(type[a]);
    return types;
  }
  int output_rank() const { return outputs_[0].rank(); }
  const std::string& message() const { return message_; }
  ErrorCode code() const { return code_; }

  /// Empty when outputs of type `result`, and the gradients, are those of the whole.
  std::string difference(const Types& result) {
    return has_varying(types_) ? varying_difference() : whole_difference(result);
  }

 private:
  std::string whole_difference(const Types& result) {
    const auto reference_context = Context::create();
    const Outcome whole = run_whole(*reference_context, case_, wholes_, 0);
    std::vector<Array> ys;
    for (const Variable& y : outputs_) ys.push_back(array_of(y.value()));
    const auto y = mesh_.assemble(ys, result);
    if (!y || !is_close(*y, whole.y)) return "output";
    Types duals;
    for (const AxisType& type : result) duals.push_back(type.dual());
    const std::vector<Array> dys = mesh_.cut(output_gradient(whole.y.shape, 0), duals, 33);
    const auto gradients = backward_all(dys);
    if (gradients.empty()) return "gradient shape";
    for (const auto& [i, expected] : whole.gradients) {
      Types dual;
      for (const AxisType& type : types_[i]) dual.push_back(type.dual());
      const auto found = mesh_.assemble(collect(gradients, i), dual);
      if (!found || !is_close(*found, expected)) return fmt::format("gradient of operand {}", i);
    }
    return {};
  }

  /// Where an operand varies there is one whole per rank, and the loss is the sum over them.
  std::string varying_difference() {
    const auto reference_context = Context::create();
    std::vector<Outcome> wholes;
    std::vector<Array> dys;
    for (int rank = 0; rank < mesh_.ranks(); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      std::vector<Array> operands = wholes_;
      for (std::size_t i = 0; i < operands.size(); ++i) {
        if (types_[i][0].kind == AxisKind::kVarying) operands[i] = pieces_[i][r];
      }
      wholes.push_back(run_whole(*reference_context, case_, operands, r));
      if (!is_close(array_of(outputs_[r].value()), wholes[r].y)) return "output";
      dys.push_back(output_gradient(wholes[r].y.shape, r));
    }
    const auto gradients = backward_all(dys);
    for (const auto& [i, first] : wholes[0].gradients) {
      std::vector<Array> expected;
      for (const Outcome& whole : wholes) expected.push_back(whole.gradients.at(i));
      const std::vector<Array> found = collect(gradients, i);
      if (types_[i][0].kind == AxisKind::kVarying) {
        for (std::size_t r = 0; r < found.size(); ++r) {
          if (!is_close(found[r], expected[r])) return "gradient that varies";
        }
        continue;
      }
      const auto total = mesh_.assemble(found, {types_[i][0].dual()});
      if (!total || !is_close(*total, *sum_of(expected))) return "gradient beside what varies";
    }
    return {};
  }

  std::vector<std::map<std::size_t, Array>> backward_all(const std::vector<Array>& dys) {
    std::vector<std::map<std::size_t, Array>> all;
    for (std::size_t r = 0; r < outputs_.size(); ++r) {
      if (outputs_[r].shape() != dys[r].shape) return {};
      all.push_back(run_backward(outputs_[r], dys[r], leaves_[r]));
    }
    return all;
  }

  static std::vector<Array> collect(const std::vector<std::map<std::size_t, Array>>& gradients,
                                    std::size_t operand) {
    std::vector<Array> found;
    for (const auto& rank : gradients) found.push_back(rank.at(operand));
    return found;
  }

  const ShardingCase& case_;
  SimulatedMesh mesh_;
  std::vector<Types> types_;
  std::vector<Array> wholes_;
  std::vector<std::vector<Array>> pieces_;  ///< [operand][rank]
  std::vector<Operands> leaves_;            ///< [rank][operand]
  std::vector<Variable> outputs_;
  std::string message_;
  ErrorCode code_ = ErrorCode::kInternal;
};

std::vector<AxisType> placements(const CaseOperand& operand) {
  std::vector<AxisType> all{AxisType::replicate(), AxisType::invariant(), AxisType::varying()};
  if (operand.index_limit == 0) all.push_back(AxisType::partial());
  for (int d = 0; d < operand.shape.rank(); ++d) {
    all.push_back(AxisType::shard(d, d == operand.unit_dim ? operand.unit : 1));
  }
  return all;
}

/// Every choice of one placement per operand on one axis. V stands beside whole operands only: a
/// split operand beside it is just another that varies.
std::vector<std::vector<Types>> all_placements(const ShardingCase& c) {
  std::vector<std::vector<Types>> all{{}};
  for (const CaseOperand& operand : c.operands) {
    std::vector<std::vector<Types>> longer;
    for (const auto& prefix : all) {
      for (const AxisType& type : placements(operand)) {
        longer.push_back(prefix);
        longer.back().push_back({type});
      }
    }
    all = std::move(longer);
  }
  std::erase_if(all, [](const std::vector<Types>& types) {
    bool splits = false;
    for (const Types& t : types) splits = splits || t[0].kind == AxisKind::kShard;
    return splits && has_varying(types);
  });
  return all;
}

/// The type under which the numbers would be right although the rule rejects; empty: there is none.
std::string conservative(Simulation& simulation) {
  if (!simulation.forward(false)) return {};
  std::vector<AxisType> candidates{AxisType::replicate(), AxisType::invariant(),
                                   AxisType::partial()};
  for (int d = 0; d < simulation.output_rank(); ++d) candidates.push_back(AxisType::shard(d));
  for (const AxisType& candidate : candidates) {
    if (simulation.difference({candidate}).empty()) return tessera::to_string(candidate);
  }
  return {};
}

class ShardingRulesTest : public ::testing::TestWithParam<ShardingCase> {};

TEST_P(ShardingRulesTest, AcceptsWhatIsRightAndOnlyThat) {
  const ShardingCase& c = GetParam();
  std::set<std::string> known;
  for (const ConservativeRejection& entry : conservative_rejections()) {
    if (entry.name == name_of(c)) known.insert(entry.types);
  }
  std::set<std::string> used;
  int accepted = 0;
  for (const int size : {2, 3}) {
    for (const std::vector<Types>& types : all_placements(c)) {
      const std::string text = to_string(types);
      SCOPED_TRACE(fmt::format("{} on {} ranks: {}", name_of(c), size, text));
      Simulation simulation(c, {{size}}, types);
      if (simulation.forward(true)) {
        ++accepted;
        EXPECT_EQ(simulation.difference(simulation.derived()), "")
            << "accepted as " << to_string({simulation.derived()});
        continue;
      }
      EXPECT_EQ(simulation.code(), ErrorCode::kShardingType) << simulation.message();
      const std::string right = conservative(simulation);
      if (right.empty()) continue;
      EXPECT_TRUE(known.contains(text)) << "would be right as " << right;
      used.insert(text);
    }
  }
  EXPECT_GE(accepted, 4);  // R and I at least, on two and on three ranks
  for (const std::string& entry : known) EXPECT_TRUE(used.contains(entry)) << entry;
}

/// Types on two axes; where both split one dim, the first is the outer split.
Types product(const AxisType& outer, AxisType inner) {
  if (outer.kind == AxisKind::kShard && inner.kind == AxisKind::kShard && outer.dim == inner.dim) {
    inner.order = 1;
  }
  return {outer, inner};
}

class TwoAxesTest : public ::testing::TestWithParam<ShardingCase> {};

TEST_P(TwoAxesTest, AcceptsProductsOfWhatOneAxisAccepts) {
  const ShardingCase& c = GetParam();
  const auto single = all_placements(c);
  std::vector<std::vector<Types>> candidates;
  for (const std::vector<Types>& types : single) {
    if (has_varying(types)) continue;
    if (Simulation(c, {{2}}, types).forward(true)) candidates.push_back(types);
  }
  ASSERT_FALSE(candidates.empty());
  for (const std::vector<Types>& outer : candidates) {
    for (const std::vector<Types>& inner : candidates) {
      std::vector<Types> types;
      for (std::size_t i = 0; i < outer.size(); ++i) {
        types.push_back(product(outer[i][0], inner[i][0]));
      }
      SCOPED_TRACE(name_of(c) + ": " + to_string(types));
      Simulation simulation(c, {{2, 2}}, types);
      ASSERT_TRUE(simulation.forward(true)) << simulation.message();
      EXPECT_EQ(simulation.difference(simulation.derived()), "")
          << "accepted as " << to_string({simulation.derived()});
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<ShardingCase>& info) {
  std::string name = name_of(info.param);
  for (char& ch : name) ch = ch == '.' ? '_' : ch;
  return name;
}

std::vector<ShardingCase> two_axes_cases() {
  std::vector<ShardingCase> cases = sharding_cases();
  std::erase_if(cases, [](const ShardingCase& c) { return !c.in_two_axes; });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, ShardingRulesTest, ::testing::ValuesIn(sharding_cases()), test_name);
INSTANTIATE_TEST_SUITE_P(All, TwoAxesTest, ::testing::ValuesIn(two_axes_cases()), test_name);

TEST(ShardingCasesTest, EveryDeclaredFunctionHasACase) {
  std::set<std::string> stems;
  for (const ShardingCase& c : sharding_cases()) stems.insert(c.stem);
  const std::filesystem::path directory =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "include" / "tessera" / "autograd";
  const std::regex declaration(R"(^(Variable|std::vector<Variable>|NormedSum) (\w+)\()");
  int functions = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      std::smatch match;
      if (!std::regex_search(line, match, declaration)) continue;
      ++functions;
      EXPECT_TRUE(stems.contains(match[2])) << entry.path().filename() << " declares " << match[2]
                                            << ", which has no case in sharding_cases.hpp";
    }
  }
  EXPECT_GE(functions, 16);
}

}  // namespace
}  // namespace tessera::autograd::testing
