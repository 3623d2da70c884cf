// Fuzzes .npy and .npz files. The first bytes decide which, in place of the file name.
#include <cstdlib>
#include <map>

#include "runtime/base/file.h"
#include "runtime/data/npy.h"
#include "runtime/data/npz.h"
#include "tests/fuzz/fuzz_target.h"

namespace gradloom {
namespace {

constexpr int64_t kLimitBytes = int64_t{16} << 20;

// Reads all elements, which finds a tensor that is larger than its memory.
void ReadAll(const Tensor& tensor) {
  volatile double element = 0;
  for (int64_t i = 0; i < tensor.elements(); ++i) element = ElementAsDouble(tensor.view(), i);
  (void)element;
}

std::string Npy(const std::string& version, const std::string& header, const std::string& data) {
  std::string length(version[0] == '\1' ? 2 : 4, '\0');
  length[0] = static_cast<char>(header.size());
  return "\x93NUMPY" + version + length + header + data;
}

std::string Npz(bool compress) {
  const std::map<std::string, Tensor> arrays = {{"x", Tensor::From<float>({1, 2, 3, 4, 5, 6}, {3, 2})},
                                                {"label", Tensor::From<int64_t>({0, 1, 2}, {3})},
                                                {"none", Tensor(DType::kFloat64, {0, 4})}};
  const std::string file = std::string(std::getenv("TEST_TMPDIR") == nullptr ? "/tmp" : std::getenv("TEST_TMPDIR")) + "/fuzz-seed.npz";
  WriteNpz(file, arrays, compress);
  return ReadWholeFile(file);
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const std::string one("\1\0", 2), two("\2\0", 2), three("\3\0", 2), data(48, '\x3f');
  return {Npy(one, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", data),
          Npy(two, "{'descr': '>i8', 'fortran_order': True, 'shape': (2, 3), }", data),
          Npy(three, "{'descr': '<U3', 'fortran_order': False, 'shape': (4,), }", data),
          Npy(one, "{'descr': '|b1', 'fortran_order': True, 'shape': (4, 3, 4), }", data),
          Npy(one, "{'descr': '|O', 'fortran_order': False, 'shape': (6,), }", data),
          Npy(one, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (0, 9223372036854775807), }", data),
          Npz(false),
          Npz(true)};
}

}  // namespace gradloom

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradloom;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const FileInMemory file(bytes);
  MayRefuse([&] {
    if (!bytes.starts_with("PK")) return ReadAll(ReadNpy(file.path(), kLimitBytes));
    for (const auto& [name, array] : ReadNpz(file.path(), kLimitBytes)) ReadAll(array);
  });
  return 0;
}
