#include "compiler/onnx/schema.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "compiler/onnx/standard_schemas.h"
#include "compiler/onnx/translate/contrib_operators.h"
#include "runtime/base/joined.h"
#include "runtime/base/nearest.h"
#include "runtime/base/suggestion.h"

namespace gradloom {
namespace {

using onnx::OpSchema;

// A formal parameter, with its allowed types as a bit set over dtype numbers.
struct Parameter {
  std::string name;
  int constraint = -1;  // parameters of the same type variable share a number; -1: a fixed type
  uint32_t dtypes = 0;
  bool optional = false;
  bool homogeneous = true;
};

struct Facts {
  std::vector<Parameter> inputs;
  int num_constraints = 0;
};

uint32_t BitOf(DType dtype) { return uint32_t{1} << static_cast<uint32_t>(dtype); }

// ONNX gives the allowed types of a parameter as strings: "tensor(float)", "seq(tensor(int64))".
uint32_t BitsOf(const onnx::DataTypeSet& types) {
  // Types whose ONNX names differ from ours.
  static const std::unordered_map<std::string_view, DType> kNames = {{"float", DType::kFloat32}, {"double", DType::kFloat64}};
  uint32_t bits = 0;
  for (const std::string* type : types) {
    std::string_view name = *type;
    if (!name.starts_with("tensor(") || !name.ends_with(")")) continue;
    name = name.substr(7, name.size() - 8);
    const auto found = kNames.find(name);
    const auto dtype = found != kNames.end() ? found->second : DTypeFromName(name);
    if (dtype) bits |= BitOf(*dtype);
  }
  return bits;
}

std::unique_ptr<Facts> FactsOf(const OpSchema& schema) {
  auto facts = std::make_unique<Facts>();
  std::vector<std::string> variables;
  for (const auto& formal : schema.inputs()) {
    Parameter parameter{.name = formal.GetName(),
                        .dtypes = BitsOf(formal.GetTypes()),
                        .optional = formal.GetOption() == OpSchema::Optional,
                        .homogeneous = formal.GetIsHomogeneous()};
    if (schema.typeConstraintMap().contains(formal.GetTypeStr())) {
      const auto found = std::find(variables.begin(), variables.end(), formal.GetTypeStr());
      parameter.constraint = static_cast<int>(found - variables.begin());
      if (found == variables.end()) variables.push_back(formal.GetTypeStr());
    }
    facts->inputs.push_back(std::move(parameter));
  }
  facts->num_constraints = static_cast<int>(variables.size());
  return facts;
}

// Computed once per schema, because every node needs them.
const Facts& CachedFacts(const OpSchema& schema) {
  static std::mutex mutex;
  static std::unordered_map<const OpSchema*, std::unique_ptr<Facts>> cache;
  const std::lock_guard lock(mutex);
  auto& facts = cache[&schema];
  if (facts == nullptr) facts = FactsOf(schema);
  return *facts;
}

void CheckArity(const Node& node, const OpSchema& schema) {
  const auto check = [&](int given, int least, int most, const char* what) {
    if (given >= least && given <= most) return;
    const std::string wanted = least == most                             ? std::to_string(least)
                               : most == std::numeric_limits<int>::max() ? std::to_string(least) + " or more"
                                                                         : std::to_string(least) + " to " + std::to_string(most);
    throw Error(ErrorCode::kArity,
                "operator '" + schema.Name() + "' expects " + wanted + " " + what + ", but this node has " + std::to_string(given),
                Describe(node));
  };
  check(static_cast<int>(node.inputs.size()), schema.min_input(), schema.max_input(), "inputs");
  check(static_cast<int>(node.outputs.size()), schema.min_output(), schema.max_output(), "outputs");
}

std::string_view KindName(onnx::AttributeProto::AttributeType type) {
  switch (type) {
    case onnx::AttributeProto::INT: return "an integer";
    case onnx::AttributeProto::FLOAT: return "a number";
    case onnx::AttributeProto::STRING: return "a string";
    case onnx::AttributeProto::TENSOR: return "a tensor";
    case onnx::AttributeProto::GRAPH: return "a graph";
    case onnx::AttributeProto::INTS: return "a list of integers";
    case onnx::AttributeProto::FLOATS: return "a list of numbers";
    case onnx::AttributeProto::STRINGS: return "a list of strings";
    default: return "of another type";
  }
}

onnx::AttributeProto::AttributeType KindOf(const Attribute& value) {
  using Proto = onnx::AttributeProto;
  // In the order of the variant's alternatives.
  constexpr Proto::AttributeType kKinds[] = {Proto::INT,    Proto::FLOAT,   Proto::STRING, Proto::INTS,
                                             Proto::FLOATS, Proto::STRINGS, Proto::TENSOR};
  return kKinds[value.index()];
}

// Whether the newest version of the operator has the attribute, with this value as its default. Converters to older opsets leave such
// attributes behind (PyTorch's default exporter the `noop_with_empty_axes` of ReduceMean), which say nothing.
bool IsNewerDefault(const Node& node, const std::string& name, const Attribute& value) {
  const OpSchema* newest = FindSchema(node.domain, node.op);
  if (newest == nullptr) return false;
  const auto found = newest->attributes().find(name);
  if (found == newest->attributes().end() || found->second.type != KindOf(value)) return false;
  const onnx::AttributeProto& absent = found->second.default_value;
  switch (absent.type()) {
    case onnx::AttributeProto::INT: return std::get<int64_t>(value) == absent.i();
    case onnx::AttributeProto::STRING: return std::get<std::string>(value) == absent.s();
    default: return false;
  }
}

void CheckAttributes(const Node& node, const OpSchema& schema) {
  const auto& known = schema.attributes();
  for (const auto& [name, value] : node.attributes) {
    const auto found = known.find(name);
    if (found == known.end()) {
      // Exporters and frameworks add private attributes of this form, which ONNX's checker permits.
      if (name.starts_with("__") || IsNewerDefault(node, name, value)) continue;
      std::vector<std::string> names;
      for (const auto& [other, attribute] : known) names.push_back(other);
      std::sort(names.begin(), names.end());
      const std::string near = Nearest(name, names);
      throw Error(ErrorCode::kAttr, "operator '" + schema.Name() + "' has no attribute '" + Escaped(name) + "'", Describe(node),
                  !near.empty()   ? DidYouMean(near)
                  : names.empty() ? "its attributes are: none"
                                  : "its attributes are: " + Joined(names));
    }
    if (KindOf(value) != found->second.type) {
      throw Error(ErrorCode::kAttr,
                  "attribute '" + Escaped(name) + "' of operator '" + schema.Name() + "' must be " +
                      std::string(KindName(found->second.type)) + ", got " + Attributes::ToString(value).substr(0, 200),
                  Describe(node));
    }
  }
  for (const auto& [name, attribute] : known) {
    if (!attribute.required || node.attributes.has(name)) continue;
    throw Error(ErrorCode::kAttr, "operator '" + schema.Name() + "' needs the attribute '" + name + "'", Describe(node));
  }
}

std::string DTypeList(uint32_t bits) {
  std::string text;
  for (uint32_t i = 0; i < 32; ++i) {
    if ((bits >> i & 1) == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(DTypeName(static_cast<DType>(i)));
  }
  return text.empty() ? "no supported tensor type" : text;
}

void CheckDTypes(const Graph& graph, const Node& node, const OpSchema& schema, const Facts& facts) {
  std::vector<int> bound(static_cast<size_t>(facts.num_constraints), -1);  // the input that fixed the type variable
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Parameter& parameter = facts.inputs[std::min(i, facts.inputs.size() - 1)];
    const ValueId id = node.inputs[i];
    if (id == kNoValue) {
      if (parameter.optional) continue;
      throw Error(ErrorCode::kArity, "operator '" + schema.Name() + "' needs input " + std::to_string(i) + " (" + parameter.name + ")",
                  Describe(node));
    }
    const Value& value = graph.value(id);
    const auto here = [&] { return "input " + std::to_string(i) + " (" + parameter.name + ", value '" + Escaped(value.name) + "')"; };
    if ((parameter.dtypes & BitOf(value.dtype)) == 0) {
      throw Error(ErrorCode::kType,
                  here() + " of operator '" + schema.Name() + "' is " + std::string(DTypeName(value.dtype)) + "; allowed types are " +
                      DTypeList(parameter.dtypes),
                  Describe(node));
    }
    if (parameter.constraint < 0 || !parameter.homogeneous) continue;
    int& first = bound[static_cast<size_t>(parameter.constraint)];
    if (first < 0) {
      first = static_cast<int>(i);
      continue;
    }
    const Value& other = graph.value(node.inputs[static_cast<size_t>(first)]);
    if (other.dtype != value.dtype) {
      throw Error(ErrorCode::kType,
                  here() + " is " + std::string(DTypeName(value.dtype)) + " but input " + std::to_string(first) + " ('" +
                      Escaped(other.name) + "') is " + std::string(DTypeName(other.dtype)) + "; operator '" + schema.Name() +
                      "' expects the same type",
                  Describe(node));
    }
  }
}

int NewestOpset(const std::string& domain) {
  if (domain.empty()) return kOpset;
  const auto& versions = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
  const auto found = versions.find(domain);
  return found == versions.end() ? 1 : found->second.second;
}

}  // namespace

const OpSchema* FindSchema(std::string_view domain, const std::string& op, int opset) {
  const std::string key(domain == "ai.onnx" ? "" : domain);
  if (const OpSchema* schema = StandardSchema(key, op, opset)) return schema;
  // onnxruntime has it in every opset, and its optimizer also writes it into older files.
  if (key.empty() && op == "LayerNormalization") return StandardSchema(key, op, kOpset);
  return FindContribSchema(key, op);
}

const OpSchema* FindSchema(std::string_view domain, const std::string& op) {
  const std::string key(domain == "ai.onnx" ? "" : domain);
  const OpSchema* schema = FindSchema(key, op, NewestOpset(key));
  return schema != nullptr && schema->deprecated() ? nullptr : schema;
}

void CheckNode(const Graph& graph, const Node& node, const OpSchema& schema) {
  CheckArity(node, schema);
  CheckAttributes(node, schema);
  CheckDTypes(graph, node, schema, CachedFacts(schema));
}

std::string HelpOfTraditional(const Node& node) {
  if (node.domain != "ai.onnx.ml") return "";
  if (node.op == "ZipMap") return "export without it: skl2onnx.to_onnx(model, x, options={'zipmap': False})";
  return "operators of ai.onnx.ml keep their parameters in attributes; of scikit-learn's models, linear ones (LinearRegressor, "
         "LinearClassifier with integer classes), MLPClassifier and MLPRegressor can be trained";
}

void ThrowUnknownOperator(const Node& node) {
  const std::string near = node.domain.empty() ? Nearest(node.op, StandardOperators()) : "";
  throw Error(ErrorCode::kUnsupported,
              "unknown operator '" + Escaped(node.op) + "'" + (node.domain.empty() ? "" : " of domain '" + Escaped(node.domain) + "'"),
              Describe(node),
              !near.empty()                        ? DidYouMean(near)
              : HelpOfContrib(node.domain).empty() ? HelpOfTraditional(node)
                                                   : HelpOfContrib(node.domain));
}

}  // namespace gradloom
