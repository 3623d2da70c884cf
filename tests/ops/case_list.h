// The tables of cases, one or two families per file.
#pragma once

#include <vector>

#include "tests/ops/op_case.h"

namespace gradloom {

std::vector<OpCase> UnaryCases();        // cases_unary.cc
std::vector<OpCase> ActivationCases();   // cases_activation.cc
std::vector<OpCase> BinaryCases();       // cases_binary.cc
std::vector<OpCase> MatMulCases();       // cases_matmul.cc
std::vector<OpCase> ReduceCases();       // cases_reduce.cc
std::vector<OpCase> ShapeCases();        // cases_shape.cc
std::vector<OpCase> IndexCases();        // cases_index.cc
std::vector<OpCase> ConvolutionCases();  // cases_convolution.cc
std::vector<OpCase> PoolingCases();
std::vector<OpCase> RecurrentCases();      // cases_recurrent.cc
std::vector<OpCase> NormalizationCases();  // cases_normalization.cc
std::vector<OpCase> SoftmaxCases();
std::vector<OpCase> RandomCases();            // includes dropout
std::vector<OpCase> LossCases();              // cases_loss.cc
std::vector<OpCase> ResizeCases();            // cases_resize.cc
std::vector<OpCase> GridSampleCases();        // cases_grid_sample.cc
std::vector<OpCase> AttentionCases();         // cases_attention.cc
std::vector<OpCase> QuantizedCases();         // cases_quantized.cc
std::vector<OpCase> RegionOfInterestCases();  // cases_regions_of_interest.cc
std::vector<OpCase> SignalCases();            // cases_signal.cc
std::vector<OpCase> TrainingCases();          // cases_training.cc: ONNX's own optimizers

}  // namespace gradloom
