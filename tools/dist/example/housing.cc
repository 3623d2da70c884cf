// Trains housing_mlp.onnx on boston.csv and writes trained.onnx. Usage: housing FOLDER, the folder of the two files.
#include <gradloom/gradloom.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) try {
  const std::string folder = argc > 1 ? std::string(argv[1]) + "/" : "";
  const gradloom::Model model(folder + "housing_mlp.onnx");
  const gradloom::Plan plan =
      gradloom::Compile(model, {.loss = gradloom::Loss::Mse("value", "target"), .optimizer = gradloom::Adam{.lr = 0.01}});
  const gradloom::Dataset data(
      folder + "boston.csv", plan,
      {.columns = {{"features", "CRIM..LSTAT"}, {"target", "MEDV"}}, .transforms = {{"features", "standardize"}}, .eval_split = "20%"});
  gradloom::Trainer trainer(plan, {.train = data, .eval = data.Eval(), .epochs = 40, .batch = 64, .metrics = {"rmse(value, target)"}});
  const auto result = trainer.Fit({.on_epoch = [](const gradloom::Epoch& epoch) {
    if (epoch.epoch % 10 == 0) std::printf("epoch %ld: %.3f\n", static_cast<long>(epoch.epoch), epoch.train_loss);
    return true;
  }});
  std::printf("best mean squared error on the 20 %% held back: %.2f\n", result.best);
  trainer.session().ExportOnnx("trained.onnx");
  return 0;
} catch (const gradloom::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
