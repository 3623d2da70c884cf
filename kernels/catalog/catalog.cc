// The list of all kernels, assembled from rows that are defined beside their kernels. The types in kernel.h depend on none of them.
#include <array>
#include <map>
#include <string>
#include <vector>

#include "kernels/catalog/backends.h"
#include "kernels/catalog/kernel.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr size_t kDeviceKinds = static_cast<size_t>(DeviceKind::kCuda) + 1;  // kCuda is the last

struct Catalog {
  std::array<std::vector<const KernelRow*>, kDeviceKinds> by_device;
  std::map<std::string_view, const KernelRow*> by_name;
  std::map<std::pair<std::string_view, std::string_view>, std::vector<const KernelRow*>> by_op[kDeviceKinds];

  void Add(const KernelRow* row) {
    by_device[static_cast<size_t>(row->device)].push_back(row);
    by_op[static_cast<size_t>(row->device)][{row->domain, row->op}].push_back(row);
    GRADLOOM_CHECK(by_name.emplace(row->name, row).second);
  }
};

const Catalog& TheCatalog() {
  static const Catalog catalog = [] {
    Catalog made;
    for (const KernelRow* row : CpuKernelRows()) made.Add(row);
    for (const KernelRow* row : ReferenceKernelRows()) made.Add(row);
    for (const KernelRow* row : CudaKernelRows()) made.Add(row);
    return made;
  }();
  return catalog;
}

}  // namespace

std::span<const KernelRow* const> KernelRows(DeviceKind device) { return TheCatalog().by_device[static_cast<size_t>(device)]; }

const KernelRow* FindKernel(std::string_view name) {
  const auto found = TheCatalog().by_name.find(name);
  return found == TheCatalog().by_name.end() ? nullptr : found->second;
}

std::vector<KernelWork> WorkOf(const KernelRow& row, const KernelCall& call, const KernelWork& least) {
  return row.device == DeviceKind::kCuda ? CudaWorkOf(row, call, least) : CpuWorkOf(row, call, least);
}

const KernelRow* ChooseKernel(DeviceKind device, const KernelCall& call, std::string* why) {
  const auto& by_op = TheCatalog().by_op[static_cast<size_t>(device)];
  const auto found = by_op.find({call.domain, call.op});
  std::string rejections;
  if (found != by_op.end()) {
    for (const KernelRow* row : found->second) {
      const std::string rejection = Rejection(*row, call);
      if (rejection.empty()) return row;
      rejections += (rejections.empty() ? "" : "; ") + std::string(row->name) + ": " + rejection;
    }
  }
  if (why != nullptr) *why = std::move(rejections);
  return nullptr;
}

}  // namespace gradloom
