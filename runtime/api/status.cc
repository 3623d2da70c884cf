// Statuses, texts and types of the C table.
#include <iterator>

#include "runtime/api/guard.h"
#include "runtime/api/table.h"
#include "runtime/base/version.h"

namespace gradloom::api {

namespace {

// The numbers of gradloom_c.h, which never change.
constexpr std::pair<ErrorCode, GradloomErrorCode> kCodes[] = {
    {ErrorCode::kInternal, GRADLOOM_E_INTERNAL},
    {ErrorCode::kParse, GRADLOOM_E_PARSE},
    {ErrorCode::kSchema, GRADLOOM_E_SCHEMA},
    {ErrorCode::kName, GRADLOOM_E_NAME},
    {ErrorCode::kGraph, GRADLOOM_E_GRAPH},
    {ErrorCode::kArity, GRADLOOM_E_ARITY},
    {ErrorCode::kAttr, GRADLOOM_E_ATTR},
    {ErrorCode::kType, GRADLOOM_E_TYPE},
    {ErrorCode::kShape, GRADLOOM_E_SHAPE},
    {ErrorCode::kValue, GRADLOOM_E_VALUE},
    {ErrorCode::kTensor, GRADLOOM_E_TENSOR},
    {ErrorCode::kPath, GRADLOOM_E_PATH},
    {ErrorCode::kIo, GRADLOOM_E_IO},
    {ErrorCode::kVersion, GRADLOOM_E_VERSION},
    {ErrorCode::kUnsupported, GRADLOOM_E_UNSUPPORTED},
    {ErrorCode::kLimit, GRADLOOM_E_LIMIT},
    {ErrorCode::kConfig, GRADLOOM_E_CONFIG},
    {ErrorCode::kData, GRADLOOM_E_DATA},
    {ErrorCode::kResource, GRADLOOM_E_RESOURCE},
    {ErrorCode::kPlan, GRADLOOM_E_PLAN},
    {ErrorCode::kCheckpoint, GRADLOOM_E_CHECKPOINT},
    {ErrorCode::kDevice, GRADLOOM_E_DEVICE},
    {ErrorCode::kDiverged, GRADLOOM_E_DIVERGED},
    {ErrorCode::kCheckFailed, GRADLOOM_E_CHECK_FAILED},
    {ErrorCode::kPeer, GRADLOOM_E_PEER},
};
static_assert(std::size(kCodes) == static_cast<size_t>(ErrorCode::kPeer) + 1, "every class of error has a number in gradloom_c.h");

GradloomErrorCode GetErrorCode(const GradloomStatus* status) {
  if (status == nullptr) return GRADLOOM_OK;
  for (const auto& [code, number] : kCodes) {
    if (code == status->error.code()) return number;
  }
  return GRADLOOM_E_INTERNAL;
}

const char* GetErrorName(const GradloomStatus* status) { return status == nullptr ? "" : status->name.c_str(); }
const char* GetErrorMessage(const GradloomStatus* status) { return status == nullptr ? "" : status->error.message().c_str(); }
const char* GetErrorWhere(const GradloomStatus* status) { return status == nullptr ? "" : status->error.where().c_str(); }
const char* GetErrorHelp(const GradloomStatus* status) { return status == nullptr ? "" : status->error.help().c_str(); }

void ReleaseStatus(GradloomStatus* status) {
  if (!IsConstant(status)) delete status;
}

const char* GetTextData(const GradloomText* text) { return text == nullptr ? "" : text->bytes.c_str(); }
size_t GetTextBytes(const GradloomText* text) { return text == nullptr ? 0 : text->bytes.size(); }
void ReleaseText(GradloomText* text) { delete text; }

const char* GetLibraryVersion() { return kVersion; }

bool IsDType(GradloomDType dtype) { return dtype > 0 && dtype < kDTypes; }

// Names are string literals, so they are zero-terminated.
const char* GetDTypeName(GradloomDType dtype) { return DTypeName(IsDType(dtype) ? static_cast<DType>(dtype) : DType::kUndefined).data(); }

size_t GetDTypeBytes(GradloomDType dtype) { return IsDType(dtype) ? static_cast<size_t>(DTypeBytes(static_cast<DType>(dtype))) : 0; }

}  // namespace

void AddStatus(GradloomApi& api) {
  api.GetErrorCode = GetErrorCode;
  api.GetErrorName = GetErrorName;
  api.GetErrorMessage = GetErrorMessage;
  api.GetErrorWhere = GetErrorWhere;
  api.GetErrorHelp = GetErrorHelp;
  api.ReleaseStatus = ReleaseStatus;
  api.GetTextData = GetTextData;
  api.GetTextBytes = GetTextBytes;
  api.ReleaseText = ReleaseText;
  api.GetLibraryVersion = GetLibraryVersion;
  api.GetDTypeName = GetDTypeName;
  api.GetDTypeBytes = GetDTypeBytes;
}

}  // namespace gradloom::api
