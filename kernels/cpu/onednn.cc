#include "kernels/cpu/onednn.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <string>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

// Whether the system lets this process run what it has written to memory. Services are often denied it, and SELinux may deny it to all.
bool MayMakeCode() {
  const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return true;  // a lack of memory is another matter
  const bool may = mprotect(page, bytes, PROT_READ | PROT_EXEC) == 0;
  munmap(page, bytes);
  return may;
}

}  // namespace

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
  // The plan says what is computed in 16 bits, not ONEDNN_DEFAULT_FPMATH_MODE, which is set for other programs.
  attr.set_fpmath_mode(dnnl::fpmath_mode::strict);
  return attr;
}

OneDnnPrimitive::OneDnnPrimitive(const std::function<dnnl::primitive()>& make, std::vector<Argument> arguments, int threads)
    : threads_(threads) {
  const OneDnnTeam team(threads);
  try {
    primitive_ = make();
  } catch (const dnnl::error& error) {
    // Code that could not be made is one of these; others are about what was asked.
    const bool may_be_code = error.status == dnnl_runtime_error || error.status == dnnl_out_of_memory;
    if (!may_be_code || MayMakeCode()) throw;
    throw Error(
        ErrorCode::kResource,
        "the system does not let this process run code that it makes, as oneDNN does for its kernels (" + std::string(error.what()) + ")",
        "", "set MemoryDenyWriteExecute=no in the unit of systemd, allow execmem in SELinux, or change the container's profile");
  }
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
