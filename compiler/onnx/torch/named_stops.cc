#include "compiler/onnx/torch/named_stops.h"

#include "runtime/base/error.h"
#include "runtime/base/listing.h"
#include "runtime/base/name_pattern.h"
#include "runtime/base/nearest.h"
#include "runtime/base/suggestion.h"

namespace gradloom {
namespace {

std::string Listed(const std::vector<std::string>& names) {
  Listing list(12);
  for (const std::string& name : names) list.Add(Escaped(name));
  return list.text();
}

}  // namespace

NamedStops::NamedStops(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    const size_t at = text.rfind('@');
    stops_.push_back({.value = text.substr(0, at), .reader = at == std::string::npos ? "" : text.substr(at + 1), .reads = {}});
    const Stop& stop = stops_.back();
    if (!stop.value.empty() && (at == std::string::npos || !stop.reader.empty())) continue;
    throw Error(ErrorCode::kConfig, "cannot read --detach '" + Escaped(text) + "'", "",
                "use --detach VALUE, or --detach VALUE@NODE for the use of the value by that node");
  }
}

bool NamedStops::AtValue(const std::string& value) {
  values_.insert(value);
  bool found = false;
  for (Stop& stop : stops_) {
    if (!stop.reader.empty() || !MatchesPattern(stop.value, value)) continue;
    stop.used = found = true;
  }
  return found;
}

bool NamedStops::AtReader(const std::string& value, const std::vector<std::string>& reader) {
  readers_.insert(reader.begin(), reader.end());
  bool found = false;
  for (Stop& stop : stops_) {
    if (stop.reader.empty() || !PatternMatchesAny(stop.reader, reader)) continue;
    stop.reads.push_back(value);
    if (!MatchesPattern(stop.value, value)) continue;
    stop.used = found = true;
  }
  return found;
}

void NamedStops::RecordGraph(const onnx::GraphProto& graph) {
  if (empty()) return;
  for (const onnx::TensorProto& tensor : graph.initializer()) weights_.insert(tensor.name());
  for (const onnx::ValueInfoProto& input : graph.input()) inputs_.insert(input.name());
}

void NamedStops::RecordSkipped(const onnx::NodeProto& node) {
  if (empty()) return;
  std::vector<std::string> names(node.output().begin(), node.output().end());
  for (const std::string& output : node.output()) AtValue(output);
  names.push_back(node.name());
  for (const std::string& input : node.input()) AtReader(input, names);
}

void NamedStops::Check() const {
  for (const Stop& stop : stops_) {
    if (!stop.used) Refuse(stop);
  }
}

void NamedStops::Refuse(const Stop& stop) const {
  const std::string value = "'" + Escaped(stop.value) + "'", reader = "'" + Escaped(stop.reader) + "'";
  if (!stop.reads.empty()) {
    throw Error(ErrorCode::kConfig, "--detach: node " + reader + " does not read value " + value, "", "it reads: " + Listed(stop.reads));
  }
  if (!stop.reader.empty()) {
    throw Error(
        ErrorCode::kConfig, "--detach: the model has no node " + reader + " with inputs", "",
        Suggestion(stop.reader, {readers_.begin(), readers_.end()}, "give a node by its name, or by the name of one of its outputs"));
  }
  if (PatternMatchesAny(stop.value, weights_)) {
    throw Error(ErrorCode::kConfig, "--detach: " + value + " is a weight, not a computed value", "",
                "use --freeze " + value + " not to train it, or --detach '" + Escaped(stop.value) +
                    "@NODE' to stop only the gradients from that node");
  }
  if (PatternMatchesAny(stop.value, inputs_)) {
    throw Error(ErrorCode::kConfig, "--detach: " + value + " is an input, which gets no gradient");
  }
  const std::vector<std::string> values(values_.begin(), values_.end());
  const std::string near = Nearest(stop.value, values), how = "give the name of a node's output or a pattern, one --detach for each";
  throw Error(ErrorCode::kConfig, "--detach: the model has no value " + value, "",
              near.empty() ? "the values are: " + Listed(values) + "   " + how : DidYouMean(near, how));
}

}  // namespace gradloom
