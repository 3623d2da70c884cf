#include "compiler/onnx/read/model_bytes.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "runtime/base/pages.h"
#include "runtime/base/run_on_threads.h"

namespace gradloom {
namespace {

constexpr int64_t kBufferBytes = 256 << 10;
constexpr int64_t kPrefixBytes = 1024;
// Bytes that are read at once and then hashed.
constexpr int64_t kReadBytes = 2 << 20;

}  // namespace

ModelBytes::ModelBytes(std::string_view bytes, ContentHash* hash)
    : size_(static_cast<int64_t>(bytes.size())), prefix_(bytes.substr(0, kPrefixBytes)), window_(bytes), hash_(hash) {
  Hash(bytes.data(), size_);
}

ModelBytes::ModelBytes(const InputFile& file, ContentHash* hash) : file_(&file), size_(file.bytes()), hash_(hash) {
  buffer_.resize(static_cast<size_t>(std::min(size_, kBufferBytes)));
  Refill();
  prefix_ = window_.substr(0, kPrefixBytes);
}

void ModelBytes::Read(int64_t count, char* to) {
  const int64_t held = std::min(count, window_begin_ + static_cast<int64_t>(window_.size()) - at_);
  if (held > 0) {
    std::memcpy(to, window_.data() + (at_ - window_begin_), static_cast<size_t>(held));
    at_ += held;
  }
  const int64_t left = count - std::max<int64_t>(held, 0);
  if (left > 0) ReadBeyondWindow(left, to + (count - left));
}

void ModelBytes::ReadBeyondWindow(int64_t count, char* to) {
  const int64_t pieces = std::max<int64_t>(count / kReadBytes, 1);  // the last piece is the rest
  const auto bytes_of = [&](int64_t piece) { return piece + 1 < pieces ? kReadBytes : count - piece * kReadBytes; };
  if (pieces == 1) {
    file_->ReadAt(at_, to, count);
    at_ += count;
    return Hash(to, count);
  }
  // A thread that has read a piece hashes all pieces that directly follow the hashed ones, unless another thread is hashing.
  Finish();
  std::vector<std::atomic<bool>> read(static_cast<size_t>(pieces));
  std::mutex hashing;
  int64_t hashed = 0;  // guarded by the mutex
  RunOnThreads(pieces, NumCores(), [&](int64_t i) {
    char* const piece = to + i * kReadBytes;
    PopulatePages(piece, bytes_of(i));
    file_->ReadAt(at_ + i * kReadBytes, piece, bytes_of(i));
    read[static_cast<size_t>(i)] = true;
    const std::unique_lock lock(hashing, std::try_to_lock);
    while (lock.owns_lock() && hashed < pieces && read[static_cast<size_t>(hashed)]) {
      AddToHash(to + hashed * kReadBytes, bytes_of(hashed));
      ++hashed;
    }
  });
  at_ += count;
  Hash(to + hashed * kReadBytes, hashed < pieces ? count - hashed * kReadBytes : 0);
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
  if (hash_ == nullptr || count == 0) return;
  hashing_.StartOrRun(count >= kBytesWorthAThread && NumCores() > 1, [this, bytes, count] { AddToHash(bytes, count); });
}

void ModelBytes::AddToHash(const char* bytes, int64_t count) {
  if (hash_ == nullptr) return;
  hash_->Append(bytes, static_cast<size_t>(count));
  hashed_ += count;
  if (hashed_ == size_) hash_->EndPiece();
}

}  // namespace gradloom
