#include "runtime/api/table.h"

namespace gradloom::api {

GradloomApi RuntimeTable() {
  GradloomApi api{};
  api.version = GRADLOOM_API_VERSION;
  AddStatus(api);
  AddPlans(api);
  AddSessions(api);
  AddSteps(api);
  AddLearningRates(api);
  AddParameters(api);
  AddLocations(api);
  AddCheckpoints(api);
  AddDatasets(api);
  AddFit(api);
  AddDLPack(api);
  AddSharing(api);
  AddNoCompiler(api);
  return api;
}

}  // namespace gradloom::api
