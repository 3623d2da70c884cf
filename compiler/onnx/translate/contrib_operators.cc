#include "compiler/onnx/translate/contrib_operators.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include "compiler/graph/graph.h"
#include "compiler/onnx/translate/contrib_body.h"
#include "onnx/defs/function.h"
#include "onnx/defs/parser.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// Appends the activation of a fused operator: its name, and its parameters in the order of ONNX's operator.
void Activate(ContribBody& body, const std::string& value, const std::string& name, const std::vector<double>& numbers) {
  const auto number = [&](size_t i, double absent) { return OnnxText(i < numbers.size() ? numbers[i] : absent); };
  const std::string out = "Y";
  if (name.empty()) {
    body.Op("Identity", {value}, "", out);
  } else if (name == "Relu" || name == "Tanh" || name == "Sigmoid" || name == "Softplus" || name == "Softsign") {
    body.Op(name, {value}, "", out);
  } else if (name == "LeakyRelu") {
    body.Op(name, {value}, "alpha = " + number(0, 0.01), out);
  } else if (name == "Elu" || name == "ThresholdedRelu") {
    body.Op(name, {value}, "alpha = " + number(0, 1), out);
  } else if (name == "Selu") {
    body.Op(name, {value}, "alpha = " + number(0, 1.67326319217681884765625) + ", gamma = " + number(1, 1.05070102214813232421875), out);
  } else if (name == "HardSigmoid") {
    body.Op(name, {value}, "alpha = " + number(0, 0.2) + ", beta = " + number(1, 0.5), out);
  } else if (name == "Clip" && numbers.size() == 2) {
    body.Op(name, {value, body.Number(numbers[0], value), body.Number(numbers[1], value)}, "", out);
  } else {
    body.Refuse("activation '" + Escaped(name) + "' is not supported");
  }
}

void FusedConv(ContribBody& body) {
  std::vector<std::string> in = {"X", "W"};
  if (body.Has("B")) in.push_back("B");
  std::string value = body.Op("Conv", in, body.Same({"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"}));
  if (body.Has("Z")) value = body.Op("Add", {value, "Z"});
  Activate(body, value, body.String("activation"), body.Floats("activation_params"));
}

void FusedGemm(ContribBody& body) {
  std::vector<std::string> in = {"A", "B"};
  if (body.Has("C")) in.push_back("C");
  const std::string name = body.String("activation");
  const double alpha = name == "LeakyRelu" ? 0.01 : name == "HardSigmoid" ? 0.2 : name == "Selu" ? 1.67326319217681884765625 : 1;
  std::vector<double> numbers = {body.Float("activation_alpha", alpha)};
  numbers.push_back(name == "Selu" ? body.Float("activation_gamma", 1.05070102214813232421875) : body.Float("activation_beta", 0.5));
  Activate(body, body.Op("Gemm", in, body.Same({"alpha", "beta", "transA", "transB"})), name, numbers);
}

// Returns the operand with its axes in the order of the product: transBatch moves the first axis before the last.
std::string OperandOrder(ContribBody& body, const std::string& input, bool last, bool batch) {
  const int rank = body.Rank(input);
  if (rank < 2) return input;
  std::vector<int64_t> axes;
  for (int i = 0; i < rank; ++i) axes.push_back(i);
  if (batch && rank > 2) std::rotate(axes.begin(), axes.begin() + 1, axes.end() - 1);
  if (last) std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  return std::is_sorted(axes.begin(), axes.end()) ? input : body.Op("Transpose", {input}, "perm = " + OnnxText(axes));
}

void FusedMatMul(ContribBody& body) {
  const std::string a = OperandOrder(body, "A", body.Int("transA") != 0, body.Int("transBatchA") != 0);
  const std::string b = OperandOrder(body, "B", body.Int("transB") != 0, body.Int("transBatchB") != 0);
  body.Op("Identity", {body.Scaled(body.Op("MatMul", {a, b}), body.Float("alpha", 1))}, "", "Y");
}

void SkipNormalization(ContribBody& body, const std::string& op) {
  std::string sum = body.Op("Add", {"input", "skip"});
  if (body.Has("bias")) sum = body.Op("Add", {sum, "bias"});
  if (body.HasOutput("mean") || body.HasOutput("inv_std_var")) body.Refuse("outputs 'mean' and 'inv_std_var' are not supported");
  std::vector<std::string> in = {sum, "gamma"};
  if (op == "LayerNormalization" && body.Has("beta")) in.push_back("beta");
  body.Op(op, in, "axis = -1, epsilon = " + OnnxText(body.Float("epsilon", 1e-12)), "output");
  body.Op("Identity", {sum}, "", "input_skip_bias_sum");
}

