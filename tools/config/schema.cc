#include "tools/config/schema.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/config/configuration.h"

namespace gradloom {
namespace {

using Json = nlohmann::ordered_json;

Json TextOrTexts() {
  return {{"anyOf", Json::array({Json{{"type", "string"}}, Json{{"type", "array"}, {"items", Json{{"type", "string"}}}}})}};
}

Json TableOf(const Json& values) { return {{"type", "object"}, {"additionalProperties", values}}; }

Json TypeOf(const Key& key) {
  switch (key.type) {
    case KeyType::kPath: return {{"type", "string"}};
    case KeyType::kInteger: return {{"type", "integer"}};
    case KeyType::kNumber: return {{"type", "number"}};
    case KeyType::kSwitch: return {{"type", "boolean"}};
    case KeyType::kTexts:
    case KeyType::kTerms: return TextOrTexts();
    case KeyType::kNamed: return TableOf({{"type", Json::array({"string", "integer"})}});
    case KeyType::kNamedLists: return TableOf(TextOrTexts());
    case KeyType::kNamedCounts: return TableOf({{"type", "integer"}, {"minimum", 1}});
    case KeyType::kNamedNumbers: return TableOf({{"type", "number"}, {"minimum", key.least}});
    case KeyType::kText: break;
  }
  // warmup = 500 is parsed as text but written as a number.
  if (*key.words == '\0') return {{"type", Json::array({"string", "integer"})}};
  return {{"enum", WordsOf(key)}};
}

Json SchemaOf(const Key& key) {
  Json schema = TypeOf(key);
  schema["description"] = key.help;
  const auto bound = [&](const char* name, double number) {
    if ((key.type != KeyType::kInteger && key.type != KeyType::kNumber) || !std::isfinite(number)) return;
    schema[name] = key.type == KeyType::kInteger ? Json(static_cast<int64_t>(number)) : Json(number);
  };
  bound("minimum", key.least);
  bound("maximum", key.most);
  if (*key.fallback == '\0') return schema;
  const Configuration defaults;
  switch (key.type) {
    case KeyType::kInteger: schema["default"] = defaults.Integer(key.name); break;
    case KeyType::kNumber: schema["default"] = defaults.Number(key.name); break;
    case KeyType::kSwitch: schema["default"] = defaults.Switch(key.name); break;
    default: schema["default"] = key.fallback;
  }
  return schema;
}

}  // namespace

Json ConfigurationSchema() {
  Json sections{{"version", Json{{"const", 1}, {"description", "version of the file format"}}}};
  for (const Key& key : Keys()) {
    Json& section = sections[std::string(key.section())];
    if (section.is_null()) section = {{"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
    section["properties"][std::string(key.short_name())] = SchemaOf(key);
  }
  sections["checkpoint"]["properties"]["best"] = SchemaOf(*FindKey("checkpoint.best"));
  return {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
          {"title", "gradloom.toml"},
          {"type", "object"},
          {"additionalProperties", false},
          {"properties", sections}};
}

}  // namespace gradloom
