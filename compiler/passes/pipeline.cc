#include "compiler/passes/pipeline.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <type_traits>
#include <vector>

#include "compiler/graph/text.h"
#include "compiler/graph/verify_graph.h"
#include "compiler/ops/op.h"
#include "compiler/passes/devices/expose_sums.h"
#include "compiler/passes/devices/gather_tail.h"
#include "compiler/passes/devices/replicate_data.h"
#include "compiler/passes/devices/shard_updates.h"
#include "compiler/passes/fusion/fuse_epilogues.h"
#include "compiler/passes/fusion/fuse_norm_masks.h"
#include "compiler/passes/fusion/fuse_norm_sums.h"
#include "compiler/passes/fusion/fuse_pointwise.h"
#include "compiler/passes/fusion/join_pointwise.h"
#include "compiler/passes/fusion/keep_log_sums.h"
#include "compiler/passes/fusion/keep_steps.h"
#include "compiler/passes/fusion/pack_attention.h"
#include "compiler/passes/fusion/split_batch_norm.h"
#include "compiler/passes/fusion/split_conv_bias.h"
#include "compiler/passes/gradient/concat_gradients.h"
#include "compiler/passes/gradient/differentiate.h"
#include "compiler/passes/gradient/expand_derivatives.h"
#include "compiler/passes/gradient/guard_gradients.h"
#include "compiler/passes/loss/entry_loss.h"
#include "compiler/passes/loss/fuse_loss_gradient.h"
#include "compiler/passes/loss/loss_info.h"
#include "compiler/passes/loss/loss_scale.h"
#include "compiler/passes/memory/copy_states.h"
#include "compiler/passes/memory/kept_values.h"
#include "compiler/passes/memory/plan_memory.h"
#include "compiler/passes/memory/remake_pointwise.h"
#include "compiler/passes/patterns/fold_pads.h"
#include "compiler/passes/patterns/fuse_attention.h"
#include "compiler/passes/patterns/fuse_gelu.h"
#include "compiler/passes/patterns/fuse_group_norm.h"
#include "compiler/passes/patterns/fuse_linear.h"
#include "compiler/passes/patterns/fuse_moves.h"
#include "compiler/passes/patterns/fuse_softplus.h"
#include "compiler/passes/patterns/write_out_einsum.h"
#include "compiler/passes/precision/fuse_casts.h"
#include "compiler/passes/precision/keep_weight_copies.h"
#include "compiler/passes/precision/lower_precision.h"
#include "compiler/passes/precision/narrow_gradients.h"
#include "compiler/passes/region_bodies.h"
#include "compiler/passes/schedule/assign_layouts.h"
#include "compiler/passes/schedule/assign_streams.h"
#include "compiler/passes/schedule/choose_kernels.h"
#include "compiler/passes/schedule/emit_program.h"
#include "compiler/passes/schedule/events.h"
#include "compiler/passes/schedule/node_order.h"
#include "compiler/passes/schedule/order_gradients.h"
#include "compiler/passes/schedule/order_nodes.h"
#include "compiler/passes/schedule/relax_order.h"
#include "compiler/passes/seed_random.h"
#include "compiler/passes/simplify.h"
#include "compiler/passes/training_view.h"
#include "compiler/passes/update/accumulate.h"
#include "compiler/passes/update/entry_updates.h"
#include "compiler/passes/update/join_updates.h"
#include "runtime/base/joined.h"
#include "runtime/base/stopwatch.h"
#include "runtime/base/suggestion.h"

