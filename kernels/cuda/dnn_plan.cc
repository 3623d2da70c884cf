// Builds problems as graphs of cuDNN's front end, and chooses execution plans by its heuristics.
#include "kernels/cuda/dnn_plan.h"

#include <cudnn_frontend.h>

#include <array>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/libraries.h"
#include "kernels/cuda/measured_plan.h"
#include "runtime/base/error.h"

namespace gradloom::cuda {
namespace {

namespace fe = cudnn_frontend;

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Note = fe::NumericalNote_t;

fe::DataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return fe::DataType_t::HALF;
    case DType::kBfloat16: return fe::DataType_t::BFLOAT16;
    default: return fe::DataType_t::FLOAT;
  }
}

std::unique_ptr<fe::graph::Graph> NewGraph(DType dtype) {
  auto graph = std::make_unique<fe::graph::Graph>();
  graph->set_io_data_type(TypeOf(dtype)).set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
  return graph;
}

// The alignment of memory allocated by CUDA, which the library expects. A plan's scratch memory has a smaller alignment.
constexpr int64_t kScratchAlignment = 256;

void* Aligned(void* scratch) {
  const auto address = reinterpret_cast<uintptr_t>(scratch);
  return reinterpret_cast<void*>((address + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment);
}

// `place` is the tensor's index among the addresses of Run, which identifies tensors by it.
Tensor Input(fe::graph::Graph& graph, const DnnTensor& tensor, int place) {
  return graph.tensor(fe::graph::Tensor_attributes().set_dim(tensor.dims).set_stride(tensor.strides).set_uid(place + 1));
}

fe::graph::Tensor_attributes& Output(const Tensor& made, const DnnTensor& tensor, int place) {
  return made->set_output(true).set_dim(tensor.dims).set_stride(tensor.strides).set_uid(place + 1);
}

class FrontendPlan : public DnnPlan {
 public:
  FrontendPlan(std::unique_ptr<fe::graph::Graph> graph, cudnnHandle_t handle) : graph_(std::move(graph)), handle_(handle) {}

  void Run(std::span<const void* const> addresses, void* scratch, CUstream_st* stream) override {
    if (const cudnnStatus_t status = cudnnSetStream(handle_, stream); status != CUDNN_STATUS_SUCCESS)
      throw Error(ErrorCode::kDevice, "cudnnSetStream failed: " + std::string(cudnnGetErrorString(status)));
    std::array<void*, 10> all;
    for (size_t i = 0; i < addresses.size(); ++i) all.at(i) = const_cast<void*>(addresses[i]);
    if (auto status = graph_->execute(handle_, all.data(), static_cast<int>(addresses.size()), Aligned(scratch)); status.is_bad())
      throw Error(ErrorCode::kDevice, "cuDNN could not begin its work: " + status.get_message());
  }

 private:
  std::unique_ptr<fe::graph::Graph> graph_;
  cudnnHandle_t handle_;
};

fe::error_t Refused(std::string why) { return {fe::error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED, std::move(why)}; }

// Builds the first plan that is allowed, for a Run with `addresses` addresses.
fe::error_t Choose(fe::graph::Graph& graph, size_t addresses, const std::vector<Note>& excluded, int64_t scratch_bytes,
                   cudnnHandle_t handle) {
  if (auto status = graph.validate(); status.is_bad()) return status;
  if (auto status = graph.build_operation_graph(handle); status.is_bad()) return status;
  if (auto status = graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}); status.is_bad()) return status;
  graph.deselect_numeric_notes(excluded).deselect_workspace_greater_than(scratch_bytes);
  if (auto status = graph.check_support(); status.is_bad()) return status;
  if (auto status = graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE); status.is_bad()) return status;
  // Memory that the front end itself needs is not included in the limit above.
  int64_t bytes = 0;
  if (auto status = graph.get_workspace_size(bytes); status.is_bad()) return status;
  if (bytes > scratch_bytes) return Refused("it needs " + std::to_string(bytes) + " bytes");
  std::vector<int64_t> uids(addresses);
  for (size_t i = 0; i < addresses; ++i) uids[i] = static_cast<int64_t>(i) + 1;
  return graph.get_variant_pack_uids_sorted() == uids ? fe::error_t{} : Refused("its tensors are not the expected ones");
}

// The execution plans of a graph, subject to the notes barred from it.
class PlansOfGraph : public CandidatePlans {
 public:
  PlansOfGraph(fe::graph::Graph& graph, cudnnHandle_t handle, int64_t scratch_bytes)
      : graph_(graph), handle_(handle), scratch_bytes_(scratch_bytes) {}
  // The stream used for measuring no longer exists.
  ~PlansOfGraph() override { cudnnSetStream(handle_, nullptr); }

