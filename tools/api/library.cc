// The full library.
#include "runtime/api/table.h"
#include "tools/api/compiler_table.h"

namespace gradloom::api {
namespace {

GradloomApi FullTable() {
  GradloomApi api = RuntimeTable();
  AddModels(api);
  AddCompile(api);
  AddDevices(api);
  AddExport(api);
  return api;
}

}  // namespace
}  // namespace gradloom::api

const GradloomApi* GradloomGetApi(uint32_t version) {
  static const GradloomApi api = gradloom::api::FullTable();
  return version == GRADLOOM_API_VERSION ? &api : nullptr;
}
