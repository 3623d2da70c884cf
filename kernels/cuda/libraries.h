// The libraries that a device's kernels use: each is opened when the first kernel asks for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/algorithms.h"

struct CUstream_st;
struct cublasLtContext;
struct cudnnContext;

namespace gradloom::cuda {

// A kernel that was compiled at run time: one parameter, a struct that is passed by value.
class RuntimeFunction {
 public:
  virtual ~RuntimeFunction() = default;
  // `arguments`: the struct; copied before this returns.
  virtual void Launch(int64_t blocks, int threads, const void* arguments, size_t bytes, CUstream_st* stream) = 0;
};

class Libraries {
 public:
  explicit Libraries(int ordinal);
  ~Libraries();
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

  // "sm_90": what code is compiled for.
  const std::string& architecture() const { return architecture_; }

  // Throw Error(kDevice).
  cublasLtContext* blas();
  cudnnContext* dnn();

  // `source` is CUDA C++ with `extern "C" __global__ void name(const Arguments)`, in which every character is of our making. Compiled
  // programs are kept, in memory and in the user's cache. Throws Error(kDevice) with the compiler's words.
  std::shared_ptr<RuntimeFunction> Function(const std::string& source, const std::string& name);

  // What a person should know of the kernels that were prepared: where a slower one stands in for one of a library.
  void Note(std::string what) { notes_.push_back(std::move(what)); }
  const std::vector<std::string>& notes() const { return notes_; }
  std::vector<std::string> TakeNotes() { return std::exchange(notes_, {}); }

  Algorithms& algorithms() { return algorithms_; }

 private:
  struct Opened;
  std::string architecture_;
  std::vector<std::string> notes_;
  Algorithms algorithms_;
  std::unique_ptr<Opened> opened_;
};

// `source` as code for an architecture, by NVRTC: needs no device. Throws Error(kDevice) with the compiler's words.
std::string CompileForDevice(const std::string& source, const std::string& architecture);

}  // namespace gradloom::cuda
