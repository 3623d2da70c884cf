// The functions that need the compiler, for the library without one.
#include "runtime/api/guard.h"
#include "runtime/api/table.h"

namespace gradloom::api {
namespace {

GradloomStatus* Absent(const char* what) {
  return Guarded([&] {
    throw Error(ErrorCode::kUnsupported, std::string(what) + " is not in this build, which has no compiler", "libgradloom_runtime",
                "compile plans with libgradloom or the command, and load them here");
  });
}

GradloomStatus* LoadModel(const char*, const GradloomLoadOptions*, GradloomModel**) { return Absent("LoadModel"); }
GradloomStatus* LoadModelFromBuffer(const void*, size_t, const GradloomLoadOptions*, GradloomModel**) {
  return Absent("LoadModelFromBuffer");
}
GradloomStatus* GetModelInputCount(const GradloomModel*, size_t*) { return Absent("GetModelInputCount"); }
GradloomStatus* GetModelInputName(const GradloomModel*, size_t, const char**) { return Absent("GetModelInputName"); }
void ReleaseModel(GradloomModel*) {}
GradloomStatus* GetSettings(GradloomText**) { return Absent("GetSettings"); }
GradloomStatus* GetDevices(GradloomText**) { return Absent("GetDevices"); }
GradloomStatus* SetDefaultDevices(const char*) { return Absent("SetDefaultDevices"); }
GradloomStatus* GetDefaultDevices(GradloomText**) { return Absent("GetDefaultDevices"); }
GradloomStatus* GetDeviceCount(size_t*) { return Absent("GetDeviceCount"); }
GradloomStatus* GetDeviceInfo(size_t, GradloomDeviceInfo*) { return Absent("GetDeviceInfo"); }
GradloomStatus* Compile(const GradloomModel*, const GradloomCompileOptions*, GradloomPlan**) { return Absent("Compile"); }
GradloomStatus* Export(GradloomSession*, const char*, const char* const*, size_t) { return Absent("ExportModelForInferencing"); }

}  // namespace

void AddNoCompiler(GradloomApi& api) {
  api.LoadModel = LoadModel;
  api.LoadModelFromBuffer = LoadModelFromBuffer;
  api.GetModelInputCount = GetModelInputCount;
  api.GetModelInputName = GetModelInputName;
  api.ReleaseModel = ReleaseModel;
  api.GetSettings = GetSettings;
  api.GetDevices = GetDevices;
  api.SetDefaultDevices = SetDefaultDevices;
  api.GetDefaultDevices = GetDefaultDevices;
  api.GetDeviceCount = GetDeviceCount;
  api.GetDeviceInfo = GetDeviceInfo;
  api.Compile = Compile;
  api.ExportModelForInferencing = Export;
}

}  // namespace gradloom::api
