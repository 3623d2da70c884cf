// The versions of the driver and of the libraries that are linked.
#pragma once

#include "runtime/device/device.h"

namespace gradloom::cuda {

PlatformVersions ReadVersions();

}  // namespace gradloom::cuda
