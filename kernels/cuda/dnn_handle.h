// cuDNN's context of a device.
#pragma once

struct cudnnContext;

namespace gradloom::cuda {

// Throws Error(kDevice) with cuDNN's words.
cudnnContext* NewDnn();
void DeleteDnn(cudnnContext* handle) noexcept;

}  // namespace gradloom::cuda
