#include "compiler/onnx/torch/restore_parameters.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "compiler/onnx/edited_graph.h"
#include "compiler/onnx/equal_elements.h"
#include "compiler/onnx/matrix.h"
#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/standard_domain.h"
#include "compiler/onnx/torch/module_signature.h"
#include "compiler/onnx/torch/restore_norms.h"
#include "compiler/onnx/torch/restore_splits.h"
#include "compiler/onnx/torch/separate_nodes.h"
#include "compiler/onnx/torch/torch_source.h"
#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/listing.h"

namespace gradloom {
namespace {

// Which operand of a call (TorchCall::operands) each input of a node holds; -1: none of those that matter here.
struct NodeOfCall {
  std::string_view call, node;
  std::array<int, 5> operands;
  bool is_vector = false;  // in the module; the node may read it in another shape
};

// The exporter fills in a number that the call does not have.
constexpr int kFilledIn = -2;

constexpr NodeOfCall kNodesOfCalls[] = {
    {"addcmul", "Add", {0, 0, -1, -1, -1}},
    {"addcmul", "Mul", {1, 2, -1, -1, -1}},
    {"addmm", "Gemm", {-1, 2, 0, -1, -1}},
    {"linear", "Gemm", {-1, 1, 2, -1, -1}},
    {"linear", "MatMul", {-1, 1, -1, -1, -1}},
    {"linear", "Add", {2, 2, -1, -1, -1}},
    {"conv", "Conv", {-1, 1, 2, -1, -1}},
    {"conv", "ConvTranspose", {-1, 1, 2, -1, -1}},
    {"layer_norm", "LayerNormalization", {-1, 1, 2, -1, -1}},
    {"batch_norm", "BatchNormalization", {-1, 1, 2, 3, 4}},
    {"group_norm", "GroupNormalization", {-1, 1, 2, -1, -1}},
    {"group_norm", "InstanceNormalization", {-1, kFilledIn, kFilledIn, -1, -1}},
    {"group_norm", "Mul", {1, 1, -1, -1, -1}, true},
    {"group_norm", "Add", {2, 2, -1, -1, -1}, true},
    {"instance_norm", "InstanceNormalization", {-1, 1, 2, -1, -1}},
    {"rms_norm", "RMSNormalization", {-1, 1, -1, -1, -1}},
    {"rms_norm", "Mul", {1, 1, -1, -1, -1}},
    {"prelu", "PRelu", {-1, 1, -1, -1, -1}, true},
    {"embedding", "Gather", {0, -1, -1, -1, -1}},
    {"einsum", "Einsum", {0, 1, 2, 3, 4}},
};

// Calls whose node has their arguments (TorchCall::arguments) as inputs in the same order.
constexpr std::pair<std::string_view, std::string_view> kSameOrder[] = {
    {"add", "Add"},       {"bmm", "MatMul"},  {"cat", "Concat"},  {"div", "Div"},   {"expand", "Expand"},
    {"matmul", "MatMul"}, {"maximum", "Max"}, {"minimum", "Min"}, {"mm", "MatMul"}, {"mul", "Mul"},
    {"pow", "Pow"},       {"sub", "Sub"},     {"where", "Where"},
};

const NodeOfCall* FormOf(const TorchCall& call, const onnx::NodeProto& node) {
  const std::string_view family = call.family();
  const auto form =
      std::ranges::find_if(kNodesOfCalls, [&](const NodeOfCall& of) { return of.call == family && of.node == node.op_type(); });
  return form == std::ranges::end(kNodesOfCalls) ? nullptr : &*form;
}

// What a call has for an input of one of its nodes.
struct Operand {
  bool is_known = false;  // whether this says what it is
  bool is_constant = false;
  std::string_view name = {};  // of a tensor
  bool is_vector = false;
};

Operand OperandOf(const TorchCall& call, const onnx::NodeProto& node, int input) {
  // A factor of an operand may be part of what its node reads.
  if (std::ranges::find_if(call.parameters, [](std::string_view name) { return name == "alpha" || name == "value"; }) !=
      call.parameters.end())
    return {};
  const auto at = static_cast<size_t>(input);
  if (const NodeOfCall* const form = FormOf(call, node)) {
    const int operand = at < form->operands.size() ? form->operands[at] : -1;
    if (operand == kFilledIn) return {.is_known = true, .is_constant = true};
    if (operand < 0 || static_cast<size_t>(operand) >= call.operands.size()) return {};
    const std::string_view name = call.operands[static_cast<size_t>(operand)];
    return {.is_known = true, .is_constant = name.empty(), .name = name, .is_vector = form->is_vector};
  }
  const bool same = std::ranges::find(kSameOrder, std::pair(call.op, std::string_view(node.op_type()))) != std::ranges::end(kSameOrder);
  if (!same || at >= call.arguments.size()) return {};
  const std::string_view argument = call.arguments[at];
  if (IsConstantOfCode(argument)) return {.is_known = true, .is_constant = true};
  return argument.starts_with('%') ? Operand{.is_known = true, .name = argument.substr(1)} : Operand{};
}

class Restorer {
 public:
  explicit Restorer(ModelFile& file) : edited_(file), graph_(edited_.proto()), module_(graph_) {}

