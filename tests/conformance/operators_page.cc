#include "tests/conformance/operators_page.h"

#include <set>

#include "compiler/onnx/operator_support.h"
#include "compiler/onnx/own_bodies.h"
#include "compiler/ops/op.h"
#include "kernels/catalog/kernel.h"
#include "kernels/reference/reference.h"
#include "onnx/defs/schema.h"

namespace gradloom {
namespace {

struct Operator {
  std::string domain, name;
  const onnx::OpSchema* schema = nullptr;
  std::string key() const { return domain.empty() ? name : domain + "." + name; }
};

// Every operator that ONNX still has.
std::map<std::string, Operator> AllOperators() {
  std::map<std::string, Operator> all;
  for (const onnx::OpSchema& schema : onnx::OpSchemaRegistry::get_all_schemas()) {
    const onnx::OpSchema* newest = onnx::OpSchemaRegistry::Schema(schema.Name(), schema.domain());
    if (newest == nullptr || newest->deprecated()) continue;
    const Operator op{schema.domain(), schema.Name(), newest};
    all.emplace(op.key(), op);
  }
  return all;
}

bool HasBody(const Operator& op) {
  return op.schema->HasFunction() || op.schema->HasContextDependentFunction() || MayHaveOwnBody(op.domain, op.name);
}

std::string Forward(const Operator& op) {
  if (FindOp(op.domain, op.name) != nullptr && FindReference(op.domain, op.name) != nullptr) return "kernel";
  onnx::NodeProto node;
  node.set_domain(op.domain);
  node.set_op_type(op.name);
  if (HasBody(op)) return "written out";
  return SupportOf(node) == Support::kFull ? "at import" : "no";
}

std::string Gradient(const Operator& op, const std::string& forward) {
  if (forward == "no") return "no";
  const Op* row = FindOp(op.domain, op.name);
  if (row == nullptr || forward == "written out") return "by its parts";
  return row->gradient != nullptr ? "yes" : row->has(kNoGradient) ? "zero" : "no";
}

// The kernels of a device: "fast" where one is not the plain loop.
std::string Kernels(const Operator& op, const std::string& forward, DeviceKind device) {
  if (forward != "kernel") return forward == "no" ? "no" : "by its parts";
  bool plain = false, fast = false;
  for (const KernelRow* row : KernelRows(device)) {
    if (row->op != op.name || row->domain != op.domain) continue;
    (row->name.starts_with("reference.") ? plain : fast) = true;
  }
  return fast ? "fast" : plain ? "plain" : "no";
}

void Count(const std::map<std::string, NodeOutcome>& results, int& passed, std::set<DType>& dtypes) {
  for (const auto& [name, outcome] : results) {
    if (outcome.verdict != NodeVerdict::kPassed) continue;
    ++passed;
    dtypes.insert(outcome.dtypes.begin(), outcome.dtypes.end());
  }
}

constexpr char kHead[] =
    "# Operators\n"
    "\n"
    "What Gradloom makes of each operator of ONNX (opset @VERSION@), and which of ONNX's backend node tests pass on the CPU. This page is "
    "generated; a test compares it:\n"
    "\n"
    "```sh\n"
    "bazel run //tests/conformance:onnx_node_tests -- --page > docs/operators.md\n"
    "```\n"
    "\n"
    "- **forward**: a *kernel* of ours; *written out* as ONNX's function body says, where there is no kernel; resolved *at import*, "
    "where what it depends on is known then (If and Loop also run as branches and loops of the plan, Unique and NonMaxSuppression also "
    "with room for the most there can be); or none.\n"
    "- **gradient**: *zero* where an operator is piecewise constant or gives integers; *by its parts* where none of it is left in the "
    "graph that is differentiated.\n"
    "- **CPU**, **CUDA**: *plain* is a loop that serves every type and layout; *fast* has a kernel for the common ones.\n"
    "- **types**: of the operands in the tests that pass, which is not all that work.\n"
    "- **tests**: passed of all, those with the operator written out as its function body included.\n"
    "\n"
    "Extents are fixed when a model is compiled. Operators whose extents depend on the data of a step (NonZero, Unique, "
    "NonMaxSuppression, Compress) have room for the most there can be, and what follows them is computed of what counts alone "
    "([architecture.md](architecture.md)); an operator that is not taken over such an axis says so at compile time.\n"
    "\n";

}  // namespace

std::string OperatorsPage(const NodeResults& results, const std::map<std::string, std::string>& reasons) {
  std::string page = kHead;
  page.replace(page.find("@VERSION@"), 9, std::to_string(onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map().at("").second));
  page += "| operator | forward | gradient | CPU | CUDA | types | tests |\n|---|---|---|---|---|---|---|\n";
  std::map<NodeVerdict, int> totals;
  int known = 0;
  for (const auto& [key, op] : AllOperators()) {
    const std::string forward = Forward(op);
    page += "| " + key + " | " + forward + " | " + Gradient(op, forward) + " | " + Kernels(op, forward, DeviceKind::kCpu) + " | " +
            Kernels(op, forward, DeviceKind::kCuda) + " | ";
    const auto found = results.find(key);
    int passed = 0;
    std::set<DType> dtypes;
    if (found != results.end()) Count(found->second, passed, dtypes);
    std::string list;
    for (DType dtype : dtypes) list += (list.empty() ? "" : ", ") + std::string(DTypeName(dtype));
    page +=
        list + " | " + (found == results.end() ? "none" : std::to_string(passed) + " of " + std::to_string(found->second.size())) + " |\n";
  }
  std::string pending;
  for (const auto& [op, tests] : results) {
    for (const auto& [name, outcome] : tests) {
      ++totals[outcome.verdict];
      if (outcome.verdict == NodeVerdict::kPassed) {
        known += outcome.known ? 1 : 0;
        continue;
      }
      const auto reason = reasons.find(name);
      pending += "| " + op + " | " + name + " | " + (reason == reasons.end() ? outcome.reason : reason->second) + " |\n";
    }
  }
  const int passed = totals[NodeVerdict::kPassed], others = totals[NodeVerdict::kFailed] + totals[NodeVerdict::kSkipped];
  page += "\n## Tests that do not pass\n\n" + std::to_string(passed) + " of " + std::to_string(passed + others) + " pass. In " +
          std::to_string(known) + " of these all inputs are given as known, and the compiler computes the outputs.\n\n";
  page += "| operator | test | why not |\n|---|---|---|\n" + pending;
  return page;
}

}  // namespace gradloom
