/* Parameters and properties of a checkpoint's state, for gradloom_ort_compat_c.h, which includes this file. */
#ifndef GRADLOOM_GRADLOOM_ORT_STATE_C_H_
#define GRADLOOM_GRADLOOM_ORT_STATE_C_H_

#include <locale.h>

#include "gradloom/gradloom_ort_training_c.h"

typedef enum OrtPropertyType { OrtIntProperty = 0, OrtFloatProperty = 1, OrtStringProperty = 2 } OrtPropertyType;

/* ---- Checkpoints and parameters ---- */
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtSessionOf(const OrtCheckpointState* state, GradloomSession** out) {
  *out = state == NULL || state->training == NULL ? NULL : state->training->session;
  if (state == NULL) return GradloomOrtWrong("the state is null");
  return *out == NULL ? GradloomOrtWrong("no training session uses this checkpoint; create the session first") : NULL;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtSaveCheckpoint(OrtCheckpointState* state, const char* path, const bool include_optimizer_state) {
  GradloomSession* session;
  OrtStatus* status = GradloomOrtSessionOf(state, &session);
  return status != NULL ? status : GradloomOrtTake(GradloomOrtTable()->SaveCheckpoint(session, path, include_optimizer_state ? 1 : 0));
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtParameterInfo(const OrtCheckpointState* state, const char* name, GradloomTensorInfo* info) {
  GradloomSession* session;
  OrtStatus* status = GradloomOrtSessionOf(state, &session);
  memset(info, 0, sizeof *info);
  info->size = sizeof *info;
  return status != NULL ? status : GradloomOrtTake(GradloomOrtTable()->GetParameterTypeAndShape(session, name, info));
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtParameterType(const OrtCheckpointState* state, const char* name,
                                                        OrtTensorTypeAndShapeInfo** out) {
  GradloomTensorInfo info;
  OrtStatus* status = GradloomOrtParameterInfo(state, name, &info);
  if (status != NULL) return status;
  if (out == NULL) return GradloomOrtWrong("the output pointer for the result is null");
  return GradloomOrtNewInfo(info.dtype, info.shape, (size_t)info.rank, out);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtGetParameter(const OrtCheckpointState* state, const char* name, OrtAllocator* allocator,
                                                       OrtValue** out) {
  GradloomTensorInfo info;
  GradloomSession* session = NULL;
  int ok;
  size_t bytes;
  OrtStatus* status = GradloomOrtParameterInfo(state, name, &info);
  if (status == NULL) status = GradloomOrtSessionOf(state, &session);
  if (status == NULL)
    status = GradloomOrtCreateTensor(allocator, info.shape, (size_t)info.rank, (ONNXTensorElementDataType)info.dtype, out);
  if (status != NULL) return status;
  bytes = GradloomOrtBytes(info.shape, (size_t)info.rank, (ONNXTensorElementDataType)info.dtype, &ok);
  status = GradloomOrtTake(GradloomOrtTable()->GetParameter(session, name, (*out)->owned, bytes));
  if (status != NULL) {
    GradloomOrtReleaseValue(*out);
    *out = NULL;
  }
  return status;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtUpdateParameter(OrtCheckpointState* state, const char* name, OrtValue* value) {
  GradloomSession* session;
  OrtStatus* status = GradloomOrtSessionOf(state, &session);
  return status != NULL ? status
                        : GradloomOrtTake(GradloomOrtTable()->UpdateParameter(session, name, value == NULL ? NULL : &value->tensor));
}

/* ---- Properties: a checkpoint keeps texts, so the type comes before the text ---- */
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtHoldProperty(OrtCheckpointState* state, const char* name, const char* text) {
  const size_t name_bytes = strlen(name) + 1, text_bytes = strlen(text) + 1;
  GradloomOrtProperty** place = &state->properties;
  GradloomOrtProperty* property = (GradloomOrtProperty*)malloc(sizeof(GradloomOrtProperty) + name_bytes + text_bytes);
  if (property == NULL) return GradloomOrtNoMemory();
  property->name = (char*)memcpy(property + 1, name, name_bytes);
  property->text = (char*)memcpy((char*)(property + 1) + name_bytes, text, text_bytes);
  while (*place != NULL && strcmp((*place)->name, name) != 0) place = &(*place)->next;
  property->next = *place == NULL ? NULL : (*place)->next;
  free(*place);
  *place = property;
  return NULL;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtAddProperty(OrtCheckpointState* state, const char* name, enum OrtPropertyType type, void* value) {
  char number[64];
  const char* string = "";
  char *text, *at;
  size_t bytes;
  OrtStatus* status;
  if (state == NULL || name == NULL || value == NULL) return GradloomOrtWrong("the state, the name or the value is null");
  switch (type) {
    case OrtIntProperty: snprintf(number, sizeof number, "int64:%lld", (long long)*(const int64_t*)value); break;
    case OrtFloatProperty:
      snprintf(number, sizeof number, "float:%.9g", (double)*(const float*)value);
      /* Accepts any decimal separator of the locale. */
      at = strstr(number, localeconv()->decimal_point);
      if (at != NULL && strlen(localeconv()->decimal_point) == 1) *at = '.';
      break;
    case OrtStringProperty:
      snprintf(number, sizeof number, "string:");
      string = (const char*)value;
      break;
    default: return GradloomOrtWrong("unknown property type");
  }
  bytes = strlen(number) + strlen(string) + 1;
  text = (char*)malloc(bytes);
  if (text == NULL) return GradloomOrtNoMemory();
  snprintf(text, bytes, "%s%s", number, string);
  status = state->training == NULL ? GradloomOrtHoldProperty(state, name, text)
                                   : GradloomOrtTake(GradloomOrtTable()->AddProperty(state->training->session, name, text));
  free(text);
  return status;
}
/* Borrowed; null if there is none. */
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtFindProperty(const OrtCheckpointState* state, const char* name, const char** out) {
  const GradloomApi* api = GradloomOrtTable();
  const GradloomOrtProperty* property = state->properties;
  *out = NULL;
  if (state->training != NULL) return GradloomOrtTake(api->GetProperty(state->training->session, name, out));
  while (property != NULL && strcmp(property->name, name) != 0) property = property->next;
  if (property != NULL) *out = property->text;
  return property != NULL || state->checkpoint == NULL ? NULL : GradloomOrtTake(api->GetCheckpointProperty(state->checkpoint, name, out));
}
GRADLOOM_ORT_INLINE float GradloomOrtFloat(const char* text) {
  char number[64];
  char* at;
  snprintf(number, sizeof number, "%s", text);
  at = strchr(number, '.');
  if (at != NULL) *at = *localeconv()->decimal_point;
  return strtof(number, NULL);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtGetProperty(const OrtCheckpointState* state, const char* name, OrtAllocator* allocator,
                                                      enum OrtPropertyType* type, void** value) {
  const char* text;
  int64_t integer;
  float number;
  OrtStatus* status;
  if (state == NULL || name == NULL || type == NULL || value == NULL)
    return GradloomOrtWrong("the state, the name or an output pointer is null");
  *value = NULL;
  status = GradloomOrtFindProperty(state, name, &text);
  if (status != NULL) return status;
  if (text == NULL) return GradloomOrtWrong("the checkpoint has no property with this name");
  if (strncmp(text, "int64:", 6) == 0) {
    *type = OrtIntProperty;
    integer = strtoll(text + 6, NULL, 10);
    return GradloomOrtCopyOf(allocator, &integer, sizeof integer, value);
  }
  if (strncmp(text, "float:", 6) == 0) {
    *type = OrtFloatProperty;
    number = GradloomOrtFloat(text + 6);
    return GradloomOrtCopyOf(allocator, &number, sizeof number, value);
  }
  /* A text without a type was added by another interface. */
  *type = OrtStringProperty;
  if (strncmp(text, "string:", 7) == 0) text += 7;
  return GradloomOrtCopyOf(allocator, text, strlen(text) + 1, value);
}

#endif /* GRADLOOM_GRADLOOM_ORT_STATE_C_H_ */
