// ONNX models from memory: read, checked and imported. External data are not looked for, as the bytes have no folder.
#include <google/protobuf/descriptor.h>

#include <cstring>
#include <memory>

#include "compiler/onnx/import.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/message_mutator.h"

namespace gradloom {
namespace {

constexpr const char* kModels[] = {
    R"(g (float[N, 4] x) => (float[N, 3] y) <float[4, 3] w = {0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, float[3] b = {1, 2, 3}> {
      h = Gemm <alpha: float = 0.5> (x, w, b)  y = Softmax <axis: int = -1> (h) })",
    R"(g (float[N, 1, 8, 8] x) => (float[N, 2] y) <float[2, 1, 3, 3] w, float[18, 2] v, int64[2] to = {-1, 18}> {
      c = Conv <strides: ints = [2, 2]> (x, w)  r = Relu (c)  f = Reshape (r, to)  y = MatMul (f, v) })",
    R"(g (float[N, 4] x, bool[] flag) => (float[N, 4] y) <int64[1] axes = {1}, float[4] one = {1, 1, 1, 1}> {
      s = ReduceMean (x, axes)  t = Sub (x, s)  y = If (flag) <
        then_branch = a () => (float[N, 4] p) { p = Mul (t, one) }, else_branch = b () => (float[N, 4] q) { q = Identity (t) }> })",
    R"(g (int64[N, 5] ids) => (float[N, 5, 2] y) <float[7, 2] table, int64[1] two = {2}> {
      e = Gather (table, ids)  y, mean, inv = LayerNormalization (e, scale)  scale = ConstantOfShape (two) })",
};

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const char* text : kModels) {
    MayRefuse([&] { seeds.push_back(Model::FromText("<ir_version: 8, opset_import: [\"\" : 18]>\n" + std::string(text)).info().bytes); });
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
  using namespace gradloom;
  MayRefuse([&] {
    LoadOptions options;
    options.limits.value_bytes = int64_t{1} << 26;
    options.limits.fold_bytes = 1 << 20;
    options.limits.fold_total_bytes = 1 << 24;
    options.limits.nodes = 10000;
    const Model model = Model::FromBytes({reinterpret_cast<const char*>(data), size}, "fuzz", options);
    ImportOptions import;
    import.batch = 2;
    Import(model, import);
  });
  return 0;
}
