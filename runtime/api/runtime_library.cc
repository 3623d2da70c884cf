// The library without a compiler: it runs plans that were compiled elsewhere.
#include "runtime/api/table.h"

const GradloomApi* GradloomGetApi(uint32_t version) {
  static const GradloomApi api = gradloom::api::RuntimeTable();
  return version == GRADLOOM_API_VERSION ? &api : nullptr;
}