  std::vector<std::string> Run() {
    if (!module_.parameters.empty()) {
      FindMissing();
      ForEachGraph(graph_, [&](onnx::GraphProto& graph) {
        for (onnx::NodeProto& node : *graph.mutable_node()) {
          RestoreBias(node);
          RestoreInputs(node);
        }
      });
      Prepend(std::move(forms_), graph_);
      RemoveReplaced();
      WarnOfLost();
      WarnOfConfused();
    } else if (edited_.file().proto.producer_name() == "pytorch") {
      RestoreIdentities();
    }
    return std::move(restored_);
  }

 private:
  // A tensor is not missing if the file has it, or something that was computed from it.
  void FindMissing() {
    NameSet kept;
    for (const onnx::TensorProto& tensor : graph_.initializer()) kept.insert(tensor.name());
    for (const onnx::ValueInfoProto& info : graph_.value_info()) {
      if (edited_.Find(info.name()) == nullptr) continue;
      for (const std::string& source : SourcesOf(info)) {
        kept.insert(source);
        if (IsOfModule(source)) sources_[info.name()].insert(source);
      }
    }
    for (const auto& [argument, name] : module_.arguments) {
      if (kept.contains(name)) continue;
      missing_.insert(name);
      if (module_.parameters.contains(name)) unnamed_.insert(name);
    }
    ForEachGraph(graph_, [&](const onnx::GraphProto& graph) {
      for (const onnx::NodeProto& node : graph.node()) {
        const TorchCall call(TorchSource(node));
        for (const std::string_view operand : call.operands) {
          if (const std::string* const name = TensorOf(operand)) unnamed_.erase(*name);
        }
      }
    });
  }

  // The tensor of the module that has this name in torch.export's graph.
  const std::string* TensorOf(std::string_view operand) const {
    const auto found = module_.arguments.find(operand);
    return found == module_.arguments.end() ? nullptr : &found->second;
  }

  // The same of what a node reads. A normalization that is called again reads the statistics that its call before returned.
  const std::string* TensorRead(const onnx::NodeProto& node, int input, std::string_view operand) {
    const std::string* const name = TensorOf(operand);
    const std::optional<std::string_view> module = ModuleOf(node);
    if (node.op_type() != "BatchNormalization" || input < 3 || !module) return name;
    const auto [at, fresh] = statistics_.try_emplace({std::string(*module), input}, name);
    if (name != nullptr && at->second != name) at->second = nullptr;  // the module's code has several
    if (name != nullptr || fresh) return name;
    return CallName(operand).base == "getitem" && !edited_.IsTaken(std::string(operand)) ? at->second : nullptr;
  }

  bool IsOfModule(const std::string& name) const { return module_.parameters.contains(name) || module_.others.contains(name); }

