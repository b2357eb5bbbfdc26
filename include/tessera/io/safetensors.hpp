// SPDX-License-Identifier: Apache-2.0
// The safetensors format: a little-endian u64 header length, a JSON header, the tensors' bytes.
// https://github.com/huggingface/safetensors
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tessera/core/context.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::io {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// The file's bytes: tensors ordered by dtype (widest first) and name, header padded to 8 bytes.
/// Tensors must be contiguous; two of one name are an error.
std::string safetensors_bytes(std::span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata = {});

/// Writes atomically.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

struct SafetensorsFile {
  std::vector<NamedTensor> tensors;  ///< in file order
  std::map<std::string, std::string> metadata;
};

/// Parses a whole file. Every rule of the format is checked (sizes, overlaps, holes, duplicate
/// keys, dtypes) before any tensor is made; Error{kIo} names the file, the tensor and the cause.
SafetensorsFile parse_safetensors(Context& context, std::string_view bytes,
                                  const std::string& name);
SafetensorsFile read_safetensors(Context& context, const std::filesystem::path& path);

}  // namespace tessera::io
