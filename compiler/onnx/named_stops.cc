#include "compiler/onnx/named_stops.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/name_pattern.h"
#include "runtime/base/nearest.h"

namespace gradloom {
namespace {

std::string NearIn(const std::string& name, const std::set<std::string>& known) {
  const std::string near = Nearest(name, {known.begin(), known.end()});
  return near.empty() ? "" : "did you mean '" + Escaped(near) + "'?   ";
}

std::string Listed(const std::vector<std::string>& names) {
  constexpr size_t kMost = 12;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) list += (list.empty() ? "" : ", ") + Escaped(names[i], 200);
  return names.size() > kMost ? list + " and " + std::to_string(names.size() - kMost) + " more" : list;
}

}  // namespace

NamedStops::NamedStops(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    const size_t at = text.rfind('@');
    stops_.push_back({.value = text.substr(0, at), .reader = at == std::string::npos ? "" : text.substr(at + 1), .reads = {}});
    const Stop& stop = stops_.back();
    if (!stop.value.empty() && (at == std::string::npos || !stop.reader.empty())) continue;
    throw Error(ErrorCode::kConfig, "cannot read --detach '" + Escaped(text) + "'", "",
                "--detach VALUE, or VALUE@NODE as that node reads it");
  }
}

bool NamedStops::AtValue(const std::string& value) {
  values_.insert(value);
  bool found = false;
  for (Stop& stop : stops_) {
    if (!stop.reader.empty() || !FitsPattern(stop.value, value)) continue;
    stop.used = found = true;
  }
  return found;
}

bool NamedStops::AtReader(const std::string& value, const std::vector<std::string>& reader) {
  readers_.insert(reader.begin(), reader.end());
  bool found = false;
  for (Stop& stop : stops_) {
    if (stop.reader.empty() || !PatternFitsAny(stop.reader, reader)) continue;
    stop.reads.push_back(value);
    if (!FitsPattern(stop.value, value)) continue;
    stop.used = found = true;
  }
  return found;
}

void NamedStops::SeeGraph(const onnx::GraphProto& graph) {
  if (empty()) return;
  for (const onnx::TensorProto& tensor : graph.initializer()) weights_.insert(tensor.name());
  for (const onnx::ValueInfoProto& input : graph.input()) inputs_.insert(input.name());
}

void NamedStops::SeeLeftOut(const onnx::NodeProto& node) {
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
    throw Error(ErrorCode::kConfig, "--detach: the node " + reader + " reads no value " + value, "", "it reads: " + Listed(stop.reads));
  }
  if (!stop.reader.empty()) {
    throw Error(ErrorCode::kConfig, "--detach: the model has no node " + reader + " that reads a value", "",
                NearIn(stop.reader, readers_) + "a node goes by its name, or by a value that it makes");
  }
  if (PatternFitsAny(stop.value, weights_)) {
    throw Error(ErrorCode::kConfig, "--detach: " + value + " is a weight, which nothing computes", "",
                "--freeze " + value + " if it is not to be trained; --detach '" + Escaped(stop.value) +
                    "@NODE' if the gradients of that node alone are not to reach it");
  }
  if (PatternFitsAny(stop.value, inputs_)) {
    throw Error(ErrorCode::kConfig, "--detach: " + value + " is an input, to which no gradients go");
  }
  const std::string near = NearIn(stop.value, values_);
  throw Error(ErrorCode::kConfig, "--detach: the model has no value " + value, "",
              (near.empty() ? "there are: " + Listed({values_.begin(), values_.end()}) + "   " : near) +
                  "what a node makes goes by its name or by a pattern, one --detach for each");
}

}  // namespace gradloom
