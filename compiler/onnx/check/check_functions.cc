#include "compiler/onnx/check/check_functions.h"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <vector>

#include "compiler/onnx/check/check_names.h"
#include "compiler/onnx/operator_support.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

// A call in a function's body or in the main graph.
struct CallSite {
  int callee = 0;
  int depth = 0;  // number of nested graphs that contain it
  const onnx::NodeProto* node = nullptr;
};

// The contents of a body without its calls.
struct Body {
  int64_t nodes = 0;
  int depth = 0;
  std::vector<CallSite> calls;
};

// The size of a body including everything that it calls.
struct Extent {
  int64_t nodes = 0;
  int depth = 0;
};

class CallGraph {
 public:
  CallGraph(const onnx::ModelProto& model, const std::string& where, const ModelLimits& limits)
      : model_(model), where_(where), limits_(limits), index_(model) {
    for (int i = 0; i < model.functions_size(); ++i) numbers_.emplace(&model.functions(i), i);
    for (const auto& function : model.functions()) bodies_.push_back(BodyOf(function.node()));
  }

  void Run() {
    CheckNames();
    SortByCalls();
    std::vector<Extent> extents(bodies_.size());
    for (int i : callees_first_) {
      extents[static_cast<size_t>(i)] =
          ExtentOf(bodies_[static_cast<size_t>(i)], extents, "function '" + Escaped(FunctionName(model_.functions(i))) + "'");
    }
    ExtentOf(BodyOf(model_.graph().node()), extents, "");
  }

 private:
  // The index would keep only one of two functions with the same name.
  void CheckNames() const {
    for (const auto& function : model_.functions()) {
      onnx::NodeProto call;
      call.set_domain(function.domain());
      call.set_op_type(function.name());
      call.set_overload(function.overload());
      if (index_.Find(call) == &function) continue;
      throw Error(ErrorCode::kGraph, "the model defines the function '" + Escaped(FunctionName(function)) + "' twice", where_);
    }
  }

  Body BodyOf(const Nodes& nodes) const {
    Body body;
    Collect(nodes, 0, body);
    return body;
  }

  // The nesting of graphs is bounded before a model is parsed.
  void Collect(const Nodes& nodes, int depth, Body& body) const {
    body.depth = std::max(body.depth, depth);
    for (const auto& node : nodes) {
      // Calls count as nodes, since functions without nodes can call each other just as often.
      ++body.nodes;
      if (const onnx::FunctionProto* callee = index_.Find(node)) body.calls.push_back({numbers_.at(callee), depth, &node});
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_g()) Collect(attribute.g().node(), depth + 1, body);
        for (const auto& graph : attribute.graphs()) Collect(graph.node(), depth + 1, body);
      }
    }
  }

  // Depth-first search with an explicit stack, because chains of calls can be long.
  void SortByCalls() {
    enum class State : uint8_t { kNew, kOpen, kDone };
    std::vector<State> states(bodies_.size(), State::kNew);
    std::vector<size_t> next(bodies_.size(), 0);
    for (int start = 0; start < static_cast<int>(bodies_.size()); ++start) {
      if (states[static_cast<size_t>(start)] != State::kNew) continue;
      std::vector<int> open{start};
      states[static_cast<size_t>(start)] = State::kOpen;
      while (!open.empty()) {
        const auto at = static_cast<size_t>(open.back());
        if (next[at] == bodies_[at].calls.size()) {
          states[at] = State::kDone;
          callees_first_.push_back(open.back());
          open.pop_back();
          continue;
        }
        const CallSite& call = bodies_[at].calls[next[at]++];
        State& state = states[static_cast<size_t>(call.callee)];
        if (state == State::kOpen) FailCycle(open, call);
        if (state == State::kDone) continue;
        state = State::kOpen;
        open.push_back(call.callee);
      }
    }
  }

  [[noreturn]] void FailCycle(const std::vector<int>& open, const CallSite& call) const {
    constexpr size_t kShown = 10;
    const auto name = [&](int i) { return "'" + Escaped(FunctionName(model_.functions(i))) + "'"; };
    const std::vector<int> circle(std::find(open.begin(), open.end(), call.callee), open.end());
    std::string message = "function " + name(circle[0]) + " calls itself";
    for (size_t i = 1; i < std::min(circle.size(), kShown); ++i) message += (i == 1 ? " through " : ", ") + name(circle[i]);
    throw Error(ErrorCode::kGraph, message, where_ + "  " + Describe(*call.node),
                "functions are inlined where they are called, so they must not be recursive");
  }

  Extent ExtentOf(const Body& body, const std::vector<Extent>& extents, const std::string& place) const {
    Extent extent{body.nodes, body.depth};
    for (const CallSite& call : body.calls) {
      const Extent& callee = extents[static_cast<size_t>(call.callee)];
      // No callee exceeds the limit, so nothing overflows.
      extent.nodes += callee.nodes;
      extent.depth = std::max(extent.depth, call.depth + 1 + callee.depth);
      const auto fail = [&](const std::string& message) {
        const std::string function = "'" + Escaped(FunctionName(model_.functions(call.callee))) + "'";
        throw Error(ErrorCode::kLimit, message,
                    where_ + "  " + (place.empty() ? "" : place + ", ") + Describe(*call.node) + ", a call of " + function);
      };
      if (extent.nodes > limits_.nodes) {
        fail("the model has more than " + std::to_string(limits_.nodes) + " nodes after its functions are inlined");
      }
      if (extent.depth > limits_.nesting) {
        fail("function calls and nested graphs are nested deeper than " + std::to_string(limits_.nesting));
      }
    }
    return extent;
  }

  const onnx::ModelProto& model_;
  const std::string& where_;
  const ModelLimits& limits_;
  const FunctionIndex index_;
  std::unordered_map<const onnx::FunctionProto*, int> numbers_;
  std::vector<Body> bodies_;
  std::vector<int> callees_first_;
};

}  // namespace

void CheckFunctions(const onnx::ModelProto& model, const std::string& where, const ModelLimits& limits) {
  CallGraph(model, where, limits).Run();
}

}  // namespace gradloom