  void RestoreInputs(onnx::NodeProto& node) {
    const std::string_view source = TorchSource(node);
    if (source.empty() || !IsStandard(node, node.op_type())) return;
    const TorchCall call(source);
    for (int i = 0; i < node.input_size(); ++i) {
      const std::string merged = node.input(i);
      const onnx::TensorProto* const tensor = edited_.Find(merged);
      if (tensor == nullptr) continue;
      const Operand operand = OperandOf(call, node, i);
      if (operand.is_constant) {
        RestoreConstant(node, i);
      } else if (const std::string* const name = operand.is_known ? TensorRead(node, i, operand.name) : OnlyMissing(call, node, merged)) {
        RestoreInput(node, call, i, *name, operand.is_vector);
      } else if (operand.is_known) {
        RestoreForm(node, i, operand.name);
        if (node.input(i) == merged) NoteReplaced(merged, operand.name);
      }
      if (node.input(i) != merged) replaced_.insert(merged);
    }
  }

  void RestoreInput(onnx::NodeProto& node, const TorchCall& call, int i, const std::string& name, bool is_vector) {
    const std::string merged = node.input(i);
    if (merged == name) return;
    const int rank = DataOf(merged).shape().rank();
    if (IsTransposed(node, call, i) && rank == 2) {
      if (HasInForm(name, merged, /*transposed=*/true)) node.set_input(i, TransposeOf(name));
    } else if (is_vector && rank > 1 && !IsOfModule(merged)) {
      if (HasInForm(name, merged, /*transposed=*/false)) node.set_input(i, ReshapeOf(name, DataOf(merged).shape()));
    } else if (missing_.contains(name)) {
      GiveOwn(node, i, name);
    }
  }

  // Gives the node its own initializer for a tensor of the module, or for a form of it.
  void GiveOwn(onnx::NodeProto& node, int i, const std::string& name) {
    const std::string merged = node.input(i), own = IsOfModule(merged) ? name : name + "/" + merged;
    if (!made_.contains(own)) {
      if (!edited_.Take(own)) return;
      Add(own, DataOf(merged), own == name ? "" : name);
    }
    given_.insert(name);
    node.set_input(i, own);
  }

  // The tensor of the module that the node reads in place of another one, if the call has just one that is missing. For nodes of which no
  // table says what they read.
  const std::string* OnlyMissing(const TorchCall& call, const onnx::NodeProto& node, const std::string& merged) const {
    if (!module_.parameters.contains(merged) || FormOf(call, node) != nullptr) return nullptr;
    const std::string* only = nullptr;
    for (const std::string_view operand : call.operands) {
      const std::string* const name = TensorOf(operand);
      // What is no value of the file may be a form of the tensor that the node reads.
      if (name == nullptr && !operand.empty() && !edited_.IsTaken(std::string(operand))) return nullptr;
      if (name == nullptr) continue;
      if (*name == merged || (only != nullptr && *only != *name)) return nullptr;
      only = name;
    }
    return only != nullptr && missing_.contains(*only) ? only : nullptr;
  }

  // What the exporter made of a number, None or torch.ones may be merged with a tensor of the module.
  void RestoreConstant(onnx::NodeProto& node, int i) {
    const std::string merged = node.input(i);
    if (!IsFloating(DataOf(merged).dtype()) || (!IsOfModule(merged) && !sources_.contains(merged))) return;
    const auto [at, fresh] = values_.try_emplace(merged + "/constant");
    if (fresh) {
      at->second = edited_.TakeSimilar(at->first);
      Add(at->second, DataOf(merged), at->second);
    }
    node.set_input(i, at->second);
  }

  // The node reads a form of a tensor of its own module, such as a view, which was merged with that of another module. The name that the
  // form has in torch.export's graph does not say of which tensor; but if the file has nothing else of just one of its module, it is that.
  void RestoreForm(onnx::NodeProto& node, int i, std::string_view form) {
    const std::string& merged = node.input(i);
    const std::optional<std::string_view> module = ModuleOf(node);
    const auto sources = sources_.find(merged);
    if (merged == form || edited_.IsTaken(std::string(form)) || !module || sources == sources_.end()) return;
    const auto is_own = [&](const std::string& name) { return name.substr(0, name.rfind('.') + 1) == Prefix(*module); };
    if (std::ranges::any_of(sources->second, is_own)) return;
    const std::string* only = nullptr;
    for (const std::string& name : unnamed_) {
      if (!is_own(name)) continue;
      if (only != nullptr) return;
      only = &name;
    }
    if (only != nullptr) GiveOwn(node, i, *only);
  }

