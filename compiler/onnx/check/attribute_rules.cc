#include "compiler/onnx/check/attribute_rules.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/ascii_lower.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

struct Words {
  const char *attribute, *allowed;  // separated by spaces
};

struct Least {
  const char* attribute;
  int64_t least;
};

constexpr char kPadding[] = "NOTSET SAME_UPPER SAME_LOWER VALID";
constexpr char kActivations[] = "affine relu leakyrelu thresholdedrelu tanh scaledtanh sigmoid hardsigmoid elu softsign softplus";

const std::unordered_map<std::string_view, std::vector<Words>>& WordRules() {
  static const std::unordered_map<std::string_view, std::vector<Words>> rules = {
      {"AveragePool", {{"auto_pad", kPadding}}},
      {"BitShift", {{"direction", "LEFT RIGHT"}}},
      {"Conv", {{"auto_pad", kPadding}}},
      {"ConvInteger", {{"auto_pad", kPadding}}},
      {"ConvTranspose", {{"auto_pad", kPadding}}},
      {"DepthToSpace", {{"mode", "DCR CRD"}}},
      {"GRU", {{"activations", kActivations}}},
      {"Gelu", {{"approximate", "none tanh"}}},
      {"GridSample", {{"mode", "linear nearest cubic bilinear bicubic"}, {"padding_mode", "zeros border reflection"}}},
      {"LSTM", {{"activations", kActivations}}},
      {"LpPool", {{"auto_pad", kPadding}}},
      {"MaxPool", {{"auto_pad", kPadding}}},
      {"Pad", {{"mode", "constant reflect edge wrap"}}},
      {"QLinearConv", {{"auto_pad", kPadding}}},
      {"RNN", {{"activations", kActivations}}},
      {"Resize",
       {{"mode", "nearest linear cubic"},
        {"coordinate_transformation_mode",
         "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric tf_half_pixel_for_nn tf_crop_and_resize"},
        {"nearest_mode", "round_prefer_floor round_prefer_ceil floor ceil"},
        {"keep_aspect_ratio_policy", "stretch not_larger not_smaller"}}},
      {"RoiAlign", {{"mode", "avg max"}, {"coordinate_transformation_mode", "half_pixel output_half_pixel"}}},
      {"ScatterElements", {{"reduction", "none add mul max min"}}},
      {"ScatterND", {{"reduction", "none add mul max min"}}},
  };
  return rules;
}

const std::unordered_map<std::string_view, Least>& LeastRules() {
  static const std::unordered_map<std::string_view, Least> rules = {
      {"Cast", {"to", 1}},
      {"DepthToSpace", {"blocksize", 1}},
      {"GatherND", {"batch_dims", 0}},
      {"GlobalLpPool", {"p", 1}},
      {"GroupNormalization", {"num_groups", 1}},
      {"LRN", {"size", 1}},
      {"LpNormalization", {"p", 1}},
      {"LpPool", {"p", 1}},
      {"Multinomial", {"sample_size", 1}},
      {"SpaceToDepth", {"blocksize", 1}},
      {"TfIdfVectorizer", {"max_skip_count", 0}},
  };
  return rules;
}

// Attributes that hold axes; type inference and kernels take them as 32-bit integers.
constexpr std::string_view kAxes[] = {"axes", "axis",      "batch_axis",      "batch_dims",
                                      "perm", "time_axis", "scan_input_axes", "scan_output_axes"};

bool IsAmong(std::string_view allowed, const std::string& word) {
  if (word.empty() || word.find(' ') != std::string::npos) return false;
  const std::string padded = " " + std::string(allowed) + " ";
  return padded.find(" " + word + " ") != std::string::npos;
}

std::string WordFault(const Node& node, const Words& rule) {
  // Names of activations are not case-sensitive.
  const bool list = std::string_view(rule.attribute) == "activations";
  std::vector<std::string> given;
  if (list) {
    given = node.attributes.Strings(rule.attribute);
  } else if (node.attributes.has(rule.attribute)) {
    given = {node.attributes.String(rule.attribute, "")};
  }
  for (const std::string& word : given) {
    if (IsAmong(rule.allowed, list ? AsciiLower(word) : word)) continue;
    return "attribute '" + std::string(rule.attribute) + "' is \"" + Escaped(word, 80) + "\"; must be one of: " + rule.allowed;
  }
  return "";
}

std::string AxisFault(const Node& node) {
  for (const auto& [name, value] : node.attributes) {
    if (std::find(std::begin(kAxes), std::end(kAxes), name) == std::end(kAxes)) continue;
    const auto* one = std::get_if<int64_t>(&value);
    const auto* several = std::get_if<std::vector<int64_t>>(&value);
    const std::vector<int64_t> axes = one != nullptr ? std::vector<int64_t>{*one} : several != nullptr ? *several : std::vector<int64_t>{};
    for (const int64_t axis : axes) {
      if (axis != static_cast<int32_t>(axis))
        return "attribute '" + name + "' has the axis " + std::to_string(axis) + ", which is out of range";
    }
  }
  return "";
}

}  // namespace

std::string AttributeFault(const Node& node) {
  if (std::string fault = AxisFault(node); !fault.empty()) return fault;
  if (const auto found = WordRules().find(node.op); found != WordRules().end()) {
    for (const Words& rule : found->second) {
      if (std::string fault = WordFault(node, rule); !fault.empty()) return fault;
    }
  }
  const auto found = LeastRules().find(node.op);
  if (found == LeastRules().end() || !node.attributes.has(found->second.attribute)) return "";
  const auto& [name, least] = found->second;
  const int64_t given = node.attributes.Int(name, least);
  if (given >= least) return "";
  return "attribute '" + std::string(name) + "' must be at least " + std::to_string(least) + ", got " + std::to_string(given);
}

}  // namespace gradloom
