// What the kernels over oneDNN share. Primitives are made once; a run binds addresses and starts one.
#pragma once

#include <omp.h>

#include <dnnl.hpp>
#include <functional>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// The one CPU engine of the process, and a stream on it for the calling thread.
const dnnl::engine& OneDnnEngine();
dnnl_stream_t OneDnnStream();

// oneDNN sizes its work by the calling thread's OpenMP team, when a primitive is made and when it runs.
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

// float32 or bfloat16 to the library.
dnnl::memory::data_type OneDnnType(DType dtype);

// Row-major elements of these extents, or by strides where given.
dnnl::memory::desc OneDnnDesc(const dnnl::memory::dims& dims, const dnnl::memory::dims& strides = {}, DType dtype = DType::kFloat32);

// A primitive with its arguments in a fixed order. Running it allocates nothing of ours.
class OneDnnPrimitive {
 public:
  struct Argument {
    int id;  // DNNL_ARG_...
    dnnl::memory::desc desc;
  };
  // `make` is called in a team of `threads`: oneDNN keeps primitives by the team's size, and would give out one whose
  // work is parted for another.
  OneDnnPrimitive(const std::function<dnnl::primitive()>& make, std::vector<Argument> arguments, int threads);

  // One address per argument. Throws Error(kInternal) where oneDNN reports a failure.
  void Run(std::initializer_list<const void*> addresses);

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
  int threads_;
};

// Primitive attributes with the scratchpad in the caller's hands.
dnnl::primitive_attr OneDnnUserScratch();

}  // namespace gradloom
