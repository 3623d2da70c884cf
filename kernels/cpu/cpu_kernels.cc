#include "kernels/cpu/cpu_kernels.h"

#include <map>
#include <string>
#include <vector>

#include "kernels/catalog/backends.h"
#include "kernels/cpu/families.h"
#include "kernels/reference/reference.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

struct Index {
  std::vector<const CpuKernel*> all;
  std::map<std::string_view, const CpuKernel*> by_name;
};

const Index& TheIndex() {
  static const Index index = [] {
    Index made;
    for (CpuFamily family : CpuFamilies()) {
      for (const CpuKernel& kernel : family()) {
        GRADLOOM_CHECK(kernel.make != nullptr && kernel.row.device == DeviceKind::kCpu);
        made.all.push_back(&kernel);
        GRADLOOM_CHECK(made.by_name.emplace(kernel.row.name, &kernel).second);
      }
    }
    return made;
  }();
  return index;
}

class ReferenceCall : public Kernel {
 public:
  ReferenceCall(ReferenceFunction run, const KernelCall& call) : run_(run), call_(call) {}
  void Run(const void* const* inputs, void* const* outputs, void*, void*) override { run_(call_, inputs, outputs); }

 private:
  ReferenceFunction run_;
  KernelCall call_;
};

}  // namespace

std::span<const CpuKernel* const> CpuKernels() { return TheIndex().all; }

std::vector<const KernelRow*> CpuKernelRows() {
  std::vector<const KernelRow*> rows;
  for (const CpuKernel* kernel : CpuKernels()) rows.push_back(&kernel->row);
  return rows;
}

std::unique_ptr<Kernel> MakeCpuKernel(const KernelRow& row, const KernelCall& call) {
  const bool same = row.device == DeviceKind::kCpu && row.op == call.op && row.domain == call.domain;
  const std::string why = same ? Rejection(row, call) : "it is for operator '" + std::string(row.op) + "'";
  if (!why.empty()) {
    throw Error(ErrorCode::kPlan, "kernel '" + Escaped(row.name) + "' cannot run operator '" + Escaped(call.op) + "': " + why, "",
                "compile the plan again with this version");
  }
  const auto found = TheIndex().by_name.find(row.name);
  if (found != TheIndex().by_name.end()) return found->second->make(call);
  const ReferenceKernel* reference = FindReference(row.domain, row.op);
  GRADLOOM_CHECK(reference != nullptr);
  return std::make_unique<ReferenceCall>(reference->run, call);
}

}  // namespace gradloom
