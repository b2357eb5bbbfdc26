// SPDX-License-Identifier: Apache-2.0
// The directory of a run: config.toml (resolved), metrics.jsonl, trace/, final weights. Rank 0
// writes it.
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
  /// Collective. A directory that already holds a run is a kConfig error that says how to go on,
  /// unless log.overwrite is set; one that cannot be written is Error{kIo}. Nothing is left
  /// half-made.
  RunDirectory(const Config& config, comm::Communicator& world);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Appends one line to metrics.jsonl and flushes it (rank 0; nothing on the others). Error{kIo}
  /// when the disk refuses; a line is never left cut.
  void append_metrics(std::string_view line);

 private:
  std::filesystem::path path_;
  int metrics_ = -1;
};

}  // namespace tessera::train
