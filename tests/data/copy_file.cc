// copy_file FROM TO: reads a .npy, .npz or .safetensors file and writes its contents to TO. Errors are printed to stderr in the format of
// the command, with the command's exit code.
#include <cstdio>
#include <exception>
#include <string>

#include "runtime/base/error.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/data/npy.h"
#include "runtime/data/npz.h"
#include "tests/checkpoint/read_all.h"
#include "tests/data/write_arrays.h"

namespace gradloom {
namespace {

void Copy(const std::string& from, const std::string& to, bool compress) {
  if (from.ends_with(".npy")) return WriteNpy(to, ReadNpy(from).view());
  if (from.ends_with(".npz")) return WriteNpz(to, ReadNpz(from), compress);
  if (from.ends_with(".safetensors")) {
    const SafetensorsFile file(from);
    return WriteSafetensors(to, ReadAll(file), file.metadata());
  }
  throw Error(ErrorCode::kConfig, "a file of another kind", from);
}

}  // namespace
}  // namespace gradloom

int main(int argc, char** argv) {
  if (argc < 3) return 4;
  try {
    gradloom::Copy(argv[1], argv[2], argc > 3 && std::string(argv[3]) == "--compress");
  } catch (const gradloom::Error& error) {
    std::fprintf(stderr, "%s\n", error.Describe().c_str());
    return gradloom::ExitCode(error.code());
  }
  return 0;
}