  // The node reads a parameter in place of a value of that name, which the exporter has computed (1 - alpha) and merged with it. An
  // operator that only moves elements may have been left out, as of w.clone().
  void NoteReplaced(const std::string& parameter, std::string_view name) {
    if (!module_.parameters.contains(parameter) || MovesElements(name) || edited_.IsTaken(std::string(name))) return;
    confused_.try_emplace(parameter, name);
  }

  void WarnOfConfused() {
    if (confused_.empty()) return;
    Listing names(4);
    for (const auto& [parameter, name] : confused_) names.Add("'" + Escaped(parameter, 80) + "' in place of '" + Escaped(name, 80) + "'");
    edited_.file().warnings.push_back("nodes read " + names.text() + ": a value that the exporter has computed and merged with a " +
                                      "parameter that equals it, so it trains as that parameter unless the module's code multiplies by 1 " +
                                      "or adds 0 there; torch.onnx.export(..., optimize=False) keeps it");
  }

  // Of the names of the module's tensors.
  static std::string Prefix(std::string_view module) { return module.empty() ? "" : std::string(module) + "."; }

  // Whether the input is the transpose of a linear layer's weight, [out, in].
  static bool IsTransposed(const onnx::NodeProto& node, const TorchCall& call, int input) {
    if (call.op != "linear" || input != 1) return false;
    return node.op_type() == "MatMul" || (node.op_type() == "Gemm" && IntOf(node, "transB", 0) == 0);
  }

  // Whether the file has the tensor of the module of which `form` is the transpose, or the elements in another shape; adds it if there is
  // none.
  bool HasInForm(const std::string& name, const std::string& form, bool transposed) {
    const Tensor data = DataOf(form);
    if (edited_.Find(name) == nullptr) {
      if (!edited_.Take(name)) return false;
      Add(name, transposed ? Transposed(data) : data.Reshaped(Shape{data.elements()}), "");
      return true;
    }
    const Tensor& found = DataOf(name);
    if (found.dtype() != data.dtype() || found.elements() != data.elements()) return false;
    if (transposed) return found.shape().rank() == 2 && Matrix(found).IsTransposeOf(Matrix(data));
    return found.shape().rank() == 1 && std::memcmp(found.data(), data.data(), static_cast<size_t>(data.bytes())) == 0;
  }

  // The values that these nodes compute, which are added once.
  std::string TransposeOf(const std::string& name) {
    const auto [at, fresh] = values_.try_emplace(name + "/transposed");
    if (!fresh) return at->second;
    at->second = edited_.TakeSimilar(at->first);
    forms_.push_back(TransposeNode(at->second, name, at->second));
    return at->second;
  }
  std::string ReshapeOf(const std::string& name, const Shape& shape) {
    const auto [at, fresh] = values_.try_emplace(name + "/reshaped" + shape.ToString());
    if (!fresh) return at->second;
    at->second = edited_.TakeSimilar(name + "/reshaped");
    const std::string extents = edited_.TakeSimilar(name + "/shape");
    edited_.AddInitializer(extents, Tensor::From(shape.dims(), Shape{shape.rank()}));
    onnx::NodeProto& node = forms_.emplace_back();
    node.set_op_type("Reshape");
    node.set_name(at->second);
    node.add_input(name);
    node.add_input(extents);
    node.add_output(at->second);
    return at->second;
  }

