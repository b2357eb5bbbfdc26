// SPDX-License-Identifier: Apache-2.0
// The directory of a run: config.toml (resolved), metrics.jsonl, model.safetensors (the final
// weights). Rank 0 writes it.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>

#include "tessera/comm/communicator.hpp"
#include "tessera/train/config.hpp"

namespace tessera::train {

class RunDirectory {
 public:
  /// Collective. A directory that is not empty is a kConfig error that says how to go on; with
  /// log.overwrite the three files are replaced and others stay; one that another run is writing to
  /// is a kConfig error (a lock on metrics.jsonl). One that cannot be made or written
  /// is Error{kIo}, and what was made of it is removed again.
  RunDirectory(const Config& config, comm::Communicator& world);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Where the final weights go.
  std::filesystem::path weights() const;
  /// Appends one line to metrics.jsonl with one write (rank 0; nothing on the others). Error{kIo}
  /// when the disk refuses; the file then ends with the line before.
  void append_metrics(std::string_view line);

 private:
  void make(const Config& config);

  std::filesystem::path path_;
  int metrics_ = -1;
};

}  // namespace tessera::train
