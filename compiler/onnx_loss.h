// An ONNX model as a loss.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "compiler/passes/loss/loss_graph.h"

namespace gradloom {

class OnnxLoss : public LossGraph {
 public:
  // `shapes`: extents of symbolic dimensions that follow neither from the model's outputs nor from the batch.
  explicit OnnxLoss(Model model, std::map<std::string, int64_t> shapes = {});

  const std::string& name() const override { return model_.path(); }
  const std::string& hash() const override { return hash_; }
  std::vector<std::string> inputs() const override { return model_.input_names(); }
  Instance For(const std::map<std::string, Input>& known, int64_t batch) const override;

 private:
  const Model model_;
  const std::map<std::string, int64_t> shapes_;
  const std::string hash_;
};

}  // namespace gradloom