  int64_t count() const override { return graph_.get_execution_plan_count(); }
  std::string name(int64_t i) const override {
    std::string text;
    return graph_.get_plan_name_at_index(i, text).is_good() ? text : "";
  }
  std::string chosen() const override {
    std::string text;
    return graph_.get_plan_name(text).is_good() ? text : "";
  }
  bool Activate(int64_t i) override {
    int64_t bytes = 0;
    return graph_.build_plan_at_index(i).is_good() && graph_.get_workspace_size_plan_at_index(i, bytes).is_good() &&
           bytes <= scratch_bytes_;
  }
  bool Enqueue(int64_t i, std::span<void* const> addresses, void* scratch, CUstream_st* stream) override {
    std::vector<void*> all(addresses.begin(), addresses.end());
    return cudnnSetStream(handle_, stream) == CUDNN_STATUS_SUCCESS &&
           graph_.execute_plan_at_index(handle_, all.data(), static_cast<int>(all.size()), Aligned(scratch), i).is_good();
  }

 private:
  fe::graph::Graph& graph_;
  cudnnHandle_t handle_;
  int64_t scratch_bytes_;
};

std::unique_ptr<DnnPlan> Plan(std::unique_ptr<fe::graph::Graph> graph, size_t addresses, const std::vector<Note>& excluded,
                              int64_t scratch_bytes, Libraries& libraries, std::string& why, const MeasuredProblem* measured = nullptr) {
  const cudnnHandle_t handle = libraries.dnn();
  try {
    auto status = Choose(*graph, addresses, excluded, scratch_bytes - kScratchAlignment, handle);
    if (status.is_good()) {
      if (measured != nullptr) {
        PlansOfGraph plans(*graph, handle, scratch_bytes - kScratchAlignment);
        ChooseMeasured(plans, *measured, libraries);
      }
      return std::make_unique<FrontendPlan>(std::move(graph), handle);
    }
    why = status.get_message();
  } catch (const fe::cudnnException& error) {
    why = error.what();
  }
  return nullptr;
}

// Properties that exclude an algorithm: sums in 16 bits and, of `deterministic` problems, sums whose order differs between runs.
std::vector<Note> ExcludedNotes(bool deterministic) {
  std::vector<Note> excluded = {Note::REDUCED_PRECISION_REDUCTION};
  if (deterministic) excluded.push_back(Note::NONDETERMINISTIC);
  return excluded;
}

// Also excludes transforms that lose accuracy. Without allow_tf32, float32 operands must not be rounded to TF32, which tensor cores would
// do.
std::vector<Note> ExcludedNotesFor(const DnnConvolution& c) {
  std::vector<Note> excluded = ExcludedNotes(c.deterministic);
  excluded.insert(excluded.end(), {Note::WINOGRAD_TILE_6x6, Note::WINOGRAD_TILE_13x13});
  if (!c.allow_tf32) excluded.push_back(Note::DOWN_CONVERT_INPUTS);
  if (!c.allow_tf32 && c.dtype == DType::kFloat32) excluded.push_back(Note::TENSOR_CORE);
  return excluded;
}

template <typename Options>
Options OptionsOf(const DnnConvolution& c) {
  return Options().set_padding(c.pads).set_stride(c.strides).set_dilation(c.dilations);
}

template <typename Options>
Options OptionsOf(const DnnAttention& a) {
  Options options = Options().set_attn_scale(static_cast<float>(a.scale));
  if (a.causal) options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
  return options;
}

// `places` is the number of addresses before the mask, if there is one. Returns the number including it.
template <typename Options>
size_t AddMask(fe::graph::Graph& graph, const DnnAttention& a, size_t places, Options& options) {
  if (!a.has_mask()) return places;
  options.set_bias(Input(graph, a.mask, static_cast<int>(places)));
  return places + 1;
}

