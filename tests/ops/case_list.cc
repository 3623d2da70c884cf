#include "tests/ops/case_list.h"

namespace gradloom {
namespace {

using Cases = std::vector<OpCase> (*)();

// One family per line.
// clang-format off
constexpr Cases kFamilies[] = {
    UnaryCases,
    ActivationCases,
    BinaryCases,
    MatMulCases,
    ReduceCases,
    ShapeCases,
    IndexCases,
    ConvolutionCases,
    PoolingCases,
    RecurrentCases,
    NormalizationCases,
    SoftmaxCases,
    RandomCases,
    LossCases,
    ResizeCases,
    AttentionCases,
    GridSampleCases,
    QuantizedCases,
    RegionOfInterestCases,
    SignalCases,
    TrainingCases,
};
// clang-format on

}  // namespace

const std::vector<OpCase>& AllOpCases() {
  static const std::vector<OpCase> all = [] {
    std::vector<OpCase> made;
    for (Cases cases : kFamilies) {
      for (OpCase& op_case : cases()) made.push_back(std::move(op_case));
    }
    return made;
  }();
  return all;
}

}  // namespace gradloom
