// SPDX-License-Identifier: Apache-2.0
#include "tessera/train/config.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <variant>
#include <vector>

#include "tessera/core/context.hpp"
#include "tessera/io/file.hpp"

namespace tessera::train {
namespace {

using Field = std::variant<std::int64_t*, double*, bool*, std::string*>;

struct Key {
  std::string name;  ///< "section.key"
  Field field;
};

/// All keys of a configuration, in the order of the resolved file.
std::vector<Key> keys_of(Config& c) {
  return {{"model.kind", &c.model.kind},
          {"model.layers", &c.model.layers},
          {"model.width", &c.model.width},
          {"model.heads", &c.model.heads},
          {"model.kv_heads", &c.model.kv_heads},
          {"model.hidden", &c.model.hidden},
          {"model.rope_theta", &c.model.rope_theta},
          {"model.vocabulary", &c.model.vocabulary},
          {"model.dropout", &c.model.dropout},
          {"data.path", &c.data.path},
          {"train.steps", &c.train.steps},
          {"train.batch", &c.train.batch},
          {"train.sequence", &c.train.sequence},
          {"train.accumulation", &c.train.accumulation},
          {"train.seed", &c.train.seed},
          {"train.clip", &c.train.clip},
          {"train.evaluate_every", &c.train.evaluate_every},
          {"train.skip_limit", &c.train.skip_limit},
          {"optim.name", &c.optim.name},
          {"optim.lr", &c.optim.lr},
          {"optim.min_lr", &c.optim.min_lr},
          {"optim.warmup", &c.optim.warmup},
          {"optim.beta1", &c.optim.beta1},
          {"optim.beta2", &c.optim.beta2},
          {"optim.eps", &c.optim.eps},
          {"optim.weight_decay", &c.optim.weight_decay},
          {"parallel.dp_replicate", &c.parallel.dp_replicate},
          {"parallel.bucket_mib", &c.parallel.bucket_mib},
          {"parallel.timeout_s", &c.parallel.timeout_s},
          {"log.directory", &c.log.directory},
          {"log.overwrite", &c.log.overwrite},
          {"log.every", &c.log.every},
          {"log.sample", &c.log.sample},
          {"log.temperature", &c.log.temperature}};
}

[[noreturn]] void reject(const std::string& message) { throw Error(ErrorCode::kConfig, message); }

/// Levenshtein distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

/// How far a mistyped key is from a known one; a key written without its section, or with a wrong
/// one, is as near as its last part and a little.
std::size_t key_distance(std::string_view typed, std::string_view known) {
  const auto last = [](std::string_view name) { return name.substr(name.rfind('.') + 1); };
  return std::min(2 * distance(typed, known), 2 * distance(last(typed), last(known)) + 3);
}

const Key& find_key(const std::vector<Key>& keys, std::string_view name,
                    const std::string& origin) {
  const auto found =
      std::find_if(keys.begin(), keys.end(), [name](const Key& key) { return key.name == name; });
  if (found != keys.end()) return *found;
  const auto nearest =
      std::min_element(keys.begin(), keys.end(), [name](const Key& a, const Key& b) {
        return key_distance(name, a.name) < key_distance(name, b.name);
      });
  reject(fmt::format("{}: unknown key \"{}\"; the nearest known one is \"{}\"", origin, name,
                     nearest->name));
}

const char* type_name(const Field& field) {
  constexpr const char* names[] = {"a whole number", "a number", "true or false", "a string"};
  return names[field.index()];
}

template <typename Node>
void assign(const Key& key, const Node& node, const std::string& origin) {
  const auto wrong = [&](const std::string& got) {
    reject(fmt::format("{}: {} must be {}, not {}", origin, key.name, type_name(key.field), got));
  };
  std::ostringstream text;
  node.visit([&text](const auto& value) { text << value; });
  std::visit(
      [&](auto* field) {
        using T = std::remove_pointer_t<decltype(field)>;
        if constexpr (std::is_same_v<T, double>) {
          if (!node.is_number()) wrong(text.str());
          *field = *node.template value<double>();
        } else {
          const auto value = node.template value_exact<T>();
          if (!value) wrong(text.str());
          *field = *value;
        }
      },
      key.field);
}

toml::table parse_toml(std::string_view text, const std::string& origin) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    reject(fmt::format("{}, line {}: {}", origin, error.source().begin.line, error.description()));
  }
}

