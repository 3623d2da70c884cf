// cuDNN's handle for a device.
#pragma once

struct cudnnContext;

namespace gradloom::cuda {

// Throws Error(kDevice) with cuDNN's message.
cudnnContext* NewDnn();
void DeleteDnn(cudnnContext* handle) noexcept;

}  // namespace gradloom::cuda
