#include "runtime/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>

namespace gradloom {

struct Hash::State {
  XXH3_state_t xxh;
};

Hash::Hash() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->xxh);
  XXH3_64bits_reset(&state_->xxh);
}

Hash::~Hash() = default;

void Hash::Add(const void* data, int64_t bytes) {
  if (bytes > 0) XXH3_64bits_update(&state_->xxh, data, static_cast<size_t>(bytes));
}

uint64_t Hash::value() const { return XXH3_64bits_digest(&state_->xxh); }

WideHash::WideHash() : state_(std::make_unique<Hash::State>()) {
  XXH3_INITSTATE(&state_->xxh);
  XXH3_128bits_reset(&state_->xxh);
}

WideHash::~WideHash() = default;

void WideHash::Add(const void* data, int64_t bytes) {
  if (bytes > 0) XXH3_128bits_update(&state_->xxh, data, static_cast<size_t>(bytes));
}

std::string WideHash::text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return HashText(hash.high64) + HashText(hash.low64);
}

uint64_t HashOf(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string HashText(uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

}  // namespace gradloom
