// SPDX-License-Identifier: Apache-2.0
#include "tessera/io/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/io/file.hpp"

namespace tessera::io {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

using Json = nlohmann::ordered_json;

struct Format {
  DType dtype;
  const char* name;
};

/// In the format's order of alignment, narrowest first.
constexpr Format kFormats[] = {
    {DType::kU8, "U8"},   {DType::kF8E5M2, "F8_E5M2"}, {DType::kF8E4M3, "F8_E4M3"},
    {DType::kF16, "F16"}, {DType::kBF16, "BF16"},      {DType::kI32, "I32"},
    {DType::kF32, "F32"}, {DType::kF64, "F64"},        {DType::kI64, "I64"}};

std::size_t rank_of(DType dtype) {
  return static_cast<std::size_t>(
      std::find_if(std::begin(kFormats), std::end(kFormats),
                   [dtype](const Format& format) { return format.dtype == dtype; }) -
      std::begin(kFormats));
}

constexpr std::uint64_t kMostHeaderBytes = 100000000;

struct Entry {
  std::string name;
  DType dtype;
  Shape shape;
  std::uint64_t begin;
  std::uint64_t end;
};

[[noreturn]] void reject(const std::string& file, const std::string& why) {
  throw Error(ErrorCode::kIo, fmt::format("{} is not a whole safetensors file: {}", file, why));
}

/// JSON that refuses duplicate keys.
Json parse_header(std::string_view text, const std::string& file) {
  std::vector<std::set<std::string>> keys;
  std::string duplicate;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      duplicate = value.get<std::string>();
    }
    return true;
  };
  Json header;
  try {
    header = Json::parse(text, watch);
  } catch (const Json::exception& error) {
    reject(file, fmt::format("its header is not JSON ({})", error.what()));
  }
  if (!duplicate.empty()) reject(file, fmt::format("the key \"{}\" appears twice", duplicate));
  if (!header.is_object()) reject(file, "its header is not a JSON object");
  return header;
}

Entry parse_entry(const std::string& name, const Json& value, const std::string& file) {
  const auto bad = [&](const char* what) {
    reject(file, fmt::format("tensor \"{}\" has {}", name, what));
  };
  if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets")) {
    bad("no dtype, shape and data_offsets");
  }
  const Json& dtype = value["dtype"];
  const auto* format =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&dtype](const Format& f) {
        return dtype.is_string() && dtype.get<std::string>() == f.name;
      });
  if (format == std::end(kFormats)) bad("a dtype that this library does not know");
  const Json& shape = value["shape"];
  if (!shape.is_array() || shape.size() > kMaxRank)
    bad("a shape that is not a list of 0 to 8 sizes");
  Entry entry{name, format->dtype, {}, 0, 0};
  std::uint64_t bytes = size_of(format->dtype);
  for (const Json& dim : shape) {
    if (!dim.is_number_unsigned()) bad("a shape with an entry that is not a size");
    const auto size = dim.get<std::uint64_t>();
    if (size > (std::uint64_t{1} << 59) || __builtin_mul_overflow(bytes, size, &bytes)) {
      bad("a shape too large for any file");
    }
    entry.shape.push_back(static_cast<std::int64_t>(size));
  }
  const Json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    bad("data_offsets that are not two positions");
  }
  entry.begin = offsets[0].get<std::uint64_t>();
  entry.end = offsets[1].get<std::uint64_t>();
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    bad("data_offsets that do not fit its dtype and shape");
  }
  return entry;
}

/// The entries must tile the data exactly.
void check_tiling(std::vector<Entry>& entries, std::uint64_t data_bytes, const std::string& file) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != at) {
      reject(file, fmt::format("tensor \"{}\" begins at byte {} of the data instead of {}",
                               entry.name, entry.begin, at));
    }
    at = entry.end;
  }
  if (at != data_bytes) {
    reject(file, fmt::format("the tensors need {} bytes of data, the file has {}", at, data_bytes));
  }
}

}  // namespace

std::string safetensors_bytes(std::span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const std::size_t ra = rank_of(a->tensor.dtype());
    const std::size_t rb = rank_of(b->tensor.dtype());
    return ra != rb ? ra > rb : a->name < b->name;
  });
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t at = 0;
  for (const NamedTensor* entry : order) {
    TESSERA_CHECK(entry->tensor.is_contiguous(), "safetensors: tensor \"{}\" must be contiguous",
                  entry->name);
    TESSERA_CHECK(!header.contains(entry->name), "safetensors: two tensors are called \"{}\"",
                  entry->name);
    const Shape& shape = entry->tensor.shape();
    header[entry->name] = {{"dtype", kFormats[rank_of(entry->tensor.dtype())].name},
                           {"shape", std::vector<std::int64_t>(shape.begin(), shape.end())},
                           {"data_offsets", {at, at + entry->tensor.bytes()}}};
    at += entry->tensor.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  bytes.reserve(bytes.size() + text.size() + at);
  bytes += text;
  for (const NamedTensor* entry : order) {
    if (entry->tensor.bytes() == 0) continue;
    bytes.append(static_cast<const char*>(entry->tensor.raw()), entry->tensor.bytes());
  }
  return bytes;
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  write_file_atomically(path, safetensors_bytes(tensors, metadata));
}

SafetensorsFile parse_safetensors(Context& context, std::string_view bytes,
                                  const std::string& name) {
  std::uint64_t length = 0;
  if (bytes.size() < sizeof(length)) reject(name, "it is shorter than 8 bytes");
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > kMostHeaderBytes || length > bytes.size() - sizeof(length)) {
    reject(name,
           fmt::format("its header of {} bytes does not fit its {} bytes", length, bytes.size()));
  }
  const std::string_view text = bytes.substr(sizeof(length), length);
  if (text.empty() || text[0] != '{') reject(name, "its header does not begin with {");
  const Json header = parse_header(text, name);
  SafetensorsFile file;
  std::vector<Entry> entries;
  for (const auto& [key, value] : header.items()) {
    if (key != "__metadata__") {
      entries.push_back(parse_entry(key, value, name));
      continue;
    }
    if (!value.is_object()) reject(name, "__metadata__ is not an object");
    for (const auto& [meta, entry] : value.items()) {
      if (!entry.is_string())
        reject(name, fmt::format("__metadata__ \"{}\" is not a string", meta));
      file.metadata[meta] = entry.get<std::string>();
    }
  }
  const std::string_view data = bytes.substr(sizeof(length) + length);
  check_tiling(entries, data.size(), name);
  for (const Entry& entry : entries) {
    Tensor tensor = Tensor::empty(context, entry.shape, entry.dtype);
    if (tensor.bytes() > 0) std::memcpy(tensor.raw(), data.data() + entry.begin, tensor.bytes());
    file.tensors.push_back({entry.name, std::move(tensor)});
  }
  return file;
}

SafetensorsFile read_safetensors(Context& context, const std::filesystem::path& path) {
  return parse_safetensors(context, read_file(path), path.string());
}

}  // namespace tessera::io
