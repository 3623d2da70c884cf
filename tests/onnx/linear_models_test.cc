// Linear models of scikit-learn (ai.onnx.ml), whose coefficients are attributes of a node, are trained like products with initializers.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/onnx/import.h"
#include "runtime/base/error.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

// skl2onnx may import no other domain, and it is not the first one.
constexpr char kOnlyMl[] = "<ir_version: 8, opset_import: [\"ai.onnx.ml\" : 1]>\n";
constexpr char kBoth[] = "<ir_version: 8, opset_import: [\"ai.onnx.ml\" : 1, \"\" : 17]>\n";

Model Linear(const std::string& graph, const char* header = kOnlyMl) { return Model::FromText(header + graph); }

constexpr char kRegressor[] =
    "g (float[N, 3] x) => (float[N, 2] z) { [model] z = ai.onnx.ml.LinearRegressor <coefficients = [1.0, -2.0, 0.5, 0.25, 3.0, -1.0], "
    "intercepts = [0.5, -0.25], targets = 2> (x) }";
constexpr char kRegressorProduct[] =
    "g (float[N, 3] x) => (float[N, 2] z) <float[3, 2] w = {1, 0.25, -2, 3, 0.5, -1}, float[2] b = {0.5, -0.25}> { m = MatMul (x, w) z = "
    "Add "
    "(m, b) }";
constexpr char kClassifier[] =
    "g (float[N, 3] x) => (int64[N] label, float[N, 3] z) { label, z = ai.onnx.ml.LinearClassifier <classlabels_ints = [0, 1, 2], "
    "coefficients "
    "= [1.0, -2.0, 0.5, 0.25, 3.0, -1.0, -0.5, 0.75, 2.0], intercepts = [0.5, -0.25, 0.125], multi_class = 1, post_transform = "
    "\"SOFTMAX\"> (x) }";
constexpr char kClassifierProduct[] =
    "g (float[N, 3] x) => (int64[N] label, float[N, 3] z) <float[3, 3] w = {1, 0.25, -0.5, -2, 3, 0.75, 0.5, -1, 2}, float[3] b = {0.5, "
    "-0.25, 0.125}> { m = MatMul (x, w) s = Add (m, b) label = ArgMax <axis = 1, keepdims = 0> (s) z = Softmax <axis = 1> (s) }";
// Of two classes: skl2onnx writes the coefficients and their negatives.
constexpr char kTwoClasses[] =
    "g (float[N, 3] x) => (int64[N] label, float[N, 2] z) { label, z = ai.onnx.ml.LinearClassifier <classlabels_ints = [0, 1], "
    "coefficients = "
    "[-1.0, 2.0, -0.5, 1.0, -2.0, 0.5], intercepts = [-0.25, 0.25], post_transform = \"LOGISTIC\"> (x) }";
constexpr char kTwoClassesProduct[] =
    "g (float[N, 3] x) => (int64[N] label, float[N, 2] z) <float[3, 1] w = {1, -2, 0.5}, float[1] b = {0.25}> { m = MatMul (x, w) s = Add "
    "(m, b) n = Neg (s) both = Concat <axis = 1> (n, s) label = ArgMax <axis = 1, keepdims = 0> (both) z = Sigmoid (both) }";

// The fetches and the state, with the names of the product's weights.
std::map<std::string, Tensor> Trained(const Model& model, const std::vector<LossTerm>& losses, int devices, const std::string& base) {
  std::mt19937 random(3);
  std::vector<Batch> batches;
  for (int step = 0; step < 3; ++step) {
    Batch batch{{"x", Random(random, Shape{6, 3})}};
    const bool values = losses[0].type == "mse";
    batch.emplace("target", values ? Random(random, Shape{6, 2}) : Classes(random, 6, 2));
    batches.push_back(std::move(batch));
  }
  std::map<std::string, Tensor> made;
  for (auto& [name, tensor] : Train(model, OptionsFor(losses, devices, {6}), batches)) {
    std::string plain = name;
    for (const auto& [from, to] : {std::pair(base + "/coefficients", std::string("w")), {base + "/intercepts", "b"}}) {
      if (const size_t at = plain.find(from); at != std::string::npos) plain.replace(at, from.size(), to);
    }
    made.emplace(plain, std::move(tensor));
  }
  return made;
}

