#include "runtime/base/threaded_copy.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/run_on_threads.h"

namespace gradloom {
namespace {

constexpr int64_t kPartBytes = int64_t{4} << 20;  // takes about ten times as long to copy as to wake a thread
constexpr int64_t kLineBytes = 64;

}  // namespace

ThreadedCopy::ThreadedCopy() : threads_(std::min<int64_t>(NumCores(), static_cast<int64_t>(parts_.size()) + 1)) {}

void ThreadedCopy::Copy(std::byte* to, const std::byte* from, int64_t bytes) {
  const int64_t count = std::max<int64_t>(1, std::min(threads_, bytes / kPartBytes));
  const int64_t share = bytes / count / kLineBytes * kLineBytes;
  for (int64_t i = 1; i < count; ++i) {
    Part& part = parts_[static_cast<size_t>(i - 1)];
    part.to = to + (i - 1) * share;
    part.from = from + (i - 1) * share;
    part.bytes = share;
    part.background.StartOrRun(true, [&part] { std::memcpy(part.to, part.from, static_cast<size_t>(part.bytes)); });
  }
  const int64_t done = (count - 1) * share;
  std::memcpy(to + done, from + done, static_cast<size_t>(bytes - done));
  for (int64_t i = 1; i < count; ++i) parts_[static_cast<size_t>(i - 1)].background.Wait();
}

}  // namespace gradloom
