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

// A safetensors file open for reading. The constructor checks the whole header: the tensors cover the rest of the file exactly, without
// holes or overlaps, so later sizes can be trusted. Reads by pread; the file is never mapped. Safe for any number of threads.
class SafetensorsFile {
 public:
  struct Entry {
    DType dtype = DType::kUndefined;
    Shape shape;
    int64_t begin = 0, end = 0;  // bytes from the start of the file
  };

  // Throws Error(kCheckpoint) naming the file, and the tensor if any, for an incomplete or damaged file, a header that is not valid JSON of
  // the right form (including duplicate keys and fractional offsets), an unsupported dtype, a range that does not fit shape and dtype,
  // holes, overlaps, and trailing bytes. Throws Error(kIo), Error(kLimit) like InputFile; also Error(kLimit) for more than `max_tensors`
  // tensors.
  explicit SafetensorsFile(const std::string& path, int64_t limit_bytes = kLimitBytes, int64_t max_tensors = kMaxTensors);
  explicit SafetensorsFile(InputFile file, int64_t max_tensors = kMaxTensors);

  const std::string& path() const { return file_.path(); }
  const InputFile& file() const { return file_; }

  // By name, in the order of the names.
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // A tensor's elements. Throws Error(kCheckpoint) for an unknown name, or a bool that is neither 0 nor 1.
  Tensor Read(const std::string& name) const;

  // The same into `out`, which has room for the entry's bytes.
  void ReadInto(const std::string& name, void* out) const;

  // Larger than the limits of data and models, since state is larger: nothing is allocated by what a header claims.
  static constexpr int64_t kLimitBytes = int64_t{1} << 50;
  static constexpr int64_t kMaxTensors = 65536;

 private:
  const Entry& Find(const std::string& name) const;

  InputFile file_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

// The tensors of a whole file in memory, as views into `bytes`. The checks are SafetensorsFile's; elements that are not aligned to their
// size are refused, too. `where` names the file in errors. `metadata`, unless null, gets that of the file.
std::map<std::string, TensorView> ViewSafetensors(std::string_view bytes, const std::string& where,
                                                  int64_t max_tensors = SafetensorsFile::kMaxTensors,
                                                  std::map<std::string, std::string>* metadata = nullptr);

// Writes the file in one step (AtomicFile), with elements aligned to 8 bytes. The bytes are those that the Python package writes for the
// same tensors and metadata: sorted by dtype, widest first, then by name. Throws Error(kCheckpoint) for a dtype that the format lacks, and
// a name that is "__metadata__" or not UTF-8.
void WriteSafetensors(const std::string& path, const std::map<std::string, TensorView>& tensors,
                      const std::map<std::string, std::string>& metadata = {});
void WriteSafetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

// Receives a file's bytes, in order.
using WriteBytes = std::function<void(const void* data, int64_t bytes)>;
// Writes the elements of one tensor.
using WriteElements = std::function<void(const std::string& name, const WriteBytes& write)>;

// Writes the same bytes to `write`. `types` have no data: `elements` is called for each tensor in turn, so they need not be in memory
// together.
void WriteSafetensors(const WriteBytes& write, const std::map<std::string, TensorView>& types, const WriteElements& elements,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace gradloom