  // Drops the initializers in other forms that nothing reads any more.
  void RemoveReplaced() {
    const std::map<std::string, int> readers = CountReaders(graph_);
    std::erase_if(replaced_, [&](const std::string& name) { return readers.contains(name); });
    for (const onnx::ValueInfoProto& input : graph_.input()) replaced_.erase(input.name());
    const auto keep = [](auto& list, const std::function<bool(int)>& is_kept) {
      int kept = 0;
      for (int i = 0; i < list.size(); ++i) {
        if (is_kept(i)) list.SwapElements(kept++, i);
      }
      list.DeleteSubrange(kept, list.size() - kept);
    };
    auto& tensors = *graph_.mutable_initializer();
    keep(tensors, [&](int i) {
      if (!replaced_.contains(tensors[i].name())) return true;
      edited_.file().tensors.erase(&tensors[i]);
      return false;
    });
    auto& infos = *graph_.mutable_value_info();
    keep(infos, [&](int i) { return !replaced_.contains(infos[i].name()); });
  }

  // A bias that was left out has one element for each feature of the weight. The file has it if another call of the layer reads it.
  void RestoreBias(onnx::NodeProto& node) {
    const bool is_convolution = node.op_type() == "Conv" || node.op_type() == "ConvTranspose";
    if ((!is_convolution && node.op_type() != "Gemm") || !IsStandard(node, node.op_type())) return;
    if (node.input_size() < 2 || (node.input_size() > 2 && !node.input(2).empty())) return;
    const TorchCall call(TorchSource(node));
    const Operand operand = OperandOf(call, node, 2);
    const std::string* const name = operand.is_known ? TensorOf(operand.name) : nullptr;
    if (name == nullptr || edited_.Find(node.input(1)) == nullptr) return;
    const Tensor weight = DataOf(node.input(1));
    const std::optional<int64_t> features = FeaturesOf(node, weight.shape());
    if (!features) return;
    Tensor zeros(weight.dtype(), {*features});
    if (edited_.Find(*name) == nullptr) {
      if (!missing_.contains(*name) || !edited_.Take(*name)) return;
      Add(*name, zeros, "");
    } else if (!SameTensor(DataOf(*name), zeros)) {
      return;
    }
    given_.insert(*name);
    if (node.input_size() == 2) node.add_input();
    node.set_input(2, *name);
  }

  // A normalization that was folded into a layer is reported by its layer.
  void WarnOfLost() {
    NameSet lost = missing_;
    std::erase_if(lost, [&](const std::string& name) {
      return !module_.parameters.contains(name) || given_.contains(name) || edited_.Find(name) != nullptr;
    });
    for (const onnx::NodeProto& node : graph_.node()) {
      const TorchCall call(TorchSource(node));
      if (call.family() != "batch_norm" || node.op_type() == "BatchNormalization") continue;
      for (const std::string_view operand : call.operands) {
        if (const std::string* const name = TensorOf(operand)) lost.erase(*name);
      }
    }
    if (lost.empty()) return;
    Listing names(4);
    for (const std::string& name : lost) names.Add(Escaped(name, 80));
    edited_.file().warnings.push_back("the file lacks " + Counted(std::ssize(lost), "parameter", "parameters") + " of the module (" +
                                      names.text() + "), which the exporter has merged with others or left out, unless the module does " +
                                      "not use " + (lost.size() == 1 ? "it" : "them") + "; torch.onnx.export(..., optimize=False) keeps " +
                                      (lost.size() == 1 ? "it" : "them"));
  }

