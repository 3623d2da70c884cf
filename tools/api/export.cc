#include "compiler/onnx/export/export.h"

#include "compiler/onnx/keep_outputs.h"
#include "runtime/api/guard.h"
#include "runtime/base/file.h"
#include "tools/api/compiler_table.h"

namespace gradloom::api {
namespace {

GradloomStatus* ExportModel(GradloomSession* session, const char* path, const char* const* outputs, size_t num_outputs) {
  return Guarded([&] {
    const Call call(session);
    const std::string file = TextOf(path, "the path");
    std::vector<std::string> kept;
    Array(outputs, num_outputs, "the array of outputs");
    for (size_t i = 0; i < num_outputs; ++i) kept.push_back(TextOf(outputs[i], "the name of an output"));
    std::map<std::string, Tensor> values;
    for (const TensorFacts& facts : call.handle().states) values.emplace(facts.name, call->Get(facts.name));
    const ModelInfo& model = call->plan().model;
    kept.empty() ? ExportTrained(model, values, file) : WriteFileAtomically(file, KeepOutputs(ExportedBytes(model, values), kept));
  });
}

}  // namespace

void AddExport(GradloomApi& api) { api.ExportModelForInferencing = ExportModel; }

}  // namespace gradloom::api