void SimplifiedLayerNormalization(ContribBody& body) {
  if (body.HasOutput("inv_std_var")) body.Refuse("output 'inv_std_var' is not supported");
  body.Op("RMSNormalization", {"X", "scale"}, body.Same({"axis", "epsilon", "stash_type"}), "Y");
}

void FastGelu(ContribBody& body) {
  body.Op("Gelu", {body.Has("bias") ? body.Op("Add", {"X", "bias"}) : "X"}, "approximate = \"tanh\"", "Y");
}

// tf2onnx leaves these operators of TensorFlow and TensorFlow Lite as they are, in ONNX's domain: Keras's "gelu" and "celu" become them.
void Erfc(ContribBody& body) { body.Op("Sub", {body.Number(1, "X"), body.Op("Erf", {"X"})}, "", "Y"); }

void Expm1(ContribBody& body) { body.Op("Sub", {body.Op("Exp", {"X"}), body.Number(1, "X")}, "", "Y"); }

void LiteGelu(ContribBody& body) { body.Op("Gelu", {"X"}, body.Int("approximate") != 0 ? "approximate = \"tanh\"" : "", "Y"); }

// An experimental operator of ONNX until 1.5, in files of Caffe2 for initial states.
void ConstantFill(ContribBody& body) {
  const bool given = body.Has("input"), is_shape = body.Int("input_as_shape") != 0;
  const std::vector<int64_t> extra = body.Ints("extra_shape");
  if (given == !body.Ints("shape").empty()) body.Refuse("it needs an input or the attribute 'shape', and not both");
  std::string shape = given ? body.Op(is_shape ? "Cast" : "Shape", {"input"}, is_shape ? "to = 7" : "") : body.List(body.Ints("shape"));
  if (!extra.empty()) shape = body.Op("Concat", {shape, body.List(extra)}, "axis = 0");
  const std::string value = body.Op("Constant", {}, "value_float = " + OnnxText(body.Float("value", 0)));
  body.Op("Expand", {body.Op("Cast", {value}, "to = " + std::to_string(body.Int("dtype", 1))), shape}, "", "output");
}

void QuickGelu(ContribBody& body) { body.Op("Mul", {"X", body.Op("Sigmoid", {body.Scaled("X", body.Float("alpha", 1.702))})}, "", "Y"); }

void ExpandDims(ContribBody& body) {
  const std::string axis = body.Op("Cast", {"axis"}, "to = 7");
  body.Op("Unsqueeze", {"X", body.Op("Reshape", {axis, body.List({1})})}, "", "Y");
}

void GridSample(ContribBody& body) {
  const std::string mode = body.String("mode", "bilinear");
  const std::string ours = mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : mode;
  const std::string rest = body.Same({"align_corners", "padding_mode"});
  body.Op("GridSample", {"X", "Grid"}, "mode = \"" + Escaped(ours) + "\"" + (rest.empty() ? "" : ", " + rest), "Y");
}

void Distances(ContribBody& body) {
  const std::string metric = body.String("metric", "sqeuclidean");
  if (metric != "euclidean" && metric != "sqeuclidean") body.Refuse("metric '" + Escaped(metric) + "' is not supported");
  const std::string a = body.Op("Unsqueeze", {"A", body.List({1})}), b = body.Op("Unsqueeze", {"B", body.List({0})});
  const std::string apart = body.Op("Sub", {a, b});
  const bool root = metric == "euclidean";
  body.Op(root ? "ReduceL2" : "ReduceSumSquare", {apart, body.List({2})}, "keepdims = 0", "C");
}

// ONNX's QuantizeLinear or DequantizeLinear, including types that older opsets lack.
void Quantize(ContribBody& body, const std::string& op, const std::vector<std::string>& inputs) {
  std::vector<std::string> in(inputs.begin(), inputs.begin() + (body.Has(inputs[2]) ? 3 : 2));
  body.Op(op, in, body.Same({"axis"}), "y");
}

// T: a floating-point type; Q: a quantized type; I: an index or a mask; A: a number or an index. A name that ends in "?" is optional, an
// attribute that ends in "!" is required.
struct Row {
  const char* domain;
  const char* op;
  const char* inputs;
  const char* outputs;
  const char* attributes;
  void (*write)(ContribBody& body);
};

const char* const kMicrosoft = kContribDomain.data();

