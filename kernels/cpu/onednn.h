// Shared parts of the kernels that use oneDNN. Primitives are created once; a run binds addresses and executes one.
#pragma once

#include <omp.h>

#include <dnnl.hpp>
#include <functional>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// The CPU engine of the process, and a stream on it for the calling thread.
const dnnl::engine& OneDnnEngine();
dnnl_stream_t OneDnnStream();

// Sets the size of the calling thread's OpenMP team, by which oneDNN divides its work when a primitive is created and when it runs.
class OneDnnTeam {
 public:
  explicit OneDnnTeam(int threads) : before_(omp_get_max_threads()) {
    if (before_ != threads) omp_set_num_threads(threads);
    threads_ = threads;
  }
  ~OneDnnTeam() {
    if (before_ != threads_) omp_set_num_threads(before_);
  }
  OneDnnTeam(const OneDnnTeam&) = delete;
  OneDnnTeam& operator=(const OneDnnTeam&) = delete;

 private:
  int before_, threads_;
};

// The library's type for float32 or bfloat16.
dnnl::memory::data_type OneDnnType(DType dtype);

// Describes row-major elements with these extents, or with strides if they are given.
dnnl::memory::desc OneDnnDesc(const dnnl::memory::dims& dims, const dnnl::memory::dims& strides = {}, DType dtype = DType::kFloat32);

// A primitive with its arguments in a fixed order. A run allocates no memory on our side.
class OneDnnPrimitive {
 public:
  struct Argument {
    int id;  // DNNL_ARG_...
    dnnl::memory::desc desc;
  };
  // `make` is called in a team of `threads`: oneDNN caches primitives by the team's size, and would otherwise return one that divides its
  // work for another size.
  OneDnnPrimitive(const std::function<dnnl::primitive()>& make, std::vector<Argument> arguments, int threads);

  // Takes one address per argument. Throws Error(kInternal) if oneDNN reports a failure.
  void Run(std::initializer_list<const void*> addresses);

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
  int threads_;
};

// Primitive attributes with a scratchpad that the caller provides.
dnnl::primitive_attr OneDnnUserScratch();

}  // namespace gradloom
