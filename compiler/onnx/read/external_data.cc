#include "compiler/onnx/read/external_data.h"

#include <sys/stat.h>

#include <limits>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/read_number.h"

namespace gradloom {
namespace {

NamedBy NamedByTensor(const std::string& where) {
  return {"external data", where, "put the file beside the model, or name its folder with --external-dir"};
}

// For errors about a file.
std::string AtFile(const std::string& where, const std::string& location) { return where + "  file \"" + Escaped(location) + "\""; }

int64_t ParseNumber(const std::string& text, const char* key, const std::string& where) {
  const std::optional<int64_t> value = ReadNumber<int64_t>(text);
  if (!value || text.front() == '-') {
    throw Error(ErrorCode::kTensor, std::string("external data has the ") + key + " \"" + Escaped(text) + "\"; expected a decimal number",
                where);
  }
  return *value;
}

}  // namespace

ExternalData::ExternalData(const std::string& model_path, const LoadOptions& options) : options_(options) {
  if (!options.external_dir.empty())
    folder_.emplace(options.external_dir);
  else if (!model_path.empty())
    folder_.emplace(FolderOf(model_path), model_path);
}

ExternalData::Range ExternalData::Parse(const onnx::TensorProto& tensor, const std::string& where) const {
  Range range;
  std::set<std::string> keys;
  bool located = false;
  for (const auto& entry : tensor.external_data()) {
    if (!keys.insert(entry.key()).second) {
      throw Error(ErrorCode::kPath, "external data has the key '" + Escaped(entry.key()) + "' twice", AtFile(where, entry.value()));
    }
    if (entry.key() == "location") {
      located = true;
      range.location = entry.value();
    } else if (entry.key() == "offset") {
      range.offset = ParseNumber(entry.value(), "offset", where);
    } else if (entry.key() == "length") {
      range.length = ParseNumber(entry.value(), "length", where);
    }
    // Other keys (a checksum, or marks of other tools) are not needed.
  }
  if (!located) throw Error(ErrorCode::kTensor, "external data has no location", where);
  if (range.location.find("_ORT_MEM_ADDR_") != std::string::npos) {
    throw Error(ErrorCode::kPath, "external data points into the memory of another process", AtFile(where, range.location),
                "save the model with its tensors in it, or in files");
  }
  CheckFileName(range.location, NamedByTensor(where));
  return range;
}

InputFile ExternalData::Open(const Range& range, const std::string& where, int64_t bytes) {
  if (!folder_) {
    throw Error(ErrorCode::kIo, "the model stores tensors in other files, but their folder is unknown", where,
                "name the folder with --external-dir, or in external_dir of the library's options");
  }
  seen_.insert(range.location);
  if (static_cast<int64_t>(seen_.size()) > options_.limits.external_files) {
    throw Error(ErrorCode::kLimit, "the model uses more than " + std::to_string(options_.limits.external_files) + " files of external data",
                where);
  }
  if (range.length >= 0 && range.length != bytes) {
    throw Error(ErrorCode::kTensor,
                "external data has length " + std::to_string(range.length) + ", but the tensor needs " + std::to_string(bytes) + " bytes",
                where);
  }
  const auto end = CheckedAdd(range.offset, bytes);
  if (!end)
    throw Error(ErrorCode::kTensor, "external data has offset " + std::to_string(range.offset) + ", which is past the end of any file",
                where);
  InputFile file = folder_->Open(range.location, NamedByTensor(where), std::numeric_limits<int64_t>::max());
  struct stat status;
  if (!options_.allow_hardlinks && (::fstat(file.fd(), &status) != 0 || status.st_nlink != 1)) {
    throw Error(ErrorCode::kPath, "external data is a file with several names (hard links)", AtFile(where, range.location),
                "one of them may be outside the model's folder; caches and backups also use hard links: --allow-hardlinks allows them");
  }
  if (*end > file.bytes()) {
    throw Error(ErrorCode::kTensor,
                "external data ends at byte " + std::to_string(*end) + ", but the file has " + std::to_string(file.bytes()) + " bytes",
                AtFile(where, range.location));
  }
  return file;
}

void ExternalData::Check(const onnx::TensorProto& tensor, const std::string& where, int64_t bytes) {
  Open(Parse(tensor, where), where, bytes);
}

void ExternalData::Read(const onnx::TensorProto& tensor, const std::string& where, void* out, int64_t bytes) {
  const Range range = Parse(tensor, where);
  Open(range, where, bytes).ReadAt(range.offset, out, bytes);
}

}  // namespace gradloom
