// The schemas that are made on demand are those of ONNX's registry.
#include "compiler/onnx/standard_schemas.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace gradloom {
namespace {

// What the compiler reads of a schema.
std::string Summary(const onnx::OpSchema& schema) {
  std::string text = schema.domain() + " " + schema.Name() + " " + std::to_string(schema.SinceVersion());
  if (schema.deprecated()) text += " deprecated";
  text += " " + std::to_string(schema.min_input()) + " " + std::to_string(schema.min_output());
  for (const auto* operands : {&schema.inputs(), &schema.outputs()}) {
    text += "\n";
    for (const onnx::OpSchema::FormalParameter& operand : *operands) {
      std::set<std::string> types;
      for (const std::string* type : operand.GetTypes()) types.insert(*type);
      text += " " + operand.GetName() + ":" + operand.GetTypeStr();
      for (const std::string& type : types) text += " " + type;
    }
  }
  for (const auto& [name, attribute] : std::map(schema.attributes().begin(), schema.attributes().end())) {
    text += "\n" + name + " " + std::to_string(attribute.type) + (attribute.required ? " required " : " ");
    text += attribute.default_value.ShortDebugString();
  }
  text += schema.has_type_and_shape_inference_function() ? "\ninfers" : "\n";
  if (schema.HasFunction()) text += "\n" + schema.GetFunction()->ShortDebugString();
  if (schema.HasContextDependentFunction()) text += "\nwrites a function";
  return text;
}

TEST(StandardSchemas, AreThoseOfTheRegistry) {
  const std::vector<onnx::OpSchema> all = onnx::OpSchemaRegistry::get_all_schemas_with_history();
  ASSERT_GT(all.size(), 600u);
  std::set<std::string> names;
  for (const onnx::OpSchema& schema : all) {
    const onnx::OpSchema* const found = StandardSchema(schema.domain(), schema.Name(), schema.SinceVersion());
    ASSERT_NE(found, nullptr) << schema.domain() << " " << schema.Name() << " " << schema.SinceVersion();
    EXPECT_EQ(Summary(*found), Summary(schema));
    EXPECT_EQ(found, StandardSchema(schema.domain(), schema.Name(), schema.SinceVersion()));
    if (schema.domain().empty()) names.insert(schema.Name());
  }
  EXPECT_TRUE(std::equal(names.begin(), names.end(), StandardOperators().begin(), StandardOperators().end()));
}

TEST(StandardSchemas, AreAsDeterministicAsOnnxSays) {
  int random = 0;
  for (const onnx::OpSchema& schema : onnx::OpSchemaRegistry::get_all_schemas_with_history()) {
    const bool wanted = schema.GetNodeDeterminism() != onnx::OpSchema::NodeDeterminism::NonDeterministic;
    EXPECT_EQ(SchemaIsDeterministic(schema), wanted) << schema.domain() << " " << schema.Name() << " " << schema.SinceVersion();
    random += wanted ? 0 : 1;
  }
  EXPECT_GT(random, 10);
}

TEST(StandardSchemas, AtAnyOpset) {
  for (const onnx::OpSchema& newest : onnx::OpSchemaRegistry::get_all_schemas()) {
    for (int opset = 0; opset <= 40; ++opset) {
      const onnx::OpSchema* const wanted = onnx::OpSchemaRegistry::Schema(newest.Name(), opset, newest.domain());
      const onnx::OpSchema* const found = StandardSchema(newest.domain(), newest.Name(), opset);
      ASSERT_EQ(found == nullptr, wanted == nullptr) << newest.domain() << " " << newest.Name() << " " << opset;
      if (wanted == nullptr) continue;
      EXPECT_EQ(found->SinceVersion(), wanted->SinceVersion()) << newest.Name() << " " << opset;
    }
  }
}

TEST(StandardSchemas, AreAbsentForOtherNames) {
  for (const char* const op : {"", "Aaa", "Ab", "Absolute", "Zzz"}) {
    for (const char* const domain : {"", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft"}) {
      EXPECT_EQ(StandardSchema(domain, op, 20), nullptr) << domain << " " << op;
    }
  }
}

}  // namespace
}  // namespace gradloom
