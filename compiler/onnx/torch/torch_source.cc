#include "compiler/onnx/torch/torch_source.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <system_error>
#include <utility>

#include "compiler/onnx/proto_convert.h"

namespace gradloom {
namespace {

std::string_view NoteOf(const onnx::NodeProto& node, std::string_view key) {
  for (const auto& note : node.metadata_props()) {
    if (note.key() == key) return note.value();
  }
  return {};
}

// Without the brackets of lists, and the comma of a list of one element.
std::string_view Stripped(std::string_view text) {
  constexpr std::string_view kBrackets = "[]{}(), ";
  const size_t first = std::min(text.find_first_not_of(kBrackets), text.size());
  return text.substr(first, text.find_last_not_of(kBrackets) + 1 - first);
}

// The elements of a list, those of lists in it too. An equation (bi,ij->bj) is one.
std::vector<std::string_view> Pieces(std::string_view list) {
  constexpr std::string_view kBetween = ", ";
  std::vector<std::string_view> pieces;
  while (!list.empty()) {
    const size_t end = std::min(list.find(kBetween), list.size());
    if (const std::string_view piece = Stripped(list.substr(0, end)); !piece.empty()) pieces.push_back(piece);
    list.remove_prefix(std::min(end + kBetween.size(), list.size()));
  }
  return pieces;
}

void AddOperand(std::string_view argument, std::vector<std::string_view>& operands) {
  if (argument.starts_with('%')) operands.push_back(argument.substr(1));
  if (argument == "None") operands.emplace_back();
}

bool IsNumber(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string_view TorchSource(const onnx::NodeProto& node) { return NoteOf(node, kTorchSource); }

CallName::CallName(std::string_view name) : base(name) {
  const size_t last = name.find_last_not_of("0123456789");
  if (last == std::string_view::npos || last + 1 == name.size() || name[last] != '_') return;
  if (std::from_chars(name.data() + last + 1, name.data() + name.size(), number).ec == std::errc()) base = name.substr(0, last);
}

std::vector<std::string_view> NamesOfCall(std::string_view line) {
  std::vector<std::string_view> names;
  for (size_t at = line.find('%'); at != std::string_view::npos;) {
    const size_t begin = at + 1;
    for (at = begin; at < line.size() && (std::isalnum(static_cast<unsigned char>(line[at])) != 0 || line[at] == '_');) ++at;
    if (at > begin) names.push_back(line.substr(begin, at - begin));
    at = line.find('%', at);
  }
  return names;
}

// File "net.py", line 7, in forward
//     return self.fc(x)
std::vector<CodeFrame> FramesOf(const onnx::NodeProto& node) {
  constexpr std::string_view kFile = "File \"", kLine = "\", line ", kFunction = ", in ";
  std::string_view trace = NoteOf(node, "pkg.torch.onnx.stack_trace");
  std::vector<CodeFrame> frames;
  bool is_code = false;  // the line after that of a place
  while (!trace.empty()) {
    const size_t end = std::min(trace.find('\n'), trace.size());
    std::string_view text = trace.substr(0, end);
    trace.remove_prefix(std::min(end + 1, trace.size()));
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (std::exchange(is_code, false)) frames.back().text = text;
    const size_t line = text.find(kLine), number = line + kLine.size();
    const size_t function = line == std::string_view::npos ? line : text.find(kFunction, number);
    if (!text.starts_with(kFile) || function == std::string_view::npos) continue;
    frames.push_back({text.substr(kFile.size(), line - kFile.size()),
                      text.substr(number, function - number),
                      text.substr(function + kFunction.size()),
                      {}});
    is_code = true;
  }
  return frames;
}

std::optional<CodeFrame> FunctionFrame(const onnx::NodeProto& node) {
  // ['net.Net', 'net.Layer', 'aten.relu.default']
  const std::string_view classes = NoteOf(node, "pkg.torch.onnx.class_hierarchy");
  if (classes.empty()) return std::nullopt;
  int64_t modules = 0;
  for (size_t at = classes.find("', '"); at != std::string_view::npos; at = classes.find("', '", at + 1)) ++modules;
  std::optional<CodeFrame> innermost;
  for (const CodeFrame& frame : FramesOf(node)) {
    // Those of PyTorch's exporter and of its checkpoints call the module's.
    const bool of_torch =
        frame.file.find("/torch/_dynamo/") != std::string_view::npos || frame.file.ends_with("/torch/utils/checkpoint.py");
    if (frame.function != "forward" || of_torch) continue;
    --modules;
    // The next one is that of the same module, or of a class that it inherits from.
    if (frame.text.find(".forward(") != std::string_view::npos) ++modules;
    innermost = frame;
  }
  return modules < 0 ? innermost : std::nullopt;
}

// The second to last one of ['', 'blocks', 'blocks.0', 'mul_1'], where the last one is the call.
std::optional<std::string_view> ModuleOf(const onnx::NodeProto& node) {
  const std::string_view scopes = NoteOf(node, kTorchScopes);
  const size_t call = scopes.rfind("', '");
  if (call == std::string_view::npos) return std::nullopt;
  const size_t begin = scopes.rfind('\'', call - 1);
  return begin == std::string_view::npos || call == 0 ? std::nullopt : std::optional(scopes.substr(begin + 1, call - begin - 1));
}

bool MovesElements(std::string_view name) {
  static const std::set<std::string_view> forms = {
      "alias", "cat",     "chunk",  "clone",   "contiguous", "detach",  "expand",    "expand_as", "flatten", "flip",      "getitem",
      "index", "movedim", "narrow", "permute", "repeat",     "reshape", "roll",      "select",    "slice",   "split",     "squeeze",
      "stack", "t",       "tile",   "to",      "_to_copy",   "unbind",  "unflatten", "unfold",    "view",    "transpose", "unsqueeze"};
  return forms.contains(CallName(name).base);
}

bool IsConstantOfCode(std::string_view argument) {
  if (argument == "None" || IsNumber(argument)) return true;
  if (!argument.starts_with('%')) return false;
  std::string_view name = argument.substr(1);
  // The second call is zeros_1.
  const size_t last = name.find_last_not_of("0123456789");
  if (last != std::string_view::npos && last + 1 < name.size() && name[last] == '_') name = name.substr(0, last);
  constexpr std::string_view kMakers[] = {"arange",    "eye",  "full",      "full_like", "new_full",  "new_ones",
                                          "new_zeros", "ones", "ones_like", "zeros",     "zeros_like"};
  return std::ranges::find(kMakers, name) != std::ranges::end(kMakers);
}

std::optional<int64_t> PaddingRow(const onnx::NodeProto& node) {
  const std::string_view source = TorchSource(node);
  if (source.find("aten.embedding.") == std::string_view::npos || IntOf(node, "axis", 0) != 0) return std::nullopt;
  const TorchCall call(source);
  if (call.op != "embedding" || call.arguments.size() < 3) return std::nullopt;
  const std::string_view text = call.arguments[2];
  int64_t row = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), row);
  return error == std::errc() && end == text.data() + text.size() && row >= 0 ? std::optional(row) : std::nullopt;
}

std::set<std::string_view> ValueNames(const onnx::GraphProto& graph) {
  std::set<std::string_view> names;
  for (const auto& tensor : graph.initializer()) names.insert(tensor.name());
  for (const auto& node : graph.node()) names.insert(node.output().begin(), node.output().end());
  for (const auto* infos : {&graph.input(), &graph.output()}) {
    for (const onnx::ValueInfoProto& info : *infos) {
      names.insert(info.name());
      for (const auto& note : info.metadata_props()) {
        if (note.key() == "pkg.torch.onnx.original_node_name") names.insert(note.value());
      }
    }
  }
  return names;
}

TorchCall::TorchCall(std::string_view source) {
  constexpr std::string_view kTarget = "target=torch.ops.aten.", kArguments = "(args = (", kKeywords = "), kwargs = {";
  const size_t target = source.find(kTarget), list = source.find(kArguments), first = list + kArguments.size();
  if (target == std::string_view::npos || list == std::string_view::npos || list < target) return;
  const size_t end = source.find(kKeywords, first);
  if (end == std::string_view::npos) return;
  const size_t begin = target + kTarget.size();
  op = source.substr(begin, source.find_first_of(".]", begin) - begin);
  for (const std::string_view piece : Pieces(source.substr(first, end - first))) {
    arguments.push_back(piece);
    AddOperand(piece, operands);
  }
  for (const std::string_view piece : Pieces(source.substr(end + kKeywords.size()))) {
    const size_t colon = piece.find(": ");
    if (colon == std::string_view::npos) continue;
    parameters.push_back(piece.substr(0, colon));
    AddOperand(Stripped(piece.substr(colon + 2)), operands);
  }
}

std::vector<std::string_view> TorchCall::RemovedOperands(const std::set<std::string_view>& names) const {
  std::vector<std::string_view> removed;
  for (const std::string_view name : operands) {
    const bool placeholder = name.starts_with("p_") || name.starts_with("b_") || name.starts_with("c_");
    if (!name.empty() && !placeholder && !names.contains(name)) removed.push_back(name);
  }
  return removed;
}

std::string_view TorchCall::family() const {
  if (op.starts_with("conv")) return "conv";
  for (const std::string_view norm : {"layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm"}) {
    if (op.find(norm) != std::string_view::npos) return norm;
  }
  return op;
}

}  // namespace gradloom
