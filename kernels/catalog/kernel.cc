#include "kernels/catalog/kernel.h"

namespace gradloom {

std::string_view DeviceKindName(DeviceKind kind) { return kind == DeviceKind::kCpu ? "cpu" : "cuda"; }

}  // namespace gradloom
