// SPDX-License-Identifier: Apache-2.0
// Whole files: read, and written so that a reader sees the old one or the new one, never a part.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tessera::io {

/// The file's bytes. Error{kIo} names the path and the cause.
std::string read_file(const std::filesystem::path& path);

/// Writes beside `path`, syncs, and renames over it. Error{kIo} names the path and the cause, and
/// leaves what was there.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

/// Throws Error{kIo} for the last system call on `path`: "cannot <what> <path>: <cause>".
[[noreturn]] void throw_io_error(std::string_view what, const std::filesystem::path& path,
                                 int error);

}  // namespace tessera::io
