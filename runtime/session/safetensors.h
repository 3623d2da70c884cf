// The safetensors format (Hugging Face): eight bytes of header length, a JSON header with dtype, shape and
// byte range of each tensor, then the elements, little-endian and row-major.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// A safetensors file open for reading. The constructor checks the whole header: what it lists covers the
// rest of the file exactly, without holes or overlaps, so no later size can surprise. It reads by pread,
// never mapped. Safe for any number of threads.
class SafetensorsFile {
 public:
  struct Entry {
    DType dtype = DType::kUndefined;
    Shape shape;
    int64_t begin = 0, end = 0;  // bytes from the start of the file
  };

  // Error(kCheckpoint) names the file, and the tensor where there is one: an unfinished or damaged file, a
  // header that is no JSON of the right form (duplicate keys and fractional offsets included), a dtype that
  // we do not have, a range that does not fit shape and dtype, holes, overlaps, bytes left over.
  // Error(kIo), Error(kLimit) as InputFile's; more than `max_tensors` tensors are Error(kLimit) too.
  explicit SafetensorsFile(const std::string& path, int64_t limit_bytes = kLimitBytes, int64_t max_tensors = kMaxTensors);

  const std::string& path() const { return file_.path(); }
  const InputFile& file() const { return file_; }

  // By name, in the order of the names.
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // A tensor's elements. Error(kCheckpoint) for a name that is not there, or a bool that is neither 0 nor 1.
  Tensor Read(const std::string& name) const;

  // The same into `out`, which has room for the entry's bytes.
  void ReadInto(const std::string& name, void* out) const;

  std::map<std::string, Tensor> ReadAll() const;

  // State of large models is larger than data and models: nothing is allocated by what a header claims.
  static constexpr int64_t kLimitBytes = int64_t{1} << 50;
  static constexpr int64_t kMaxTensors = 65536;

 private:
  const Entry& Find(const std::string& name) const;

  InputFile file_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

// The tensors of a whole file that lies in memory, as views into `bytes`. The checks are SafetensorsFile's, and
// elements that are not aligned to their size are refused too. `where` names the file in errors.
// `metadata` gets that of the file, where it is not null.
std::map<std::string, TensorView> ViewSafetensors(std::string_view bytes, const std::string& where,
                                                  int64_t max_tensors = SafetensorsFile::kMaxTensors,
                                                  std::map<std::string, std::string>* metadata = nullptr);

// Writes the file in one step (AtomicFile), the elements aligned to 8 bytes. The bytes are those that the
// Python package writes for the same tensors and metadata: sorted by dtype, widest first, then by name.
// Error(kCheckpoint) for a dtype that the format lacks, or a name that is "__metadata__" or not UTF-8.
void WriteSafetensors(const std::string& path, const std::map<std::string, TensorView>& tensors,
                      const std::map<std::string, std::string>& metadata = {});
void WriteSafetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

// Where a file's bytes go, in order.
using WriteBytes = std::function<void(const void* data, int64_t bytes)>;
// Writes the elements of one tensor.
using WriteElements = std::function<void(const std::string& name, const WriteBytes& write)>;

// The same bytes to `write`. `types` have no data: `elements` is called for each tensor when it is its turn,
// so that they need not lie in memory together.
void WriteSafetensors(const WriteBytes& write, const std::map<std::string, TensorView>& types, const WriteElements& elements,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace gradloom
