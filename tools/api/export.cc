#include "compiler/onnx/export/export.h"

#include <string>
#include <utility>
#include <vector>

#include "runtime/api/guard.h"
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
    TrainedValues values{.types = {}, .read = [&](const std::string& name) { return call->Get(call->TrainedState(name)); }};
    for (const TensorFacts& facts : call.handle().states) values.types.emplace(facts.name, TensorView{facts.dtype, facts.shape, nullptr});
    ExportTrained(call->plan().model, values, file, {.outputs = std::move(kept)});
  });
}

}  // namespace

void AddExport(GradloomApi& api) { api.ExportModelForInferencing = ExportModel; }

}  // namespace gradloom::api
