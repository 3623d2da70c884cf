#include "compiler/onnx/external_files.h"

#include <filesystem>

#include "compiler/onnx/model_file.h"
#include "runtime/base/file.h"

namespace gradloom {

std::set<std::string> ExternalFilesOf(const std::string& path, const LoadOptions& options) {
  const std::shared_ptr<ModelFile> file = ReadModelProto(path, options);
  const std::filesystem::path folder = options.external_dir.empty() ? FolderOf(path) : options.external_dir;
  std::set<std::string> files;
  const auto add = [&](const onnx::TensorProto& tensor) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return;
    for (const auto& entry : tensor.external_data()) {
      if (entry.key() == "location") files.insert((folder / entry.value()).string());
    }
  };
  ForEachTensor(file->proto, [&](const TensorSite& site) {
    if (site.dense != nullptr) return add(*site.dense);
    add(site.sparse->values());
    add(site.sparse->indices());
  });
  return files;
}

}  // namespace gradloom