const Row kRows[] = {
    {"", "SimplifiedLayerNormalization", "X:T scale:T", "Y inv_std_var?", "axis:int epsilon:float stash_type:int",
     SimplifiedLayerNormalization},
    {"", "ConstantFill", "input?:A", "output", "dtype:int extra_shape:ints input_as_shape:int shape:ints value:float", ConstantFill},
    {"", "Erfc", "X:T", "Y", "", Erfc},
    {"", "Expm1", "X:T", "Y", "", Expm1},
    {"", "TFL_GELU", "X:T", "Y", "approximate:int", LiteGelu},
    {kMicrosoft, "Attention", "input:T weights:T bias?:T mask_index?:I past?:T attention_bias?:T past_sequence_length?:I",
     "output present?",
     "num_heads!:int unidirectional:int qkv_hidden_sizes:ints mask_filter_value:float scale:float do_rotary:int rotary_embedding_dim:int "
     "past_present_share_buffer:int",
     ContribAttention},
    {kMicrosoft, "BiasGelu", "A:T B:T", "C", "",
     [](ContribBody& body) {
       body.Op("Gelu", {body.Op("Add", {"A", "B"})}, "", "C");
     }},
    {kMicrosoft, "CDist", "A:T B:T", "C", "metric:string", Distances},
    {kMicrosoft, "DequantizeLinear", "x:Q x_scale:T x_zero_point?:Q", "y", "axis:int",
     [](ContribBody& body) {
       Quantize(body, "DequantizeLinear", {"x", "x_scale", "x_zero_point"});
     }},
    {kMicrosoft, "EmbedLayerNormalization",
     "input_ids:I segment_ids?:I word_embedding:T position_embedding:T segment_embedding?:T gamma:T beta:T mask?:I position_ids?:I",
     "output mask_index? embedding_sum?", "epsilon:float mask_index_type:int", ContribEmbedLayerNormalization},
    {kMicrosoft, "ExpandDims", "X:A axis:I", "Y", "", ExpandDims},
    {kMicrosoft, "FastGelu", "X:T bias?:T", "Y", "", FastGelu},
    {kMicrosoft, "FusedConv", "X:T W:T B?:T Z?:T", "Y",
     "auto_pad:string dilations:ints group:int kernel_shape:ints pads:ints strides:ints activation:string activation_params:floats",
     FusedConv},
    {kMicrosoft, "FusedGemm", "A:T B:T C?:T", "Y",
     "alpha:float beta:float transA:int transB:int activation:string activation_alpha:float activation_beta:float activation_gamma:float",
     FusedGemm},
    {kMicrosoft, "FusedMatMul", "A:T B:T", "Y", "alpha:float transA:int transB:int transBatchA:int transBatchB:int", FusedMatMul},
    {kMicrosoft, "Gelu", "X:T", "Y", "", [](ContribBody& body) { body.Op("Gelu", {"X"}, "", "Y"); }},
    {kMicrosoft, "GridSample", "X:T Grid:T", "Y", "align_corners:int mode:string padding_mode:string", GridSample},
    {kMicrosoft, "GroupQueryAttention",
     "query:T key?:T value?:T past_key?:T past_value?:T seqlens_k:I total_sequence_length:I cos_cache?:T sin_cache?:T position_ids?:I "
     "attention_bias?:T head_sink?:T",
     "output present_key? present_value? output_qk?",
     "num_heads!:int kv_num_heads!:int scale:float softcap:float local_window_size:int do_rotary:int rotary_interleaved:int "
     "smooth_softmax:int qk_output:int",
     ContribGroupQueryAttention},
    {kMicrosoft, "MultiHeadAttention",
     "query:T key?:T value?:T bias?:T key_padding_mask?:I attention_bias?:T past_key?:T past_value?:T past_sequence_length?:I "
     "cache_indirection?:I",
     "output present_key? present_value? qk?", "num_heads!:int unidirectional:int mask_filter_value:float scale:float",
     ContribMultiHeadAttention},
    {kMicrosoft, "QuantizeLinear", "x:T y_scale:T y_zero_point?:Q", "y", "axis:int",
     [](ContribBody& body) {
       Quantize(body, "QuantizeLinear", {"x", "y_scale", "y_zero_point"});
     }},
    {kMicrosoft, "QuickGelu", "X:T", "Y", "alpha:float", QuickGelu},
    {kMicrosoft, "RotaryEmbedding", "input:T position_ids:I cos_cache:T sin_cache:T", "output",
     "num_heads:int rotary_embedding_dim:int interleaved:int is_packed_batching:int scale:float", ContribRotaryEmbedding},
    {kMicrosoft, "SkipLayerNormalization", "input:T skip:T gamma:T beta?:T bias?:T", "output mean? inv_std_var? input_skip_bias_sum?",
     "epsilon:float", [](ContribBody& body) { SkipNormalization(body, "LayerNormalization"); }},
    {kMicrosoft, "SkipSimplifiedLayerNormalization", "input:T skip:T gamma:T bias?:T", "output mean? inv_std_var? input_skip_bias_sum?",
     "epsilon:float", [](ContribBody& body) { SkipNormalization(body, "RMSNormalization"); }},
    {kMicrosoft, "TransposeMatMul", "A:T B:T", "Y", "alpha:float transA:int transB:int", FusedMatMul},
    {kMicrosoft, "Trilu", "X:A k?:I", "Y", "upper:int",
     [](ContribBody& body) {
       body.Op("Trilu", body.Has("k") ? std::vector<std::string>{"X", "k"} : std::vector<std::string>{"X"}, body.Same({"upper"}), "Y");
     }},
};

