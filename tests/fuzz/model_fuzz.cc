// Fuzzes ONNX models in memory: reads, checks and imports them. External data are not looked for, since the bytes have no folder.
#include <google/protobuf/descriptor.h>

#include <cstring>
#include <memory>

#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/message_mutator.h"

namespace gradloom {
namespace {

// Initializer values as text; without values, ONNX's text syntax does not make it an initializer.
std::string Numbers(int count) {
  std::string text = " = {0.5";
  for (int i = 1; i < count; ++i) text += ", " + std::to_string(i % 5) + ".25";
  return text + "}";
}

std::vector<std::string> Models() {
  return {
      "g (float[N, 4] x) => (float[N, 3] y) <float[4, 3] w" + Numbers(12) + ", float[3] b" + Numbers(3) +
          "> { h = Gemm <alpha: float = 0.5> (x, w, b)  y = Softmax <axis: int = -1> (h) }",
      "g (float[N, 1, 8, 8] x) => (float[N, 2] y) <float[2, 1, 3, 3] w" + Numbers(18) + ", float[2] s" + Numbers(2) + ", float[2] m" +
          Numbers(2) + ", float[8, 2] v" + Numbers(16) +
          ", int64[2] to = {-1, 8}> { c = Conv <strides: ints = [2, 2], pads: ints = [1, 1, 1, 1]> (x, w)"
          "  n = BatchNormalization (c, s, m, m, s)  r = Relu (n)  p = MaxPool <kernel_shape: ints = [2, 2], strides: ints = [2, 2]> (r)"
          "  f = Reshape (p, to)  y = MatMul (f, v) }",
      "g (float[N, 4] x, bool flag) => (float[N, 4] y) <int64[1] axes = {1}, float[4] one" + Numbers(4) +
          "> { s = ReduceMean (x, axes)  t = Sub (x, s)  y = If (flag) <"
          "then_branch = a () => (float[N, 4] p) { p = Mul (t, one) }, else_branch = b () => (float[N, 4] q) { q = Identity (t) }> }",
      "g (int64[N, 5] ids) => (float[N, 5, 2] y) <float[7, 2] table" + Numbers(14) +
          ", int64[1] two = {2}> { e = Gather (table, ids)  scale = ConstantOfShape (two)  y = LayerNormalization (e, scale) }",
      "g (float[N, 3, 4] x) => (float[N, 1, 5] y) <float[1, 20, 4] w" + Numbers(80) + ", float[1, 20, 5] r" + Numbers(100) +
          "> { t = Transpose <perm: ints = [1, 0, 2]> (x)  all, last = LSTM <hidden_size: int = 5> (t, w, r)"
          "  y = Transpose <perm: ints = [1, 0, 2]> (last) }",
      // A loop with a constant number of iterations, and one whose number is fed.
      "g (float[N, 4] x, int64 rounds) => (float[N, 4] y, float[N, 4] z) <bool go = {1}, int64 three = {3}> {"
      "  y = Loop (three, go, x) <body = b (int64 i, bool c, float[N, 4] v) => (bool d, float[N, 4] u) { d = Identity (c)  u = Sin (v) }>"
      "  z = Loop (rounds, go, x) <body = c (int64 j, bool e, float[N, 4] p) => (bool f, float[N, 4] q) { f = Identity (e)  q = Cos (p) }> "
      "}",
      "g (float[N, 3, 4] x) => (float[N, 4] y) { t = Transpose <perm: ints = [1, 0, 2]> (x)"
      "  first = Constant <value_ints: ints = [0]> ()  s = ReduceSum <keepdims: int = 0> (t, first)"
      "  y, all = Scan <num_scan_inputs: int = 1, body = b (float[N, 4] a, float[N, 4] e) => (float[N, 4] c, float[N, 4] d)"
      " { c = Add (a, e)  d = Tanh (c) }> (s, t) }",
      // Extents that the data determine.
      "g (float[N, 4] x) => (float[k] y, float[l] z) <float[4] w" + Numbers(4) +
          ", float zero = {0}> { m = Mul (x, w)  p = Greater (m, zero)  i = NonZero (p)  t = Transpose <perm: ints = [1, 0]> (i)"
          "  y = GatherND (m, t)  r = Round (x)  u, a, b, c = Unique (r)  z = Relu (u) }",
      "g (float[N, 2, 4, 4] x) => (float[N, 2, 8, 8] y, float[N, 3, 3, 4] z) <float[4] scales = {1, 1, 2, 2}, int64[4] starts = {0, 0, 0, "
      "1},"
      " int64[4] ends = {9, 9, -1, 9}, int64[8] pads = {0, 0, 0, 0, 0, 1, 0, 1}> { y = Resize <mode: string = \"linear\"> (x, , scales)"
      "  s = Slice (x, starts, ends)  z = Pad (s, pads) }",
      "g (float[N, 6] x) => (float[N, 2] y) { a, b = Split <axis: int = 1, num_outputs: int = 2> (x)  l = SequenceConstruct (a, b)"
      "  i = Constant <value_int: int = 1> ()  e = SequenceAt (l, i)  c = Einsum <equation: string = \"bi,bi->b\"> (e, e)"
      "  o = Constant <value_ints: ints = [1]> ()  u = Unsqueeze (c, o)  y = Concat <axis: int = 1> (u, u) }",
      "g (float[N, 2, 4, 6] q) => (float[N, 2, 4, 6] y, uint8[N, 2, 4, 6] z) <float one = {0.125}, uint8 zero = {3}> {"
      "  t = Transpose <perm: ints = [0, 1, 3, 2]> (q)  s = MatMul (q, t)  p = Softmax (s)  d = Dropout (p)  v = MatMul (d, q)"
      "  b = IsNaN (q)  y = Where (b, q, v)  z = QuantizeLinear (q, one, zero) }",
  };
}

// The model's own functions, one of which takes an attribute from its caller.
constexpr const char* kFunctions =
    "<ir_version: 8, opset_import: [\"\" : 18, \"local\" : 1]> g (float[N, 4] x) => (float[N, 4] y) {"
    "  h = local.Twice (x)  y = local.Power <e: float = 2.0> (h) }"
    "<domain: \"local\", opset_import: [\"\" : 18, \"local\" : 1]> Twice (a) => (b) { c = local.Power <e: float = 1.0> (a)  b = Add (c, a) "
    "}"
    "<domain: \"local\", opset_import: [\"\" : 18]> Power <e> (a) => (b) { k = Constant <value_float: float = @e> ()  b = Pow (a, k) }";

LoadOptions Limits() {
  LoadOptions options;
  options.limits.value_bytes = int64_t{1} << 26;
  options.limits.fold_bytes = 1 << 20;
  options.limits.fold_total_bytes = 1 << 24;
  options.limits.nodes = 10000;
  options.restores_parameters = true;
  return options;
}

// With notes of torch.export, by which a scale and a bias are restored.
std::string Noted() {
  onnx::ModelProto model;
  model.ParseFromString(Model::FromText("<ir_version: 8, opset_import: [\"\" : 18]>\n"
                                        "g (float[N, 4] x) => (float[N, 3] y) <float[4, 3] w" +
                                        Numbers(12) + ", float[3] s" + Numbers(3) +
                                        "> { h = Gemm (x, w)  n = LayerNormalization (h, s)  y = Mul (n, s) }")
                            .info()
                            .bytes);
  const auto note = [](auto& of, const std::string& key, const std::string& value) {
    onnx::StringStringEntryProto& made = *of.add_metadata_props();
    made.set_key(key);
    made.set_value(value);
  };
  note(*model.mutable_graph(), "pkg.torch.export.ExportedProgram.graph_signature",
       "p_w: PARAMETER target='w'\np_b: PARAMETER target='b'\np_s: PARAMETER target='s'\np_t: PARAMETER target='t'\nx: USER_INPUT");
  const std::string calls[] = {"addmm.default](args = (%p_b, %x, %p_w)", "layer_norm.default](args = (%addmm, [3], %p_t)",
                               "mul.Tensor](args = (%layer_norm, %p_s)"};
  for (int i = 0; i < 3; ++i)
    note(*model.mutable_graph()->mutable_node(i), "pkg.torch.onnx.fx_node",
         "%a : [num_users=1] = call_function[target=torch.ops.aten." + calls[i] + ", kwargs = {})");
  return model.SerializeAsString();
}

void ReadAndImport(std::string_view bytes) {
  const Model model = Model::FromBytes(bytes, "fuzz", Limits());
  ImportOptions import;
  import.batch = 2;
  import.loop_bound = 4;
  Import(model, import);
}

}  // namespace

// A seed that is refused is of little use, so each is imported first.
std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> texts{kFunctions}, seeds;
  for (const std::string& model : Models()) texts.push_back("<ir_version: 8, opset_import: [\"\" : 18]>\n" + model);
  seeds.push_back(Noted());
  if (Model::FromBytes(seeds.back(), "noted", Limits()).restored().size() != 2) Finding("a model's parameters are not restored");
  for (const std::string& text : texts) {
    try {
      seeds.push_back(Model::FromText(text).info().bytes);
      ReadAndImport(seeds.back());
    } catch (const Error& error) {
      Finding("a seed is refused: " + error.Describe() + "\n" + text);
    }
  }
  return seeds;
}

}  // namespace gradloom

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  const auto* type = google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName("onnx.ModelProto");
  std::unique_ptr<google::protobuf::Message> model(google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
  if (!model->ParseFromArray(data, static_cast<int>(size))) return size;
  gradloom::MutateMessage(*model, seed);
  const std::string made = model->SerializePartialAsString();
  if (made.size() > max_size) return size;
  std::memcpy(data, made.data(), made.size());
  return made.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gradloom::MayRefuse([&] { gradloom::ReadAndImport({reinterpret_cast<const char*>(data), size}); });
  return 0;
}
