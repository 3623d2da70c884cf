// Conversion of tensors and lists of names between the C table and the runtime.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "runtime/api/guard.h"
#include "runtime/device/device.h"

namespace gradloom::api {
namespace {

EntryKind KindOf(size_t entry) {
  constexpr EntryKind kKinds[] = {EntryKind::kStep, EntryKind::kEval, EntryKind::kPredict};
  return kKinds[entry];
}

// The shape for the whole batch, if the rank holds only its own samples.
Shape WholeShape(const Entry& entry, const Fetch& fetch, size_t rank, Shape part) {
  const int64_t samples = entry.ranks[rank].shard_length;
  if (fetch.batch_axis >= 0 && fetch.batch_axis < part.rank() && samples > 0 && samples != entry.batch)
    part[fetch.batch_axis] = part[fetch.batch_axis] / samples * entry.batch;
  return part;
}

std::vector<TensorFacts> OutputsOf(const Plan& plan, const Entry& entry) {
  std::vector<TensorFacts> outputs;
  for (size_t i = 0; i < entry.fetches.size(); ++i) {
    if (IsOnlyExtent(entry, i)) continue;
    const Fetch& fetch = entry.fetches[i];
    for (size_t rank = 0; rank < entry.ranks.size(); ++rank) {
      const int id = FetchedBuffer(entry, rank, i);
      if (id < 0) continue;
      const Buffer& buffer = plan.programs[static_cast<size_t>(entry.ranks[rank].program)].buffers[static_cast<size_t>(id)];
      outputs.push_back({fetch.name, buffer.dtype, WholeShape(entry, fetch, rank, buffer.shape), fetch.batch_axis});
      break;
    }
  }
  return outputs;
}

}  // namespace

std::unique_ptr<GradloomPlan> PlanHandle(std::shared_ptr<const Plan> plan) {
  auto handle = std::make_unique<GradloomPlan>();
  handle->plan = std::move(plan);
  for (size_t i = 0; i < 3; ++i) {
    for (const Entry& entry : handle->plan->entries) {
      if (entry.kind != KindOf(i) && !(i == 0 && entry.kind == EntryKind::kAccumulate)) continue;
      for (const Feed& feed : entry.feeds) handle->inputs[i].push_back({feed.name, feed.dtype, feed.shape, feed.batch_axis});
      handle->outputs[i] = OutputsOf(*handle->plan, entry);
      break;
    }
  }
  return handle;
}

namespace {

// Set when the first tensor on a GPU is seen. Memory is not checked before, because asking which device owns it loads the driver.
std::atomic<DevicePlatform*> asked_platform = nullptr;

}  // namespace

void ExpectDeviceTensors() {
  std::string why;
  DevicePlatform* const platform = CudaPlatform(&why);
  if (platform != nullptr) why = platform->problem();
  if (!why.empty())
    throw Error(ErrorCode::kDevice, "the tensor is in GPU memory, but CUDA is not available: " + why, "", "copy it to host memory first");
  asked_platform = platform;
}

TensorView ViewOf(const GradloomTensor& tensor, const std::string& what, bool on_device) {
  const auto dtype = static_cast<DType>(tensor.dtype);
  const int64_t element = tensor.dtype > 0 && tensor.dtype < kDTypes ? DTypeBytes(dtype) : 0;
  if (element == 0) throw Error(ErrorCode::kType, what + " has unknown element type " + std::to_string(tensor.dtype));
  if (tensor.rank < 0 || tensor.rank > kMaxRank)
    throw Error(ErrorCode::kShape, what + " has rank " + std::to_string(tensor.rank) + "; expected 0 to " + std::to_string(kMaxRank));
  Array(tensor.shape, static_cast<size_t>(tensor.rank), "the shape of a tensor");
  Shape shape(std::vector<int64_t>(tensor.shape, tensor.shape + tensor.rank));
  for (const int64_t extent : shape) {
    if (extent < 0) throw Error(ErrorCode::kShape, what + " has a negative extent: " + shape.ToString());
  }
  const auto elements = shape.checked_elements();
  if (!elements || *elements > INT64_MAX / element) throw Error(ErrorCode::kShape, what + " is too large: " + shape.ToString());
  if (*elements > 0 && tensor.data == nullptr) throw Error(ErrorCode::kConfig, what + " has a null data pointer");
  if (reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(element) != 0)
    throw Error(ErrorCode::kConfig, what + " is not aligned to its element size of " + std::to_string(element) + " bytes");
  if (DevicePlatform* const platform = on_device ? nullptr : asked_platform.load(); platform != nullptr) {
    if (const int ordinal = platform->OrdinalOf(tensor.data); ordinal >= 0)
      throw Error(ErrorCode::kDevice, what + " is on cuda:" + std::to_string(ordinal) + ", but this call reads host memory", "",
                  "copy it to host memory first");
  }
  return {dtype, std::move(shape), tensor.data};
}

GradloomTensor TensorOf(const TensorView& view, const Shape& shape) {
  return {const_cast<void*>(view.data), shape.dims().data(), shape.rank(), static_cast<GradloomDType>(view.dtype)};
}

GradloomTensorInfo InfoOf(const TensorFacts& facts) {
  GradloomTensorInfo info{};
  info.name = facts.name.c_str();
  info.shape = facts.shape.dims().data();
  info.rank = facts.shape.rank();
  info.dtype = static_cast<GradloomDType>(facts.dtype);
  info.batch_axis = facts.batch_axis;
  return info;
}

Feeds FeedsOf(const Call& call, GradloomEntry entry, const char* const* names, const GradloomTensor* inputs, size_t count) {
  const std::vector<TensorFacts>& wanted = call.handle().inputs[EntryIndex(entry)];
  Array(inputs, count, "the array of inputs");
  // Without any, the session says what is missing; a plan that has no such step may be the reason.
  if (names == nullptr && count > 0 && count != wanted.size() && !wanted.empty()) {
    throw Error(ErrorCode::kData, "expected " + std::to_string(wanted.size()) + " inputs, got " + std::to_string(count), "",
                "GetInputInfo lists them in order");
  }
  const bool on_device = call->plan().targets.front().device == DeviceKind::kCuda;
  Feeds feeds;
  for (size_t i = 0; i < count; ++i) {
    const std::string name = names != nullptr ? TextOf(names[i], "the name of an input") : i < wanted.size() ? wanted[i].name : "";
    const TensorView view = ViewOf(inputs[i], "input '" + Escaped(name) + "'", on_device);
    if (!feeds.emplace(name, view).second) throw Error(ErrorCode::kData, "input '" + Escaped(name) + "' is given twice");
  }
  return feeds;
}

void CopyOut(const TensorView& view, void* buffer, size_t bytes) {
  NotNull(static_cast<char*>(buffer), "the buffer");
  if (bytes != static_cast<size_t>(view.bytes())) {
    throw Error(ErrorCode::kConfig,
                "the buffer has " + std::to_string(bytes) + " bytes, but the tensor has " + std::to_string(view.bytes()));
  }
  if (bytes > 0) std::memcpy(buffer, view.data, bytes);
}

GradloomStepResult ResultOf(const StepResult& result) {
  GradloomStepResult made{};
  made.loss = result.loss;
  made.lr = result.lr;
  made.grad_norm = result.grad_norm;
  made.step = result.step;
  made.batch = result.batch;
  made.updated = result.updated ? 1 : 0;
  return made;
}

}  // namespace gradloom::api
