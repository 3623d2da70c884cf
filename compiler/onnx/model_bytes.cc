#include "compiler/onnx/model_bytes.h"

#include <algorithm>
#include <cstring>

namespace gradloom {
namespace {

constexpr int64_t kBufferBytes = 256 << 10;
constexpr int64_t kBeginningBytes = 1024;
// Hashing begins when so much is read.
constexpr int64_t kReadBytes = 2 << 20;

}  // namespace

ModelBytes::ModelBytes(std::string_view bytes, ContentHash* hash)
    : size_(static_cast<int64_t>(bytes.size())), beginning_(bytes.substr(0, kBeginningBytes)), window_(bytes), hash_(hash) {
  Hash(bytes.data(), size_);
}

ModelBytes::ModelBytes(const InputFile& file, ContentHash* hash) : file_(&file), size_(file.bytes()), hash_(hash) {
  buffer_.resize(static_cast<size_t>(std::min(size_, kBufferBytes)));
  Refill();
  beginning_ = window_.substr(0, kBeginningBytes);
}

void ModelBytes::Read(int64_t count, char* to) {
  const int64_t held = std::min(count, window_begin_ + static_cast<int64_t>(window_.size()) - at_);
  if (held > 0) {
    std::memcpy(to, window_.data() + (at_ - window_begin_), static_cast<size_t>(held));
    at_ += held;
  }
  int64_t left = count - std::max<int64_t>(held, 0);
  for (char* place = to + (count - left); left > 0;) {
    const int64_t bytes = left < 2 * kReadBytes ? left : kReadBytes;
    file_->ReadAt(at_, place, bytes);
    Hash(place, bytes);
    at_ += bytes, place += bytes, left -= bytes;
  }
}

void ModelBytes::Append(int64_t count, std::string& to) {
  const size_t begin = to.size();
  to.resize(begin + static_cast<size_t>(count));
  Read(count, to.data() + begin);
  if (count >= kBytesWorthAThread) Finish();  // the text may move
}

void ModelBytes::Skip(int64_t count) {
  GRADLOOM_CHECK(hash_ == nullptr);
  at_ += count;
}

void ModelBytes::Refill() {
  const int64_t count = std::min(size_ - at_, static_cast<int64_t>(buffer_.size()));
  Finish();  // what the buffer held may still be hashed
  file_->ReadAt(at_, buffer_.data(), count);
  Hash(buffer_.data(), count);
  window_begin_ = at_;
  window_ = std::string_view(buffer_).substr(0, static_cast<size_t>(count));
}

void ModelBytes::Hash(const char* bytes, int64_t count) {
  if (hash_ == nullptr) return;
  hashing_.StartOrDo(count >= kBytesWorthAThread, [this, bytes, count] {
    hash_->Append(bytes, static_cast<size_t>(count));
    hashed_ += count;
    if (hashed_ == size_) hash_->EndPiece();
  });
}

}  // namespace gradloom
