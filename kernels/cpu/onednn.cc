#include "kernels/cpu/onednn.h"

#include <string>

#include "runtime/base/error.h"

namespace gradloom {

const dnnl::engine& OneDnnEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl_stream_t OneDnnStream() {
  thread_local const dnnl::stream stream(OneDnnEngine());
  return stream.get();
}

dnnl::memory::data_type OneDnnType(DType dtype) {
  GRADLOOM_CHECK(dtype == DType::kFloat32 || dtype == DType::kBfloat16);
  return dtype == DType::kFloat32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc OneDnnDesc(const dnnl::memory::dims& dims, const dnnl::memory::dims& strides, DType dtype) {
  if (!strides.empty()) return {dims, OneDnnType(dtype), strides};
  dnnl::memory::dims own(dims.size());
  dnnl::memory::dim stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    own[i] = stride;
    stride *= dims[i];
  }
  return {dims, OneDnnType(dtype), own};
}

dnnl::primitive_attr OneDnnUserScratch() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

OneDnnPrimitive::OneDnnPrimitive(const std::function<dnnl::primitive()>& make, std::vector<Argument> arguments, int threads)
    : threads_(threads) {
  const OneDnnTeam team(threads);
  primitive_ = make();
  for (const Argument& argument : arguments) {
    memories_.emplace_back(argument.desc, OneDnnEngine(), nullptr);
    arguments_.push_back({argument.id, memories_.back().get()});
  }
}

void OneDnnPrimitive::Run(std::initializer_list<const void*> addresses) {
  GRADLOOM_CHECK(addresses.size() == arguments_.size());
  size_t i = 0;
  // The library uses the same pointer type for operands that are read and written.
  for (const void* address : addresses) dnnl_memory_set_data_handle(arguments_[i++].memory, const_cast<void*>(address));
  const OneDnnTeam team(threads_);
  const dnnl_status_t status =
      dnnl_primitive_execute(primitive_.get(), OneDnnStream(), static_cast<int>(arguments_.size()), arguments_.data());
  if (status != dnnl_success) throw Error(ErrorCode::kInternal, "oneDNN failed with status " + std::to_string(status));
}

}  // namespace gradloom