std::string format_value(const Field& field) {
  return std::visit(
      [](const auto* value) -> std::string {
        using T = std::remove_cv_t<std::remove_pointer_t<decltype(value)>>;
        if constexpr (std::is_same_v<T, std::string>) {
          std::ostringstream out;
          out << toml::value<std::string>(*value);
          return out.str();
        } else if constexpr (std::is_same_v<T, double>) {
          const std::string text = fmt::format("{}", *value);
          const bool is_float = text.find_first_of(".en") != std::string::npos;
          return is_float ? text : text + ".0";
        } else {
          return fmt::format("{}", *value);
        }
      },
      field);
}

void require(bool ok, std::string_view key, const std::string& value, std::string_view range) {
  if (!ok) reject(fmt::format("{} = {} must be {}", key, value, range));
}

void check_section(const std::vector<Key>& keys, const std::string& section,
                   const std::string& origin) {
  std::string nearest;
  for (const Key& key : keys) {
    const std::string known = key.name.substr(0, key.name.find('.'));
    if (known == section) return;
    if (nearest.empty() || distance(section, known) < distance(section, nearest)) nearest = known;
  }
  reject(fmt::format("{}: unknown section [{}]; the nearest known one is [{}]", origin, section,
                     nearest));
}

void between(std::string_view key, std::int64_t value, std::int64_t least, std::int64_t most) {
  require(value >= least && value <= most, key, std::to_string(value),
          value < least ? fmt::format("at least {}", least) : fmt::format("at most {}", most));
}

void check_float(std::string_view key, double value, double least, double most,
                 std::string_view range) {
  require(value >= least && value <= most, key, fmt::format("{}", value), range);
}

void at_least(std::string_view key, std::int64_t value, std::int64_t least) {
  require(value >= least, key, std::to_string(value), fmt::format("at least {}", least));
}

}  // namespace

std::chrono::milliseconds Config::timeout() const {
  return std::chrono::milliseconds(static_cast<std::int64_t>(parallel.timeout_s * 1000.0));
}

nn::DecoderConfig Config::decoder() const {
  nn::DecoderConfig decoder =
      model.kind == "llama" ? nn::DecoderConfig::llama() : nn::DecoderConfig();
  decoder.layers = static_cast<int>(model.layers);
  decoder.width = model.width;
  decoder.heads = static_cast<int>(model.heads);
  decoder.kv_heads = static_cast<int>(model.kv_heads);
  decoder.hidden = model.hidden;
  decoder.rope.theta = model.rope_theta;
  decoder.vocabulary = model.vocabulary;
  decoder.sequence = train.sequence;
  decoder.dropout = model.dropout;
  return decoder;
}

optim::AdamWConfig Config::adamw() const {
  return {optim.beta1, optim.beta2, optim.eps, optim.weight_decay};
}

optim::WarmupCosine Config::schedule() const {
  return {optim.lr, optim.min_lr, optim.warmup, train.steps};
}

Config parse_config(std::string_view toml, const std::string& origin) {
  Config config;
  const std::vector<Key> keys = keys_of(config);
  const toml::table root = parse_toml(toml, origin);
  for (const auto& [section, node] : root) {
    const toml::table* table = node.as_table();
    if (table == nullptr) find_key(keys, section.str(), origin);  // no key stands outside a section
    if (table == nullptr) continue;
    if (table->empty()) check_section(keys, std::string(section.str()), origin);
    for (const auto& [name, value] : *table) {
      assign(find_key(keys, fmt::format("{}.{}", section.str(), name.str()), origin), value,
             origin);
    }
  }
  return config;
}

void set_key(Config& config, std::string_view assignment) {
  const std::string origin = fmt::format("--set {}", assignment);
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    reject(fmt::format("{}: expected section.key=value", origin));
  }
  const std::vector<Key> keys = keys_of(config);
  const Key& key = find_key(keys, assignment.substr(0, equals), origin);
  const std::string value(assignment.substr(equals + 1));
  if (std::holds_alternative<std::string*>(key.field)) {
    *std::get<std::string*>(key.field) = value;  // no quotes needed on the command line
    return;
  }
  toml::table root;
  try {
    if (value.find('\n') != std::string::npos)
      reject(fmt::format("{}: {} must be one line", origin, key.name));
    root = toml::parse("value = " + value);
  } catch (const toml::parse_error&) {
    reject(fmt::format("{}: {} must be {}, not {}", origin, key.name, type_name(key.field),
                       value.empty() ? "nothing" : value));
  }
  assign(key, *root.get("value"), origin);
}

Config load_config(const std::filesystem::path& path, std::span<const std::string> assignments) {
  std::string text;
  try {
    text = io::read_file(path);
  } catch (const Error& error) {
    reject(error.message());  // a name that is wrong is bad usage
  }
  Config config = parse_config(text, path.string());
  for (const std::string& assignment : assignments) set_key(config, assignment);
  validate(config);
  return config;
}