TEST(LinearModels, AreTrainedLikeProducts) {
  const std::vector<LossTerm> mse = {{.type = "mse", .output = "z", .target = "target"}};
  const std::vector<LossTerm> classes = {{.type = "cross_entropy_of_probabilities", .output = "z", .target = "target"}};
  struct Form {
    const char *model, *product;
    std::vector<LossTerm> losses;
    std::string base;
  };
  for (const Form& form : {Form{kRegressor, kRegressorProduct, mse, "model"}, Form{kClassifier, kClassifierProduct, classes, "label"},
                           Form{kTwoClasses, kTwoClassesProduct, classes, "label"}}) {
    for (int devices : {1, 2}) {
      SCOPED_TRACE(form.model);
      const auto got = Trained(Linear(form.model), form.losses, devices, form.base);
      EXPECT_TRUE(got.contains("w")) << "the coefficients are not trained";
      EXPECT_TRUE(got.contains("b")) << "the intercepts are not trained";
      ExpectSameBits(Trained(ModelOf(form.product), form.losses, devices, form.base), got);
    }
  }
}

TEST(LinearModels, KeepTheOpsetOfTheFile) {
  for (const char* header : {kOnlyMl, kBoth}) {
    const ImportedGraph imported = Import(Linear(kRegressor, header), {.batch = 2});
    EXPECT_NE(imported.graph->Find("model/coefficients"), kNoValue);
  }
}

TEST(LinearModels, OtherFormsAreRefused) {
  const auto refused = [](const std::string& graph) {
    try {
      Import(Linear(graph), {.batch = 2});
      ADD_FAILURE() << "accepted: " << graph;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.Describe();
      EXPECT_NE(error.Describe().find("keep their parameters in attributes"), std::string::npos) << error.Describe();
    }
  };
  refused(
      "g (float[N, 2] x) => (float[N, 1] y) { y = ai.onnx.ml.LinearRegressor <coefficients = [1.0, 2.0], post_transform = \"PROBIT\"> (x) "
      "}");
  refused(
      "g (float[N, 2] x) => (float[N, 1] y) { y = ai.onnx.ml.LinearRegressor <coefficients = [1.0, 2.0], post_transform = \"LOGISTIC\"> "
      "(x) "
      "}");
  refused("g (float[N, 2] x) => (float[N, 1] y) { y = ai.onnx.ml.LinearRegressor <coefficients = [1.0, 2.0], targets = 0> (x) }");
  refused("g (float[N, 2] x) => (float[N, 1] y) { y = ai.onnx.ml.LinearRegressor <coefficients = [1.0, 2.0, 3.0], targets = 2> (x) }");
  refused(
      "g (float[N, 2] x) => (float[N, 1] y) { y = ai.onnx.ml.LinearRegressor <coefficients = [1.0, 2.0], intercepts = [1.0, 2.0]> (x) }");
  refused(
      "g (float[N, 2] x) => (int64[N] y, float[N, 2] p) { y, p = ai.onnx.ml.LinearClassifier <coefficients = [1.0, 2.0], classlabels_ints "
      "= [0, "
      "1, 2]> (x) }");
  refused(
      "g (float[N, 2] x) => (int64[N] y, float[N, 2] p) { y, p = ai.onnx.ml.LinearClassifier <coefficients = [1.0, 2.0], intercepts = "
      "[0.5], "
      "classlabels_ints = [0, 1], post_transform = \"SOFTMAX\"> (x) }");
  refused(
      "g (float[N, 2] x) => (string[N] y, float[N, 2] p) { y, p = ai.onnx.ml.LinearClassifier <coefficients = [1.0, 2.0, 3.0, 4.0], "
      "classlabels_strings = [\"a\", \"b\"]> (x) }");
}

}  // namespace
}  // namespace gradloom