namespace gradloom {
namespace {

// Conditions of passes.
bool OnGpus(const PassContext& c) { return c.recipe.device == DeviceKind::kCuda; }
bool IsDivided(const PassContext& c) { return c.divided; }
bool RoundsToTf32(const PassContext& c) { return c.recipe.precision == Precision::kTf32; }
bool SumsStatistics(const PassContext& c) { return c.divided && c.recipe.sync_bn; }

// Copies of a model that each compute the whole batch must compute the same bits.
bool MayRelaxOrder(const PassContext& c) { return !c.recipe.fixed_order && OnGpus(c) && (c.divided || CopiesOfModel(c) == 1); }

// Whether the nodes of the model are placed before its layers are fused. The loss, gradients and updates follow them.
bool PlacesModel(const PassContext& c) {
  return c.stages != nullptr && c.kind != EntryKind::kUpdate && c.recipe.gather_to < 0 && !c.recipe.UsesFileAlgorithm();
}

// An update has no model. Otherwise nodes that are placed by the names that the file gives them must stay until they are.
bool MayFuseLayers(const PassContext& c) {
  return c.kind != EntryKind::kUpdate && (c.stages == nullptr || !c.recipe.tail.empty() || PlacesModel(c));
}

// A pass that needs nothing else of the context.
template <auto kPass>
void Run(PassContext& c) {
  if constexpr (std::is_invocable_v<decltype(kPass), GraphBuilder&>) {
    GraphBuilder builder(c.graph, c.rules);
    kPass(builder);
  } else if constexpr (std::is_invocable_v<decltype(kPass), Graph&>) {
    kPass(c.graph);
  } else {
    kPass(c.graph, c.scheduled);
  }
}

template <auto kPass, bool (*kCondition)(const PassContext&)>
void RunIf(PassContext& c) {
  if (kCondition(c)) Run<kPass>(c);
}

void RunOnBodies(PassContext& c, void (*pass)(GraphBuilder&)) {
  ForEachBody(c.graph, [&](Graph& body) {
    GraphBuilder builder(body, c.rules);
    pass(builder);
  });
}

// On the bodies of branches and loops, too.
template <void (*kPass)(GraphBuilder&)>
void RunWithBodies(PassContext& c) {
  RunOnBodies(c, kPass);
  Run<kPass>(c);
}

void RunTrainingView(PassContext& c) {
  GraphBuilder builder(c.graph, c.rules);
  // The file's own algorithm defines the training semantics itself.
  const bool restores = c.recipe.mode == GraphMode::kTrain && !c.recipe.UsesFileAlgorithm();
  ApplyTrainingView(builder, Trains(c.kind) ? (restores ? ModelView::kTrain : ModelView::kAsWritten) : ModelView::kInference);
  // Must run before unused nodes are removed. Derivatives add nodes that keep statistics, so this runs again with the loss.
  if (c.recipe.UsesFileAlgorithm() && Trains(c.kind)) BindFileUpdates(c);
}

// The name under which an input is fed.
const std::string& FeedName(const PassContext& c, ValueId input) {
  const auto named = c.feed_names.find(input);
  return named != c.feed_names.end() ? named->second : c.graph.value(input).name;
}

// The values whose gradients are needed: the parameters, and the inputs that the recipe names, as far as the graph has them.
std::vector<ValueId> WithGradients(const PassContext& c) {
  std::vector<ValueId> values = c.parameters;
  for (const ValueId input : c.graph.inputs) {
    if (c.recipe.input_gradients.contains(FeedName(c, input))) values.push_back(input);
  }
  return values;
}

void RunPlaceModel(PassContext& c) {
  if (PlacesModel(c)) PlaceModel(c.graph, c.recipe.place, *c.stages);
}

void RunFuseAttention(PassContext& c) {
  // On a GPU, cuDNN's attention in 16 bits without dropout is faster than two products and a softmax. Attention over products moves as many
  // bytes as those, except for scores that a causal mask hides: they are computed in blocks of 256 queries.
  constexpr int64_t kTwoBlocks = 512;
  const bool cpu = c.recipe.device == DeviceKind::kCpu;
  const bool low = c.recipe.precision == Precision::kBfloat16 || c.recipe.precision == Precision::kFloat16;
  if (!MayFuseLayers(c)) return;
  GraphBuilder builder(c.graph, c.rules);
  FuseAttention(
      builder, WithGradients(c),
      {.trained_masks = cpu && !low, .fewest_causal = cpu || low ? 0 : kTwoBlocks, .fewest_causal_dropped = cpu ? 0 : kTwoBlocks});
}

// What replaces nodes of the model is a part of it, although the loss has been added.
void KeepInModel(PassContext& c, const std::map<NodeId, NodeId>& replaced) {
  for (const auto& [made, before] : replaced) c.loss_nodes.Replace(before, made);
}

void RunFuseGelu(PassContext& c) {
  // On GPUs, fuse_epilogues needs Gelu nodes. On the CPU, they save the roundings between the operators that they replace.
  const bool low = c.recipe.precision == Precision::kBfloat16 || c.recipe.precision == Precision::kFloat16;
  if (MayFuseLayers(c) && low) KeepInModel(c, FuseGelu(c.graph));
}

void RunGuardGradients(PassContext& c) {
  if (!Trains(c.kind)) return;
  RunOnBodies(c, [](GraphBuilder& builder) { GuardGradients(builder); });
  GraphBuilder builder(c.graph, c.rules);
  KeepInModel(c, GuardGradients(builder));
}

void RunLowerPrecision(PassContext& c) {
  const Precision precision = c.recipe.precision;
  if (c.kind == EntryKind::kUpdate || (precision != Precision::kBfloat16 && precision != Precision::kFloat16)) return;
  GraphBuilder builder(c.graph, c.rules);
  LowerPrecision(builder, precision == Precision::kBfloat16 ? DType::kBfloat16 : DType::kFloat16, c.loss_nodes);
}

// Returns the gradient of a parameter or input as "grad/<name>".
void FetchGradient(PassContext& c, GraphBuilder& builder, const std::string& of, ValueId gradient, ValueId scale) {
  const std::string name = "grad/" + of;  // now, because new values move the names of others
  builder.set_phase(Phase::kBackward);
  const ValueId whole = scale == kNoValue ? gradient : builder.Div(gradient, builder.Cast(scale, builder.dtype(gradient)));
  // A copy with its own name, because another parameter may share the gradient.
  Node copy{.op = "Identity", .inputs = {whole}, .phase = Phase::kBackward};
  copy.outputs = {c.graph.AddValue(name, builder.dtype(whole), builder.shape(whole), Role::kGradient)};
  const ValueId fetched = c.graph.AddNode(std::move(copy)).outputs[0];
  c.graph.outputs.push_back(fetched);
  c.fetch_names.emplace(fetched, name);
}

// Throws Error(kConfig) for an input whose gradient is asked for and that has none.
[[noreturn]] void ThrowNoGradient(const PassContext& c, const std::string& wanted) {
  std::vector<std::string> names;
  for (const ValueId input : c.graph.inputs) {
    const ValueType type = c.graph.type(input);
    if (FeedName(c, input) != wanted) {
      if (IsFloating(type.dtype)) names.push_back(FeedName(c, input));
      continue;
    }
    const std::string what = "the input '" + Escaped(wanted) + "'";
    throw Error(ErrorCode::kConfig, IsFloating(type.dtype) ? "the loss does not depend on " + what + " in a way that has a gradient"
                                                           : what + " is " + type.ToString() + ", which has no gradient");
  }
  throw Error(ErrorCode::kConfig, "training has no input '" + Escaped(wanted) + "' of which to compute the gradient", "",
              Suggestion(wanted, names, "it has: " + JoinedNames(names)));
}

void FetchInputGradients(PassContext& c, GraphBuilder& builder, const std::map<ValueId, ValueId>& gradients, ValueId scale) {
  for (const std::string& wanted : c.recipe.input_gradients) {
    const auto of_input = [&](const auto& gradient) {
      return c.graph.value(gradient.first).role == Role::kInput && FeedName(c, gradient.first) == wanted;
    };
    const auto found = std::find_if(gradients.begin(), gradients.end(), of_input);
    if (found == gradients.end()) ThrowNoGradient(c, wanted);
    FetchGradient(c, builder, wanted, found->second, scale);
  }
}

void RunDifferentiate(PassContext& c) {
  if (!Trains(c.kind) || c.recipe.UsesFileAlgorithm()) return DropStops(c.graph);
  GraphBuilder builder(c.graph, c.rules);
  const ValueId scale = c.recipe.loss_scale.initial > 0 ? LossScaleValue(builder, c.recipe.loss_scale) : kNoValue;
  c.gradients = Differentiate(builder, c.loss, WithGradients(c), scale);
  FetchInputGradients(c, builder, c.gradients, scale);
  std::erase_if(c.gradients, [&](const auto& gradient) { return c.graph.value(gradient.first).role == Role::kInput; });
  for (const auto& [parameter, gradient] : c.gradients) {
    if (c.recipe.fetch_gradients) FetchGradient(c, builder, c.graph.value(parameter).name, gradient, scale);
  }
  DropStops(c.graph);
}

void RunExposeLossSums(PassContext& c) {
  GraphBuilder builder(c.graph, c.rules);
  ExposeLossSums(builder, c.divided);
}

void RunPlaceDevices(PassContext& c) {
  if (c.stages == nullptr) return;
  if (c.recipe.gather_to < 0) {
    PlaceDevices(c.graph, c.recipe.place, *c.stages);
    if (c.loss != kNoValue) PartLoss(c.graph, c.loss_nodes);
    return;
  }
  std::vector<PlaceRule> rules = c.recipe.place;
  for (PlaceRule& rule : rules) rule.stage = kTail;
  AssignTail(c.graph, c.recipe.tail, *c.stages);
  PlaceDevices(c.graph, rules, *c.stages);
  MarkTail(c.graph, *c.stages);
}

// The graphs at both batch sizes must keep the same nodes, or the comparison cannot tell what depends on the batch.
void RunSimplify(PassContext& c) { c.divided ? FoldConstants(c.graph) : Simplify(c.graph); }

// Not on GPUs, where cuDNN's convolutions pad both sides equally.
void RunFoldPads(PassContext& c) {
  if (c.recipe.device != DeviceKind::kCpu || !MayFuseLayers(c)) return;
  FoldPads(c.graph);
  RemoveDeadNodes(c.graph);
}

void RunSumPartialValues(PassContext& c) {
  if (c.kind == EntryKind::kUpdate || c.kind == EntryKind::kLastBatch) SumPartialValues(c.graph, BucketBytesOf(c.recipe));
}

void RunShardUpdates(PassContext& c) {
  if (!c.recipe.ShardsOptimizer()) return;
  const size_t fetched = c.graph.outputs.size();
  ShardUpdates(c.graph, c.place, *c.holders, *c.gradient_owners, !c.divided);
  c.unfetched = c.graph.outputs.size() - fetched;
}

void RunKeepSteps(PassContext& c) { KeepSteps(c.graph, c.recipe.device, c.recipe.threads); }

// Whether what depends only on weights is computed in the first of several runs. Not in a step that trains: it spends little time on it,
// and most of its memory is for activations. A device runs a whole program each time, as one graph.
bool KeepsSettled(const PassContext& c) { return IsForwardOnly(c.kind) && c.recipe.device == DeviceKind::kCpu && c.recipe.keep_settled; }

void RunSplitBatchNorm(PassContext& c) {
  GraphBuilder builder(c.graph, c.rules);
  SplitBatchNorm(builder, c.recipe.device);
}

void RunFuseCasts(PassContext& c) {
  GraphBuilder builder(c.graph, c.rules);
  FuseCasts(builder, c.recipe.device == DeviceKind::kCuda);
}

void RunFuseNormSums(PassContext& c) {
  if (!OnGpus(c)) return;
  GraphBuilder builder(c.graph, c.rules);
  FuseNormSums(builder, c.recipe.memory_limit == 0 && c.recipe.recompute != RecomputeMode::kFull);
}

void RunKeepWeightCopies(PassContext& c) {
  // With --gather-to, devices of one place have different nodes, but must keep the same states. A parameter that another device has updated
  // has to be rounded in any case.
  if (c.recipe.gather_to >= 0 || c.recipe.ShardsOptimizer()) return;
  GraphBuilder builder(c.graph, c.rules);
  KeepWeightCopies(builder, c.plan, Trains(c.kind) && !c.recipe.UsesFileAlgorithm());
}

void RunPackAttention(PassContext& c) {
  GraphBuilder builder(c.graph, c.rules);
  PackAttention(builder, c.recipe.device, c.recipe.threads);
}

void RunKeepLogSums(PassContext& c) { KeepLogSums(c.graph, c.recipe.device, c.recipe.threads); }

void RunRecompute(PassContext& c) {
  if (c.recompute.bytes > 0) c.recomputed = Recompute(c.graph, c.recompute, c.recipe.device, c.recipe.threads);
}

void RunOrder(PassContext& c) { OrderNodes(c.graph, c.recipe.device, c.recipe.threads); }

void RunFusePointwise(PassContext& c) {
  ForEachBody(c.graph, FusePointwise);
  FusePointwise(c.graph);
}

void RunCopyInputs(PassContext& c) {
  if (c.copies.all || !c.copies.feeds.empty()) CopyInputs(c.graph, c.copies);
}

// A node that runs again depends on nothing of the backward pass. A second stream would run it early, and keep its result for long.
void RunChooseStreams(PassContext& c) {
  const bool one = c.recipe.streams == 0 && c.recomputed.values > 0;
  ChooseStreams(c.graph, one ? 1 : c.recipe.streams, c.recipe.threads, c.scheduled);
}

void RunAssignLayouts(PassContext& c) {
  const std::vector<ValueId> before = c.graph.outputs;
  AssignLayouts(c.graph, c.plan, c.scheduled);
  // Values that are fetched in plain order keep their names.
  for (size_t i = 0; i < before.size(); ++i) {
    if (c.graph.outputs[i] == before[i]) continue;
    const auto named = c.fetch_names.find(before[i]);
    c.fetch_names.emplace(c.graph.outputs[i], named != c.fetch_names.end() ? named->second : c.graph.value(before[i]).name);
  }
}

// Large updates are joined where gradients may live longer, as there is no limit for memory. With other devices they stay apart: each fills
// time in which the stream would wait for the next gradient's sum.
void RunJoinUpdates(PassContext& c) {
  if (!OnGpus(c)) return;
  const bool alone = std::none_of(c.graph.nodes.begin(), c.graph.nodes.end(), IsCollective);
  const bool roomy = c.recipe.memory_limit == 0 && c.recipe.recompute != RecomputeMode::kFull;
  JoinUpdates(c.graph, c.scheduled, alone && roomy ? kJoinedElements : kSmallUpdateElements);
}

void RunPlanMemory(PassContext& c) {
  PlaceStateAndConstants(c.graph, c.scheduled, c.holders != nullptr ? *c.holders : StateHolders{}, c.plan);
  if (!KeepsSettled(c)) return PlanMemory(c.graph, c.plan, c.scheduled);
  const Place& place = c.plan.places[static_cast<size_t>(c.place)];
  const int64_t limit = c.recipe.memory_limit;
  c.keeps_settled = PlanMemoryKeeping(c.graph, c.plan, c.scheduled, KeptValues(c.graph, c.scheduled),
                                      limit == 0 ? std::numeric_limits<int64_t>::max() : limit - place.state_bytes - place.constants_bytes);
}

void RunEmit(PassContext& c) {
  c.graph.outputs.resize(c.graph.outputs.size() - c.unfetched);
  c.program = EmitProgram(c.graph, c.scheduled, c.output_buffers);
}

// kOptional: may be disabled; the result is the same up to rounding, only slower or larger.
enum class Need : uint8_t { kRequired, kOptional };
// What a pass writes: the graph, or how it is scheduled.
enum class Result : uint8_t { kGraph, kSchedule };

struct Pass {
  const char* name;
  void (*run)(PassContext& context);
  Need need;
  PassStage stage = PassStage::kDevice;
  Result result = Result::kGraph;
};
using enum Need;

// All passes in order, with the reason for their position.
constexpr Pass kPasses[] = {
    // Gives the graph its training semantics before any other pass looks at its operators.
    {"training_view", RunTrainingView, kRequired, PassStage::kBatch},
    // Before simplification, which must not fold random numbers that differ between batches.
    {"seed_random", Run<SeedRandom>, kRequired, PassStage::kBatch},
    // On the graph as it will be trained, before any pass that analyzes computations.
    {"expand_derivatives", Run<ExpandDerivatives>, kRequired, PassStage::kBatch},
    // Before layers are fused, while nodes have the names of the file.
    {"place_model", RunPlaceModel, kRequired, PassStage::kBatch},
    // Before fusion, which recognizes attention by its products.
    {"write_out_einsum", RunWithBodies<WriteOutEinsum>, kOptional, PassStage::kBatch},
    // Before the loss is added: nodes after the model's are those of the loss.
    {"fuse_attention", RunFuseAttention, kOptional, PassStage::kBatch},
    {"fuse_linear", RunIf<FuseLinear, MayFuseLayers>, kOptional, PassStage::kBatch},
    {"fuse_group_norm", RunIf<FuseGroupNorm, MayFuseLayers>, kOptional, PassStage::kBatch},
    {"fuse_moves", RunIf<FuseMoves, MayFuseLayers>, kOptional, PassStage::kBatch},
    {"add_loss", RunAddLoss, kRequired, PassStage::kBatch},
    // Before differentiation, so that it sees the sums.
    {"expose_loss_sums", RunExposeLossSums, kRequired, PassStage::kBatch},
    // Removes shape arithmetic and folds constants, so that differentiation only sees computations.
    {"simplify_forward", RunSimplify, kOptional, PassStage::kBatch},
    // After simplification, so that its pads are constant, and before differentiation, which would give the Pad a gradient.
    {"fold_pads", RunFoldPads, kOptional, PassStage::kBatch},
    // After simplification, so that numbers are constants, and before precision is lowered.
    {"fuse_gelu", RunFuseGelu, kOptional, PassStage::kBatch},
    // After all passes that fuse layers, and before those that must see all nodes around a function.
    {"drop_boundaries", RunIf<DropBoundaries, PlacesModel>, kRequired, PassStage::kBatch},
    // In the same place as fuse_gelu for the same reasons. Not optional: without it, a loss may be infinite. So it runs in any case; a
    // Softplus keeps the name of the operator that it replaces.
    {"fuse_softplus", RunWithBodies<FuseSoftplus>, kRequired, PassStage::kBatch},
    // After fuse_softplus, whose results need no guards. Not optional either: without it, a gradient may be NaN.
    {"guard_gradients", RunGuardGradients, kRequired, PassStage::kBatch},
    // Before differentiation, since gradients have the types of their values. After simplification, since constants have no precision to
    // lower.
    {"lower_precision", RunLowerPrecision, kRequired, PassStage::kBatch},
    {"differentiate", RunDifferentiate, kRequired, PassStage::kBatch},
    {"add_optimizer", RunAddOptimizer, kRequired, PassStage::kBatch},
    // Gradients of operators repeat common work and multiply by ones, so simplify again.
    {"simplify", RunSimplify, kOptional, PassStage::kBatch},
    // After differentiation, to include gradients.
    {"allow_tf32", RunIf<AllowTf32, RoundsToTf32>, kOptional, PassStage::kBatch},
    // Before the batch is divided, which may forbid it to a node that each device computes for itself.
    {"relax_order", RunIf<RelaxOrder, MayRelaxOrder>, kOptional, PassStage::kBatch},
    // After differentiation, since the gradient has its own sums.
    {"expose_batch_norm_sums", RunIf<ExposeBatchNormSums, SumsStatistics>, kRequired, PassStage::kBatch},
    // All nodes exist, and the batch is not divided yet.
    {"place_devices", RunPlaceDevices, kRequired, PassStage::kBatch},
    // If there are several devices, divide_graph.cc divides the batch (replicate_data) and entry_programs.cc splits the stages here, since
    // this makes several graphs of one. This is the first pass per device, because collectives must run in the same order on all devices
    // and later passes may order the nodes of two devices differently.
    {"sum_partial_values", RunSumPartialValues, kRequired},
    // After gradients are summed, and before anything else, for the same reason: it adds collectives.
    {"shard_updates", RunShardUpdates, kRequired},
    // Simplifies what the division needed unchanged.
    {"simplify_device", RunIf<Simplify, IsDivided>, kOptional},
    // Per device, where slices of samples are ordinary slices; before pointwise fusion, which would take the sums.
    {"concat_gradients", Run<ConcatGradients>, kOptional},
    // Per device; before recompute, which may undo it if memory is short.
    {"keep_steps", RunKeepSteps, kOptional},
    // After differentiation, whose rule is for the whole operator; before pointwise fusion.
    {"split_batch_norm", RunSplitBatchNorm, kOptional},
    // After differentiation and the division of the batch; before pointwise fusion.
    {"fuse_epilogues", RunIf<FuseEpilogues, OnGpus>, kOptional},
    // After differentiation, whose rule includes the bias; before pointwise fusion.
    {"split_conv_bias", RunIf<SplitConvBias, OnGpus>, kOptional},
    // After fuse_epilogues, which expects the casts where differentiation put them.
    {"fuse_casts", RunFuseCasts, kOptional},
    // After fuse_casts, which gives the loss and its gradient their 16-bit forms; per device, where the sum of the weights over all devices
    // no longer depends on the loss. Before nodes are chosen to be recomputed.
    {"fuse_loss_gradient", Run<FuseLossGradient>, kOptional},
    // After gradients are all-reduced; before passes that count the bytes of gradients.
    {"narrow_gradients", Run<NarrowGradients>, kOptional},
    // After fuse_casts, which expects casts; before nodes are ordered, because updates come after the readers of copies.
    {"keep_weight_copies", RunKeepWeightCopies, kOptional},
    // After the batch is divided and casts are where they stay; before nodes are chosen to be recomputed, which could be the removed
    // copies.
    {"pack_attention", RunPackAttention, kOptional},
    // After pack_attention, which expects operators without it; before recompute, which may undo it if memory is short.
    {"keep_log_sums", RunKeepLogSums, kOptional},
    // After fuse_casts, which makes the normalizations, and pack_attention, which moves casts; before pointwise fusion, which takes sums.
    {"fuse_norm_sums", RunFuseNormSums, kOptional},
    // After split_batch_norm, whose numbers the masks are computed from; before pointwise operators are remade or fused, which takes masks.
    {"fuse_norm_masks", RunIf<FuseNormMasks, OnGpus>, kOptional},
    // After simplification, which would merge the copies; before fusion, which takes the recomputed nodes into its groups.
    {"remake_pointwise", Run<RemakePointwise>, kOptional},
    // Does nothing if memory suffices: after memory planning, the caller says how many bytes must be saved.
    {"recompute", RunRecompute, kOptional},
    // After the last pass that inserts nodes into the backward pass.
    {"order_gradients", Run<OrderGradients>, kOptional},
    // Moves updates up to where their gradients are ready, so that gradients die early.
    {"order_nodes", RunOrder, kOptional},
    // In execution order, so that a group is never computed after its first reader.
    {"fuse_pointwise", RunFusePointwise, kOptional},
    // After simplification, which removes copies, and fusion, which may compute a view as a part of a group.
    {"copy_states", Run<CopyStates>, kRequired},
    // After fusion, which needs constants of bodies inside them; before layouts, as constants become operands.
    {"lower_bodies", Run<LowerBodies>, kRequired},
    // After fusion, which would fuse the copies; before streams, since copies need their own.
    {"copy_inputs", RunCopyInputs, kRequired},
    // Before anything that depends on the threads of a stream, such as kernels and their layouts.
    {"choose_streams", RunChooseStreams, kOptional, PassStage::kDevice, Result::kSchedule},
    // After fusion, whose groups would end at every change of layout; before kernels, which are chosen by layout.
    {"assign_layouts", RunAssignLayouts, kOptional},
    // After layouts, which would give all members of a joined update the same one.
    {"join_updates", RunJoinUpdates, kOptional},
    {"join_pointwise", RunIf<JoinPointwise, OnGpus>, kOptional},
    // From here on nodes and their order are fixed: kernels, placements and instructions are indexed by position.
    {"choose_kernels", Run<ChooseKernels>, kRequired, PassStage::kDevice, Result::kSchedule},
    // Streams and their events: memory may only be shared by values whose uses are ordered.
    {"assign_streams", Run<AssignStreams>, kRequired, PassStage::kDevice, Result::kSchedule},
    {"insert_events", Run<InsertEvents>, kRequired, PassStage::kDevice, Result::kSchedule},
    {"elide_events", Run<ElideEvents>, kOptional, PassStage::kDevice, Result::kSchedule},
    {"plan_memory", RunPlanMemory, kRequired, PassStage::kDevice, Result::kSchedule},
    {"emit_program", RunEmit, kRequired, PassStage::kDevice, Result::kSchedule},
};

bool Contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

void CheckControl(const PassControl& control) {
  const auto check = [](const std::string& name, const char* flag) {
    if (std::ranges::find(kPasses, name, &Pass::name) != std::end(kPasses)) return;
    throw Error(ErrorCode::kConfig, std::string(flag) + ": unknown pass '" + Escaped(name) + "'", "",
                "the passes are: " + JoinedTexts(kPasses, [](const Pass& pass) { return pass.name; }));
  };
  if (!control.dump_after.empty() && control.dump_after != "all") check(control.dump_after, "--dump-after");
  if (!control.stop_after.empty()) check(control.stop_after, "--stop-after");
  for (const std::string& name : control.disabled) {
    check(name, "--disable-pass");
    for (const Pass& pass : kPasses) {
      if (pass.name == name && pass.need == kRequired) throw Error(ErrorCode::kConfig, "--disable-pass: '" + name + "' cannot be disabled");
    }
  }
}

}  // namespace

PassStage StageOfPass(const std::string& name) {
  for (const Pass& pass : kPasses) {
    if (pass.name == name) return pass.stage;
  }
  return PassStage::kDevice;
}

void RunPipeline(PassContext& context, const PassControl& control) {
  RunStage(context, control, PassStage::kBatch);
  RunStage(context, control, PassStage::kDevice);
}

void RunStage(PassContext& context, const PassControl& control, PassStage stage) {
  CheckControl(control);
  if (StageOfPass(control.stop_after) < stage) return;
  VerifyGraph(context.graph);
  context.scheduled.device = context.recipe.device;
  context.scheduled.threads = context.recipe.threads;
  context.scheduled.place = context.place;
  std::string before = control.dump_after.empty() ? "" : ToText(context.graph);
  for (const Pass& pass : kPasses) {
    if (pass.stage != stage || Contains(control.disabled, pass.name)) continue;
    const Stopwatch time;
    pass.run(context);
    const double ms = time.ms();
    if (pass.result == Result::kGraph) VerifyGraph(context.graph);
    if (control.log != nullptr) {
      if (control.time_passes) control.log->Time(pass.name, ms, context.graph.nodes.size());
      if (control.dump_after == "all" || control.dump_after == pass.name) {
        std::string after = ToText(context.graph);
        if (after != before) control.log->Dump(pass.name, after);
        before = std::move(after);
      }
    }
    if (control.stop_after == pass.name) return;
  }
}

}  // namespace gradloom