std::vector<std::string> Words(const char* text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// Returns the name without the mark ("?" or "!"), and whether it had one.
std::pair<std::string, bool> StripMark(std::string name, char mark) {
  const bool marked = !name.empty() && name.back() == mark;
  if (marked) name.pop_back();
  return {name, marked};
}

std::unique_ptr<onnx::OpSchema> SchemaOf(const Row& row) {
  using onnx::OpSchema;
  auto schema = std::make_unique<OpSchema>(row.op, __FILE__, __LINE__);
  schema->SetDomain(row.domain).SinceVersion(1);
  const std::vector<std::string> floats = {"tensor(float16)", "tensor(float)", "tensor(double)", "tensor(bfloat16)"};
  const std::vector<std::string> integers = {"tensor(int32)", "tensor(int64)", "tensor(bool)"};
  std::vector<std::string> all = floats;
  all.insert(all.end(), integers.begin(), integers.end());
  const std::vector<std::string> quantized = {"tensor(int8)", "tensor(uint8)", "tensor(int16)", "tensor(uint16)", "tensor(int32)"};
  schema->TypeConstraint("T", floats, "").TypeConstraint("A", all, "").TypeConstraint("Q", quantized, "");
  int at = 0;
  for (const std::string& word : Words(row.inputs)) {
    const size_t colon = word.find(':');
    const auto [name, optional] = StripMark(word.substr(0, colon), '?');
    std::string type = word.substr(colon + 1);
    // Indices of different inputs may have different types.
    if (type == "I") schema->TypeConstraint(type += std::to_string(at), integers, "");
    schema->Input(at++, name, "", type, optional ? OpSchema::Optional : OpSchema::Single);
  }
  at = 0;
  for (const std::string& word : Words(row.outputs)) {
    const auto [name, optional] = StripMark(word, '?');
    schema->Output(at++, name, "", "A", optional ? OpSchema::Optional : OpSchema::Single);
  }
  using Proto = onnx::AttributeProto;
  static const std::map<std::string, Proto::AttributeType> kTypes = {
      {"int", Proto::INT}, {"float", Proto::FLOAT}, {"string", Proto::STRING}, {"ints", Proto::INTS}, {"floats", Proto::FLOATS}};
  for (const std::string& word : Words(row.attributes)) {
    const size_t colon = word.find(':');
    const auto [name, required] = StripMark(word.substr(0, colon), '!');
    schema->Attr(name, "", kTypes.at(word.substr(colon + 1)), required);
  }
  schema->SetContextDependentFunctionBodyBuilder(
      [write = row.write](const onnx::FunctionBodyBuildContext& context, const OpSchema& of, onnx::FunctionProto& function) {
        ContribBody body(context, of);
        write(body);
        onnx::FunctionBuilder(function).Add(body.text().c_str()).AddOpset("", kOpset);
        of.BuildFunction(function);
        return true;
      });
  schema->Finalize();
  return schema;
}

}  // namespace

const onnx::OpSchema* FindContribSchema(std::string_view domain, const std::string& op) {
  using Schemas = std::map<std::pair<std::string, std::string>, std::unique_ptr<onnx::OpSchema>>;
  static const Schemas schemas = [] {
    Schemas made;
    for (const Row& row : kRows) made.emplace(std::pair(row.domain, row.op), SchemaOf(row));
    return made;
  }();
  const auto found = schemas.find({std::string(domain), op});
  return found == schemas.end() ? nullptr : found->second.get();
}

std::string HelpOfContrib(std::string_view domain) {
  if (domain == "com.microsoft.nchwc") {
    return "onnxruntime wrote its weights in a machine-specific layout: save the optimized model with "
           "GraphOptimizationLevel.ORT_ENABLE_EXTENDED, or train the original file";
  }
  if (domain != kContribDomain) return "";
  return "it is specific to onnxruntime: train the original file, before onnxruntime's optimizer or quantizer changed it";
}

}  // namespace gradloom
