// print_metrics FILE.npz BATCH AXIS IGNORE THRESHOLD TARGET METRIC...: computes metrics of the arrays "output" and "target" in batches of
// BATCH rows, and prints them as one JSON object. IGNORE is a class to ignore, or "none": the default one. TARGET is "probabilities" if the
// target has a probability for each class, or else "plain". Used by metrics_test.py.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "runtime/base/error.h"
#include "runtime/data/batches.h"
#include "runtime/data/dataset.h"
#include "runtime/data/npz.h"
#include "runtime/session/metrics.h"

namespace gradloom {
namespace {

int Run(int argc, char** argv) {
  const Dataset data(ReadNpz(argv[1]));
  const int64_t batch = std::stoll(argv[2]);
  nlohmann::json values = nlohmann::json::object();
  for (int i = 7; i < argc; ++i) {
    MetricSpec spec{.name = argv[i], .class_axis = std::stoll(argv[3]), .threshold = std::stod(argv[5])};
    spec.target_probabilities = std::string(argv[6]) == "probabilities";
    if (std::string(argv[4]) != "none") spec.ignore_index = std::stoll(argv[4]);
    const std::unique_ptr<Metric> metric = Metric::Make(spec);
    std::vector<int64_t> order(static_cast<size_t>(data.rows()));
    std::iota(order.begin(), order.end(), 0);
    Batches batches(data, order, batch);
    for (int64_t b = 0; b < batches.count(); ++b) {
      const auto feeds = batches.Get(b);
      metric->Add(feeds.at("output"), feeds.at("target"));
    }
    for (const auto& [name, value] : metric->Values()) values[name] = value;
  }
  std::printf("%s\n", values.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace gradloom

int main(int argc, char** argv) {
  try {
    return gradloom::Run(argc, argv);
  } catch (const gradloom::Error& error) {
    std::fprintf(stderr, "%s\n", error.Describe().c_str());
    return gradloom::ExitCode(error.code());
  }
}