  // The older exporter writes y = Identity(x) for a tensor y of the module that equals x. A tensor that the module has under two names is x
  // in both places. Of values that it computed from tensors, y = Identity(x) may mean either.
  void RestoreIdentities() {
    std::set<std::string, std::less<>> outputs;
    for (const onnx::ValueInfoProto& output : graph_.output()) outputs.insert(output.name());
    const auto is_copy = [&](const onnx::NodeProto& node) {
      if (!IsStandard(node, "Identity") || node.input_size() != 1 || node.output_size() != 1 || outputs.contains(node.output(0)))
        return false;
      return edited_.Find(node.input(0)) != nullptr && IsFloating(DataOf(node.input(0)).dtype());
    };
    const auto is_named = [](const std::string& name) {
      return name.find_first_of("/:") == std::string::npos && name.find_first_not_of("0123456789") != std::string::npos;
    };
    ReplaceIdentities([&](const onnx::NodeProto& node) { return is_copy(node) && is_named(node.output(0)); });
    const Readers readers(graph_);
    std::map<std::pair<std::string, std::set<std::string>>, std::string> biases;  // by the tensor that they equal, and the matrices
    ReplaceIdentities([&](onnx::NodeProto& node) {
      if (!is_copy(node) || !node.output(0).starts_with("onnx::")) return false;
      const std::string a = node.input(0), &b = node.output(0);
      const std::set<std::string> matrices = readers.MatricesOf(b);
      const bool are_new =
          HasEqualElements(DataOf(a)) && (AreOfOtherModules(readers.of(a), readers.of(b)) || AreApart(readers.MatricesOf(a), matrices));
      if (!are_new && !HaveOwnBiases(readers, a, b)) return false;
      if (matrices.empty()) return true;
      // A layer that is called twice has one bias, of which the exporter computed a part twice.
      const auto [first, fresh] = biases.try_emplace({a, matrices}, b);
      if (!fresh) node.set_input(0, first->second);
      return fresh;
    });
  }

  // By value: the nodes that read it.
  struct Readers {
    explicit Readers(const onnx::GraphProto& graph) {
      for (const onnx::NodeProto& node : graph.node()) {
        for (const std::string& input : node.input()) nodes[input].push_back(&node);
        for (const std::string& output : node.output()) producers[output] = &node;
      }
    }
    const std::vector<const onnx::NodeProto*>& of(const std::string& value) const {
      static const std::vector<const onnx::NodeProto*> none;
      const auto found = nodes.find(value);
      return found == nodes.end() ? none : found->second;
    }
    // Of the layers that add a bias.
    std::set<std::string> MatricesOf(const std::string& bias) const {
      std::set<std::string> matrices;
      for (const onnx::NodeProto* node : of(bias)) {
        if (IsStandard(*node, "Gemm") && node->input_size() == 3 && node->input(2) == bias) matrices.insert(SourceOf(node->input(1)));
        if (!IsStandard(*node, "Add")) continue;
        for (const std::string& input : node->input()) {
          const auto product = producers.find(input);
          if (product != producers.end() && IsStandard(*product->second, "MatMul") && product->second->input_size() == 2)
            matrices.insert(SourceOf(product->second->input(1)));
        }
      }
      return matrices;
    }
    // What a value is an Identity of.
    std::string SourceOf(const std::string& value) const {
      const auto found = producers.find(value);
      const bool is_copy = found != producers.end() && IsStandard(*found->second, "Identity") && found->second->input_size() == 1;
      return is_copy ? found->second->input(0) : value;
    }
    std::map<std::string, std::vector<const onnx::NodeProto*>> nodes;
    std::map<std::string, const onnx::NodeProto*> producers;
  };

  // Whether two biases belong to layers of different matrices.
  static bool AreApart(const std::set<std::string>& a, const std::set<std::string>& b) {
    return !a.empty() && !b.empty() && std::ranges::none_of(b, [&](const std::string& matrix) { return a.contains(matrix); });
  }

  // Whether the layers of these two matrices have biases that are different tensors of the module.
  bool HaveOwnBiases(const Readers& readers, const std::string& a, const std::string& b) {
    const NameSet &of_a = BiasesOf(readers, a), &of_b = BiasesOf(readers, b);
    return !of_a.empty() && !of_b.empty() && std::ranges::none_of(of_b, [&](const std::string& bias) { return of_a.contains(bias); });
  }

