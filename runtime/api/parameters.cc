// Parameters, statistics and gradients of the C table.
#include <cstring>

#include "runtime/api/gradients.h"
#include "runtime/api/guard.h"
#include "runtime/api/table.h"
#include "runtime/base/listing.h"
#include "runtime/base/suggestion.h"

namespace gradloom::api {
namespace {

// Programs in several languages show it, so it names no function of one of them.
[[noreturn]] void ThrowNoParameter(const std::string& what, const std::string& wanted, const std::vector<std::string>& names) {
  Listing known(8);
  for (const std::string& name : names) known.Add(Escaped(name));
  throw Error(ErrorCode::kConfig, "the plan has no " + what + " '" + Escaped(wanted) + "'", "",
              Suggestion(wanted, names, "it has: " + known.text()));
}

}  // namespace

const StateTensor& GradientState(const Plan& plan, const std::string& parameter) {
  const int index = plan.FindState(parameter);
  for (const StateTensor& state : plan.state) {
    if (state.kind == StateKind::kAccumulator && index >= 0 && state.parameter == index) return state;
  }
  if (index < 0 || plan.state[static_cast<size_t>(index)].kind != StateKind::kParameter) {
    std::vector<std::string> names;
    for (const StateTensor& state : plan.state) {
      if (state.kind == StateKind::kParameter) names.push_back(state.name);
    }
    ThrowNoParameter("trainable parameter", parameter, names);
  }
  throw Error(ErrorCode::kConfig, "the plan does not keep gradients", "",
              "compile it with gradients: GRADLOOM_WITH_GRADIENTS, gradients=True in Python, or gradloom compile --gradients");
}

namespace {

template <typename Function>
void Transform(Tensor& tensor, const Function& function) {
  if (tensor.dtype() == DType::kFloat32) {
    for (float& value : tensor.as<float>()) value = static_cast<float>(function(value));
  } else if (tensor.dtype() == DType::kFloat64) {
    for (double& value : tensor.as<double>()) value = function(value);
  }
}

}  // namespace

// With loss scaling, accumulated gradients are those of the scaled loss.
Tensor GradientOf(const Call& call, const std::string& parameter) {
  Tensor sum = call->Get(GradientState(call->plan(), parameter).name);
  if (const auto scale = call->loss_scale()) Transform(sum, [&](double value) { return value / scale->scale; });
  return sum;
}

namespace {

GradloomStatus* GetParameterCount(GradloomSession* session, int32_t trainable_only, size_t* out) {
  return Guarded([&] {
    const Call call(session);
    NotNull(out, "the output pointer for the result") = trainable_only != 0 ? call.handle().num_parameters : call.handle().states.size();
  });
}

GradloomStatus* GetParameterName(GradloomSession* session, size_t index, const char** out) {
  return Guarded([&] {
    Out(out);
    const Call call(session);
    const auto& states = call.handle().states;
    if (index >= states.size())
      throw Error(ErrorCode::kConfig,
                  "parameter index " + std::to_string(index) + " is out of range: there are " + std::to_string(states.size()));
    *out = states[index].name.c_str();
  });
}

// Throws Error(kConfig).
const TensorFacts& Find(const Call& call, const char* name) {
  const std::string wanted = TextOf(name, "the name");
  for (const auto* list : {&call.handle().states, &call.handle().averages}) {
    for (const TensorFacts& facts : *list) {
      if (facts.name == wanted) return facts;
    }
  }
  std::vector<std::string> names;
  for (const TensorFacts& facts : call.handle().states) names.push_back(facts.name);
  ThrowNoParameter("parameter", wanted, names);
}

GradloomStatus* GetParameterTypeAndShape(GradloomSession* session, const char* name, GradloomTensorInfo* out) {
  return Guarded([&] {
    NotNull(out, "the output pointer for the result");
    const Call call(session);
    WriteResult(InfoOf(Find(call, name)), out);
  });
}

GradloomStatus* GetParameter(GradloomSession* session, const char* name, void* buffer, size_t num_bytes) {
  return Guarded([&] {
    const Call call(session);
    CopyOut(call->Get(Find(call, name).name).view(), buffer, num_bytes);
  });
}

GradloomStatus* UpdateParameter(GradloomSession* session, const char* name, const GradloomTensor* value) {
  return Guarded([&] {
    const Call call(session);
    const std::string& state = Find(call, name).name;
    call->Set(state, ViewOf(NotNull(value, "the value"), "the value of '" + Escaped(state) + "'"));
  });
}

// Throws Error(kType) unless all of them are float32, so that they form one vector.
size_t ElementsOf(const Call& call, int32_t trainable_only) {
  const GradloomSession& handle = call.handle();
  size_t elements = 0;
  for (size_t i = 0; i < (trainable_only != 0 ? handle.num_parameters : handle.states.size()); ++i) {
    const TensorFacts& facts = handle.states[i];
    if (facts.dtype != DType::kFloat32) {
      throw Error(ErrorCode::kType, "'" + Escaped(facts.name) + "' is " + std::string(DTypeName(facts.dtype)) + ", not float32", "",
                  "read it by name with GetParameter");
    }
    elements += static_cast<size_t>(facts.shape.elements());
  }
  return elements;
}

GradloomStatus* GetParametersSize(GradloomSession* session, int32_t trainable_only, size_t* out) {
  return Guarded([&] { NotNull(out, "the output pointer for the result") = ElementsOf(Call(session), trainable_only); });
}

// Checks the size of the vector, then calls `visit` with each tensor and its offset in the vector.
template <typename Visit>
void ForEachPart(const Call& call, int32_t trainable_only, const float* buffer, size_t num_elements, Visit&& visit) {
  NotNull(buffer, "the buffer");
  const size_t elements = ElementsOf(call, trainable_only);
  if (elements != num_elements) {
    throw Error(ErrorCode::kConfig,
                "the buffer has " + std::to_string(num_elements) + " elements, but the parameters have " + std::to_string(elements), "",
                "GetParametersSize returns the number of elements");
  }
  size_t at = 0;
  for (const TensorFacts& facts : call.handle().states) {
    if (at == elements) return;
    visit(facts, at);
    at += static_cast<size_t>(facts.shape.elements());
  }
}

GradloomStatus* CopyParametersToBuffer(GradloomSession* session, int32_t trainable_only, float* buffer, size_t num_elements) {
  return Guarded([&] {
    const Call call(session);
    ForEachPart(call, trainable_only, buffer, num_elements, [&](const TensorFacts& facts, size_t at) {
      const Tensor value = call->Get(facts.name);
      if (value.bytes() > 0) std::memcpy(buffer + at, value.data(), static_cast<size_t>(value.bytes()));
    });
  });
}

GradloomStatus* CopyBufferToParameters(GradloomSession* session, int32_t trainable_only, const float* buffer, size_t num_elements) {
  return Guarded([&] {
    const Call call(session);
    ForEachPart(call, trainable_only, buffer, num_elements, [&](const TensorFacts& facts, size_t at) {
      call->Set(facts.name, {facts.dtype, facts.shape, buffer + at});
    });
  });
}

GradloomStatus* GetGradient(GradloomSession* session, const char* parameter, void* buffer, size_t num_bytes) {
  return Guarded([&] {
    const Call call(session);
    CopyOut(GradientOf(call, TextOf(parameter, "the parameter")).view(), buffer, num_bytes);
  });
}

GradloomStatus* SetGradient(GradloomSession* session, const char* parameter, const GradloomTensor* value) {
  return Guarded([&] {
    const Call call(session);
    call.CheckNotFitting();
    const std::string name = TextOf(parameter, "the parameter");
    const StateTensor& sum = GradientState(call->plan(), name);
    const std::string what = "the gradient of '" + Escaped(name) + "'";
    const TensorView given = ViewOf(NotNull(value, "the value"), what);
    if (given.dtype != sum.dtype || given.shape != sum.shape) {
      throw Error(ErrorCode::kShape, what + " must be " + std::string(DTypeName(sum.dtype)) + sum.shape.ToString() + ", got " +
                                         std::string(DTypeName(given.dtype)) + given.shape.ToString());
    }
    const auto scale = call->loss_scale();
    if (!scale) return call->SetGradient(sum, given);
    Tensor scaled = Tensor::Copy(given);
    Transform(scaled, [&](double value) { return value * scale->scale; });
    call->SetGradient(sum, scaled.view());
  });
}

}  // namespace

void AddParameters(GradloomApi& api) {
  api.GetParameterCount = GetParameterCount;
  api.GetParameterName = GetParameterName;
  api.GetParameterTypeAndShape = GetParameterTypeAndShape;
  api.GetParameter = GetParameter;
  api.UpdateParameter = UpdateParameter;
  api.GetParametersSize = GetParametersSize;
  api.CopyParametersToBuffer = CopyParametersToBuffer;
  api.CopyBufferToParameters = CopyBufferToParameters;
  api.GetGradient = GetGradient;
  api.SetGradient = SetGradient;
}

}  // namespace gradloom::api
