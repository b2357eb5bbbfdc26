// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/storage.hpp"

#include "tessera/core/context.hpp"

namespace tessera {

Storage::Storage(std::shared_ptr<Context> context, std::size_t bytes, MemoryCategory category)
    : context_(std::move(context)),
      bytes_(bytes),
      block_(context_->allocator().allocate(bytes, category)) {}

Storage::Storage(std::shared_ptr<Context> context, void* data, std::size_t bytes,
                 MemoryCategory category, std::function<void()> release)
    : context_(std::move(context)),
      bytes_(bytes),
      block_{data, bytes, bytes, category},
      release_(std::move(release)),
      is_external_(true) {
  context_->memory().add(category, bytes);
}

Storage::~Storage() {
  if (!is_external_) {
    context_->allocator().release(block_);
    return;
  }
  context_->memory().remove(block_.category, block_.charged);
  if (release_) release_();
}

}  // namespace tessera