  // Whether the nodes belong to different modules, by their names: /gn1/Mul. A module that is called again is called /gn1_1.
  static bool AreOfOtherModules(const std::vector<const onnx::NodeProto*>& a, const std::vector<const onnx::NodeProto*>& b) {
    const auto module_of = [](const onnx::NodeProto* node) {
      return std::string_view(node->name()).substr(0, node->name().rfind('/') + 1);
    };
    if (a.empty() || b.empty()) return false;
    // The first reader of a value that was merged is not an Identity.
    const auto first = std::ranges::find_if(a, [](const onnx::NodeProto* node) { return node->op_type() != "Identity"; });
    if (first == a.end()) return false;
    const std::string_view of_a = module_of(*first), of_b = module_of(b[0]);
    if (of_a.size() < 2 || of_b.size() < 2 || of_a == of_b) return false;
    const std::string again = std::string(of_a.substr(0, of_a.size() - 1)) + "_";
    return !of_b.starts_with(again) || of_b.find_first_not_of("0123456789/", again.size()) != std::string_view::npos;
  }

  // What is added to products with a matrix.
  const NameSet& BiasesOf(const Readers& readers, const std::string& weight) {
    const auto [at, fresh] = biases_.try_emplace(weight);
    if (!fresh) return at->second;
    for (const onnx::NodeProto* product : readers.of(weight)) {
      if (!IsStandard(*product, "MatMul") || product->output_size() != 1) continue;
      for (const onnx::NodeProto* sum : readers.of(product->output(0))) {
        if (!IsStandard(*sum, "Add")) continue;
        for (const std::string& input : sum->input()) {
          if (edited_.Find(input) != nullptr) at->second.insert(input);
        }
      }
    }
    return at->second;
  }

  void ReplaceIdentities(const std::function<bool(onnx::NodeProto&)>& is_merged) {
    auto& nodes = *graph_.mutable_node();
    std::vector<int> kept;
    for (int i = 0; i < nodes.size(); ++i) {
      onnx::NodeProto& node = *nodes.Mutable(i);
      if (is_merged(node)) {
        Add(node.output(0), DataOf(node.input(0)), "");
      } else {
        kept.push_back(i);
      }
    }
    for (int i = 0; i < static_cast<int>(kept.size()); ++i) nodes.SwapElements(i, kept[static_cast<size_t>(i)]);
    nodes.DeleteSubrange(static_cast<int>(kept.size()), nodes.size() - static_cast<int>(kept.size()));
  }

  const Tensor& DataOf(const std::string& name) { return edited_.DataOf(name); }

  // `source`: the tensor of the module that this is another form of, if any.
  void Add(const std::string& name, const Tensor& data, const std::string& source) {
    edited_.AddInitializer(name, data);
    made_.insert(name);
    restored_.push_back(name);
    if (source.empty()) return;
    onnx::ValueInfoProto& info = *graph_.add_value_info();
    info.set_name(name);
    SetTensorType({data.dtype(), data.shape()}, info.mutable_type());
    onnx::StringStringEntryProto& note = *info.add_metadata_props();
    note.set_key(std::string(kFoldedFrom));
    note.set_value("['" + source + "']");
  }

  EditedGraph edited_;
  onnx::GraphProto& graph_;
  const ModuleSignature module_;
  NameSet missing_;                         // of the module's tensors
  NameSet unnamed_;                         // missing parameters that no call names
  NameSet given_;                           // those that nodes read again
  std::map<std::string, NameSet> sources_;  // by initializer: the tensors of the module that it was computed from
  NameSet made_;
  std::map<std::string, NameSet> biases_;      // by matrix
  std::map<std::string, std::string> values_;  // the results of forms_, by what they are
  std::vector<onnx::NodeProto> forms_;
  NameSet replaced_;  // initializers
  // By the module that a normalization's code is in, and the input of its node: the statistics that its first call reads.
  std::map<std::pair<std::string, int>, const std::string*> statistics_;
  std::map<std::string, std::string> confused_;  // by parameter: the first value in whose place a node reads it
  std::vector<std::string> restored_;
};

}  // namespace

std::vector<std::string> RestoreParameters(ModelFile& file) {
  // An algorithm of the file's own updates its initializers by name.
  if (file.proto.training_info_size() > 0) return {};
  std::vector<std::string> restored = RestoreNorms(file);
  for (std::string& name : RestoreSplits(file)) restored.push_back(std::move(name));
  SeparateNodes(file);
  for (std::string& name : Restorer(file).Run()) restored.push_back(std::move(name));
  return restored;
}

}  // namespace gradloom
