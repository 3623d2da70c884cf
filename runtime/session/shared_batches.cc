#include "runtime/session/shared_batches.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"

namespace gradloom {
namespace {

constexpr int64_t kMaxInFlight = 2;  // batches of a process that process 0 has not received yet
constexpr uint32_t kTag = Communicator::kFetchTag;

// Sends a header with the number of tensors and the dtype, rank and extents of each, then one message per tensor.
void Send(Communicator& communicator, const std::vector<Tensor>& tensors) {
  std::vector<int64_t> head{static_cast<int64_t>(tensors.size())};
  for (const Tensor& tensor : tensors) {
    head.push_back(static_cast<int64_t>(tensor.dtype()));
    head.push_back(tensor.shape().rank());
    head.insert(head.end(), tensor.shape().begin(), tensor.shape().end());
  }
  communicator.Send(0, kTag, head.data(), static_cast<int64_t>(head.size() * sizeof(int64_t)));
  for (const Tensor& tensor : tensors) communicator.Send(0, kTag, tensor.data(), tensor.bytes());
}

std::vector<Tensor> Receive(Communicator& communicator, int process) {
  const std::vector<std::byte> message = communicator.ReceiveAny(process, kTag);
  std::vector<int64_t> head(message.size() / sizeof(int64_t));
  if (!head.empty()) std::memcpy(head.data(), message.data(), head.size() * sizeof(int64_t));
  size_t at = 0;
  const auto next = [&] {
    GRADLOOM_CHECK(at < head.size());
    return head[at++];
  };
  std::vector<Tensor> tensors(static_cast<size_t>(next()));
  for (Tensor& tensor : tensors) {
    const auto dtype = static_cast<DType>(next());
    Shape shape;
    for (int64_t rank = next(); rank > 0; --rank) shape.push_back(next());
    tensor = Tensor(dtype, shape);
  }
  for (Tensor& tensor : tensors) communicator.Receive(process, kTag, tensor.data(), tensor.bytes());
  return tensors;
}

}  // namespace

SharedBatches::SharedBatches(int64_t rows, int64_t batch, Communicator* communicator)
    : rows_(rows),
      batch_(batch),
      count_((rows + batch - 1) / batch),
      communicator_(communicator),
      process_(communicator == nullptr ? 0 : communicator->process()),
      processes_(communicator == nullptr ? 1 : communicator->processes()) {
  GRADLOOM_CHECK(batch > 0);
  for (int64_t i = process_; i < count_; i += processes_) {
    for (int64_t row = i * batch; row < i * batch + size(i); ++row) order_.push_back(row);
  }
}

int64_t SharedBatches::size(int64_t index) const { return std::min(batch_, rows_ - index * batch_); }

bool SharedBatches::Run(const Compute& compute, const Take& take, const std::function<bool()>& stop) {
  GRADLOOM_CHECK(!stop || communicator_ == nullptr);
  char go = 0;
  int64_t own = 0;
  for (int64_t i = 0; i < count_; ++i) {
    if (i > 0 && stop && stop()) return false;
    const int owner = OwnerOf(i);
    if (owner == process_) {
      std::vector<Tensor> computed = compute(own);
      if (process_ == 0) {
        take(i, std::move(computed));
      } else {
        if (own >= kMaxInFlight) communicator_->Receive(0, kTag, &go, sizeof go);
        Send(*communicator_, computed);
      }
      ++own;
    } else if (process_ == 0) {
      take(i, Receive(*communicator_, owner));
      // Only if the process will wait for it.
      if (i + kMaxInFlight * processes_ < count_) communicator_->Send(owner, kTag, &go, sizeof go);
    }
  }
  return true;
}

}  // namespace gradloom
