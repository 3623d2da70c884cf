// Code that the emulated device compiles while a test runs.
#pragma once

namespace gradloom::cuda {

// The number of sources so far that were compiled only when their kernel was made, and not ahead with others.
int SourcesCompiledLate();

}  // namespace gradloom::cuda