MeasuredProblem MeasuredOf(const DnnConvolution& c, int64_t scratch_bytes) {
  MeasuredProblem measured{.problem = "cudnn " + std::string(DTypeName(c.dtype)) + " " + std::to_string(static_cast<int>(c.direction)) +
                                      " " + std::to_string(c.allow_tf32) + (c.deterministic ? " " : " any ") +
                                      std::to_string(scratch_bytes),
                           .what = "a convolution",
                           .dtype = c.dtype,
                           .bytes = {},
                           .scratch_bytes = scratch_bytes};
  const auto add = [&](const std::vector<int64_t>& numbers) {
    measured.problem += " :";
    for (int64_t number : numbers) measured.problem += " " + std::to_string(number);
  };
  for (const DnnTensor* tensor : {&c.x, &c.w, &c.y}) {
    add(tensor->dims);
    add(tensor->strides);
    int64_t past = 1;
    for (size_t axis = 0; axis < tensor->dims.size(); ++axis) past += (tensor->dims[axis] - 1) * tensor->strides[axis];
    measured.bytes.push_back(past * DTypeBytes(c.dtype));
  }
  for (const auto* numbers : {&c.pads, &c.strides, &c.dilations}) add(*numbers);
  return measured;
}

// One number per query.
DnnTensor SumsOf(const DnnAttention& a) {
  const int64_t batch = a.q.dims[0], heads = a.q.dims[1], queries = a.q.dims[2];
  return {{batch, heads, queries, 1}, {heads * queries, queries, 1, 1}};
}

}  // namespace

std::unique_ptr<DnnPlan> PlanDnnConvolution(const DnnConvolution& c, int64_t scratch_bytes, Libraries& libraries, std::string& why) {
  auto graph = NewGraph(c.dtype);
  enum { kX, kW, kY };
  switch (c.direction) {
    case DnnConvolution::Direction::kForward: {
      const Tensor x = Input(*graph, c.x, kX), w = Input(*graph, c.w, kW);
      Output(graph->conv_fprop(x, w, OptionsOf<fe::graph::Conv_fprop_attributes>(c)), c.y, kY);
      break;
    }
    case DnnConvolution::Direction::kGradInput: {
      const Tensor dy = Input(*graph, c.y, kY), w = Input(*graph, c.w, kW);
      Output(graph->conv_dgrad(dy, w, OptionsOf<fe::graph::Conv_dgrad_attributes>(c)), c.x, kX);
      break;
    }
    case DnnConvolution::Direction::kGradWeight: {
      const Tensor dy = Input(*graph, c.y, kY), x = Input(*graph, c.x, kX);
      Output(graph->conv_wgrad(dy, x, OptionsOf<fe::graph::Conv_wgrad_attributes>(c)), c.w, kW);
      break;
    }
  }
  const MeasuredProblem measured = MeasuredOf(c, scratch_bytes);
  return Plan(std::move(graph), 3, ExcludedNotesFor(c), scratch_bytes, libraries, why, &measured);
}

std::unique_ptr<DnnPlan> PlanDnnAttention(const DnnAttention& a, bool sums, int64_t scratch_bytes, Libraries& libraries, std::string& why) {
  auto graph = NewGraph(a.dtype);
  const Tensor q = Input(*graph, a.q, 0), k = Input(*graph, a.k, 1), v = Input(*graph, a.v, 2);
  auto options = OptionsOf<fe::graph::SDPA_attributes>(a).set_generate_stats(sums);
  const size_t addresses = AddMask(*graph, a, sums ? 5 : 4, options);
  const auto [o, stats] = graph->sdpa(q, k, v, std::move(options));
  Output(o, a.o, 3);
  if (sums) Output(stats, SumsOf(a), 4).set_data_type(fe::DataType_t::FLOAT);
  return Plan(std::move(graph), addresses, ExcludedNotes(true), scratch_bytes, libraries, why);
}

std::unique_ptr<DnnPlan> PlanDnnAttentionGradient(const DnnAttention& a, int64_t scratch_bytes, Libraries& libraries, std::string& why) {
  auto graph = NewGraph(a.dtype);
  const Tensor q = Input(*graph, a.q, 0), k = Input(*graph, a.k, 1), v = Input(*graph, a.v, 2), o = Input(*graph, a.o, 3),
               dy = Input(*graph, a.o, 4), stats = Input(*graph, SumsOf(a), 5);
  stats->set_data_type(fe::DataType_t::FLOAT);
  auto options = OptionsOf<fe::graph::SDPA_backward_attributes>(a).set_deterministic_algorithm(a.deterministic);
  const size_t addresses = AddMask(*graph, a, 9, options);
  const auto [dq, dk, dv] = graph->sdpa_backward(q, k, v, o, dy, stats, std::move(options));
  Output(dq, a.q, 6);
  Output(dk, a.k, 7);
  Output(dv, a.v, 8);
  return Plan(std::move(graph), addresses, ExcludedNotes(a.deterministic), scratch_bytes, libraries, why);
}

}  // namespace gradloom::cuda
