#include <cctype>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/onnx/import.h"
#include "compiler/onnx/matrix.h"
#include "compiler/onnx/model_file.h"
#include "compiler/onnx/torch/module_signature.h"

namespace gradloom {
namespace {

constexpr int64_t kFewestElements = 16;

// Which tensors an exporter has computed. Two that a module has under its own names are two weights, even if one began as a copy of the
// other (a decoder that is initialized with its encoder).
class CopyNames {
 public:
  explicit CopyNames(const onnx::GraphProto& graph) : module_(graph) {
    for (const onnx::ValueInfoProto& info : graph.value_info()) {
      if (NameSet names = SourcesOf(info); !names.empty()) sources_.emplace(info.name(), std::move(names));
    }
  }

  bool MayBeCopy(const std::string& name) const {
    if (sources_.contains(name)) return true;
    if (module_.parameters.contains(name) || module_.others.contains(name)) return false;
    // "onnx::MatMul_12", "/head/Transpose_output_0", "transpose_3:0"; "val_7", "t_1", "const_fold_opt__66".
    static const std::set<std::string> made = {"const_fold_opt", "permute", "t", "val"};
    if (name.starts_with("onnx::") || name.find("ranspose") != std::string::npos) return true;
    size_t end = name.size();
    while (end > 0 && (std::isdigit(static_cast<unsigned char>(name[end - 1])) != 0 || name[end - 1] == '_')) --end;
    return end < name.size() && made.contains(name.substr(0, end));
  }

  bool MayBeCopyOf(const std::string& name, const std::string& source) const {
    const auto noted = sources_.find(name);
    return noted == sources_.end() || noted->second == NameSet{source};
  }

 private:
  const ModuleSignature module_;
  std::map<std::string, NameSet> sources_;
};

}  // namespace

std::vector<TiedTensor> Model::transposed_copies() const {
  if (file_->tied) return *file_->tied;
  const CopyNames names(file_->proto.graph());
  std::vector<std::pair<const ModelTensor*, Matrix>> matrices;
  std::map<std::string, size_t> sources;  // by sample
  ForEachTensor(const_cast<onnx::ModelProto&>(file_->proto), [&](const TensorSite& site) {
    if (!site.parameter_like || site.dense == nullptr) return;
    const ModelTensor& tensor = file_->tensors.at(site.dense);
    const Shape& shape = tensor.data.shape();
    if (!IsFloating(tensor.data.dtype()) || DTypeBytes(tensor.data.dtype()) < 2 || shape.rank() != 2) return;
    if (shape[0] < 2 || shape[1] < 2 || shape.elements() < kFewestElements || tensor.data.data() == nullptr) return;
    const Matrix matrix(tensor.data);
    if (!matrix.Varies()) return;
    if (!names.MayBeCopy(tensor.name)) sources.emplace(matrix.Sample(false), matrices.size());
    matrices.emplace_back(&tensor, matrix);
  });
  std::vector<TiedTensor> copies;
  for (const auto& [tensor, matrix] : matrices) {
    if (!names.MayBeCopy(tensor->name)) continue;
    const auto source = sources.find(matrix.Sample(true));
    if (source == sources.end()) continue;
    const auto& [of, other] = matrices[source->second];
    if (of->data.dtype() == tensor->data.dtype() && names.MayBeCopyOf(tensor->name, of->name) && matrix.IsTransposeOf(other))
      copies.push_back({tensor->name, of->name});
  }
  return copies;
}

}  // namespace gradloom