void validate(const Config& config) {
  require(config.model.kind == "gpt" || config.model.kind == "llama", "model.kind",
          config.model.kind, "\"gpt\" or \"llama\"");
  require(config.optim.name == "adamw", "optim.name", config.optim.name, "\"adamw\"");
  between("model.layers", config.model.layers, 1, 10000);
  between("model.width", config.model.width, 1, 1 << 20);
  between("model.heads", config.model.heads, 1, 1 << 20);
  between("model.kv_heads", config.model.kv_heads, 0, 1 << 20);
  between("model.hidden", config.model.hidden, 0, 1 << 24);
  check_float("model.rope_theta", config.model.rope_theta, 1.0, 1e12, "between 1 and 1e12");
  require(config.model.vocabulary >= 256, "model.vocabulary",
          std::to_string(config.model.vocabulary), "at least 256: every byte is a token");
  between("model.vocabulary", config.model.vocabulary, 256, 1 << 24);
  between("train.steps", config.train.steps, 1, 1000000000);
  between("train.batch", config.train.batch, 1, 1 << 20);
  between("train.sequence", config.train.sequence, 1, 1 << 24);
  between("train.accumulation", config.train.accumulation, 1, 1 << 20);
  const double tokens = static_cast<double>(config.train.steps * config.train.batch) *
                        static_cast<double>(config.train.accumulation * config.train.sequence);
  if (tokens > 1e15) {
    reject(
        fmt::format("train.steps x batch x accumulation x sequence = {:.1e} tokens per rank "
                    "must be at most 1e15",
                    tokens));
  }
  at_least("train.seed", config.train.seed, 0);
  at_least("train.evaluate_every", config.train.evaluate_every, 0);
  at_least("train.skip_limit", config.train.skip_limit, 0);
  between("parallel.dp_replicate", config.parallel.dp_replicate, 0, 1 << 24);
  at_least("log.every", config.log.every, 1);
  at_least("log.sample", config.log.sample, 0);
  check_float("train.clip", config.train.clip, 0.0, 1e30, "0 (no clipping) or a positive number");
  check_float("parallel.bucket_mib", config.parallel.bucket_mib, 0.001, 1e6,
              "between 0.001 and 1e6");
  check_float("parallel.timeout_s", config.parallel.timeout_s, 0.1, 1e6, "between 0.1 and 1e6");
  check_float("log.temperature", config.log.temperature, 1e-3, 1e3, "between 0.001 and 1000");
  if (config.data.path.empty()) {
    reject("data.path is not set: name a text file, for example --set data.path=book.txt");
  }
  if (config.log.directory.empty()) reject("log.directory must name a directory");
  config.decoder().validate();
  config.adamw().validate();
  config.schedule().validate();
}

std::string to_toml(const Config& config) {
  Config copy = config;
  std::string out;
  std::string section;
  for (const Key& key : keys_of(copy)) {
    const auto dot = key.name.find('.');
    if (key.name.substr(0, dot) != section) {
      section = key.name.substr(0, dot);
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    }
    out += fmt::format("{} = {}\n", key.name.substr(dot + 1), format_value(key.field));
  }
  return out;
}

void check_ranks_agree(const Config& config, comm::Communicator& world) {
  // Rank 0's keys and values, one per line, against this rank's own.
  Config copy = config;
  std::string own;
  for (const Key& key : keys_of(copy)) {
    own += fmt::format("{} = {}\n", key.name, format_value(key.field));
  }
  const auto context = Context::create();
  const Tensor size =
      Tensor::from(*context, {1}, std::vector<std::int64_t>{static_cast<std::int64_t>(own.size())});
  world.broadcast(size, 0).wait();
  const Tensor text = Tensor::zeros(*context, {*size.data<std::int64_t>()}, DType::kU8);
  if (world.rank() == 0) std::memcpy(text.raw(), own.data(), own.size());
  world.broadcast(text, 0).wait();
  const std::string first(static_cast<const char*>(text.raw()), text.bytes());
  std::istringstream theirs(first);
  std::istringstream mine(own);
  std::string a;
  std::string b;
  while (std::getline(theirs, a) && std::getline(mine, b)) {
    if (a != b) {
      reject(
          fmt::format("the ranks disagree about the configuration: rank 0 has {}, rank {} has {}; "
                      "start all ranks with one configuration",
                      a, world.rank(), b));
    }
  }
  world.barrier().wait();
}

}  // namespace tessera::train
