#include "compiler/passes/pipeline.h"

#include <algorithm>
#include <chrono>
#include <ostream>

#include "compiler/graph/text.h"
#include "compiler/graph/verify_graph.h"
#include "compiler/ops/op.h"
#include "compiler/passes/accumulate.h"
#include "compiler/passes/assign_layouts.h"
#include "compiler/passes/assign_streams.h"
#include "compiler/passes/choose_kernels.h"
#include "compiler/passes/concat_gradients.h"
#include "compiler/passes/differentiate.h"
#include "compiler/passes/emit_program.h"
#include "compiler/passes/events.h"
#include "compiler/passes/expand_derivatives.h"
#include "compiler/passes/expose_sums.h"
#include "compiler/passes/fold_pads.h"
#include "compiler/passes/fuse_attention.h"
#include "compiler/passes/fuse_casts.h"
#include "compiler/passes/fuse_epilogues.h"
#include "compiler/passes/fuse_gelu.h"
#include "compiler/passes/fuse_group_norm.h"
#include "compiler/passes/fuse_linear.h"
#include "compiler/passes/fuse_moves.h"
#include "compiler/passes/fuse_pointwise.h"
#include "compiler/passes/gather_tail.h"
#include "compiler/passes/join_updates.h"
#include "compiler/passes/keep_steps.h"
#include "compiler/passes/loss_scale.h"
#include "compiler/passes/lower_precision.h"
#include "compiler/passes/narrow_gradients.h"
#include "compiler/passes/order_nodes.h"
#include "compiler/passes/plan_memory.h"
#include "compiler/passes/region_bodies.h"
#include "compiler/passes/remake_pointwise.h"
#include "compiler/passes/replicate_data.h"
#include "compiler/passes/seed_random.h"
#include "compiler/passes/simplify.h"
#include "compiler/passes/split_batch_norm.h"
#include "compiler/passes/split_conv_bias.h"
#include "compiler/passes/training_view.h"
#include "compiler/passes/write_out_einsum.h"

namespace gradloom {
namespace {

bool Trains(EntryKind kind) { return kind == EntryKind::kStep || kind == EntryKind::kAccumulate || kind == EntryKind::kLastBatch; }

// What the file's own algorithm keeps gets its next values.
void BindFileUpdates(PassContext& c) {
  std::map<ValueId, ValueId> next_of;
  for (const auto& [state, next] : c.file_updates) next_of.emplace(state, next);
  // A statistic that is bound is not also kept by the node that makes it.
  for (const Value& value : c.graph.values()) {
    if (next_of.contains(value.next_of)) c.graph.value(value.id).next_of = kNoValue;
  }
  for (const auto& [state, next] : next_of) c.graph.value(next).next_of = state;
}

void RunTrainingView(PassContext& c) {
  GraphBuilder builder(c.graph, c.rules);
  // The file's own algorithm says itself what training does.
  const bool restores = c.recipe.mode == GraphMode::kTrain && !c.recipe.TrainsByFile();
  ApplyTrainingView(builder, Trains(c.kind) ? (restores ? ModelView::kTrain : ModelView::kAsWritten) : ModelView::kInference);
  // Before anything removes what nobody reads; derivatives make further nodes that keep statistics, so once more with the loss.
  if (c.recipe.TrainsByFile() && Trains(c.kind)) BindFileUpdates(c);
}

void RunSeedRandom(PassContext& c) {
  GraphBuilder builder(c.graph, c.rules);
  SeedRandom(builder);
}

void RunExpandDerivatives(PassContext& c) {
  GraphBuilder builder(c.graph, c.rules);
  ExpandDerivatives(builder);
}

void RunWriteOutEinsum(PassContext& c) {
  const auto write_out = [&](Graph& graph) {
    GraphBuilder builder(graph, c.rules);
    WriteOutEinsum(builder);
  };
  ForEachBody(c.graph, write_out);
  write_out(c.graph);
}

// Whether there is a model whose nodes may become others: an update has none, and parts of one are placed by its nodes' names.
bool MayFuseLayers(const PassContext& c) { return c.kind != EntryKind::kUpdate && c.stages == nullptr; }

void RunFuseAttention(PassContext& c) {
  // On a GPU cuDNN's, in 16 bits with nothing dropped, is ahead of two products and a softmax. Those over products move as many bytes as
  // these, but for scores that a causal mask hides: they are made in blocks of 256 queries.
  constexpr int64_t kTwoBlocks = 512;
  const bool cpu = c.recipe.device == DeviceKind::kCpu;
  const bool low = c.recipe.precision == Precision::kBfloat16 || c.recipe.precision == Precision::kFloat16;
  if (!MayFuseLayers(c)) return;
  GraphBuilder builder(c.graph, c.rules);
  FuseAttention(
      builder, c.parameters,
      {.trained_masks = cpu && !low, .fewest_causal = cpu || low ? 0 : kTwoBlocks, .fewest_causal_dropped = cpu ? 0 : kTwoBlocks});
}

void RunFuseGelu(PassContext& c) {
  // For fuse_epilogues.
  const bool low = c.recipe.precision == Precision::kBfloat16 || c.recipe.precision == Precision::kFloat16;
  if (MayFuseLayers(c) && low && c.recipe.device == DeviceKind::kCuda) FuseGelu(c.graph);
}

void RunFuseLinear(PassContext& c) {
  if (!MayFuseLayers(c)) return;
  GraphBuilder builder(c.graph, c.rules);
  FuseLinear(builder);
}

void RunFuseGroupNorm(PassContext& c) {
  if (!MayFuseLayers(c)) return;
  GraphBuilder builder(c.graph, c.rules);
  FuseGroupNorm(builder);
}

void RunFuseMoves(PassContext& c) {
  if (!MayFuseLayers(c)) return;
  GraphBuilder builder(c.graph, c.rules);
  FuseMoves(builder);
}

// The loss of the file's own algorithm is there.
void TakeFileLoss(PassContext& c) {
  c.loss = c.file_loss;
  if (c.graph.value(c.loss).shape.elements() != 1) {
    throw Error(ErrorCode::kShape, "the file's algorithm differentiates '" + Escaped(c.graph.value(c.loss).name) + "' " +
                                       c.graph.type(c.loss).ToString() + ", which is not a scalar and cannot be the loss");
  }
  if (Trains(c.kind)) BindFileUpdates(c);
}

void RunAddLoss(PassContext& c) {
  if (c.kind == EntryKind::kPredict || c.kind == EntryKind::kUpdate || c.recipe.losses.empty()) return;
  c.first_loss_node = c.graph.next_node_id();
  if (c.recipe.TrainsByFile()) {
    TakeFileLoss(c);
  } else {
    GraphBuilder builder(c.graph, c.rules);
    LossOperands operands(builder, c.fetch_names, c.extents);
    c.loss = AddLoss(builder, c.recipe.losses, c.batch, operands);
    c.feed_names = operands.feed_names();
  }
  for (Node& node : c.graph.nodes) {
    if (c.recipe.gather_to >= 0 && node.id >= c.first_loss_node) node.device = kTail;
  }
  if (Trains(c.kind) && !c.recipe.fetch_outputs) c.graph.outputs.clear();
  c.graph.outputs.insert(c.graph.outputs.begin(), c.loss);
  c.fetch_names.emplace(c.loss, "loss");
}

void RunLowerPrecision(PassContext& c) {
  const Precision precision = c.recipe.precision;
  if (c.kind == EntryKind::kUpdate || (precision != Precision::kBfloat16 && precision != Precision::kFloat16)) return;
  GraphBuilder builder(c.graph, c.rules);
  LowerPrecision(builder, precision == Precision::kBfloat16 ? DType::kBfloat16 : DType::kFloat16, c.first_loss_node);
}

void FetchGradients(PassContext& c, GraphBuilder& builder, ValueId scale) {
  builder.set_phase(Phase::kBackward);
  for (const auto& [parameter, gradient] : c.gradients) {
    const ValueId whole = scale == kNoValue ? gradient : builder.Div(gradient, builder.Cast(scale, builder.dtype(gradient)));
    // A copy of its own name: the gradient itself may be shared with another parameter.
    Node copy{.op = "Identity", .inputs = {whole}, .phase = Phase::kBackward};
    copy.outputs = {c.graph.AddValue("grad/" + c.graph.value(parameter).name, builder.dtype(whole), builder.shape(whole), Role::kGradient)};
    c.graph.outputs.push_back(c.graph.AddNode(std::move(copy)).outputs[0]);
  }
}

void RunDifferentiate(PassContext& c) {
  if (!Trains(c.kind) || c.recipe.TrainsByFile()) return DropStops(c.graph);
  GraphBuilder builder(c.graph, c.rules);
  const ValueId scale = c.recipe.loss_scale.initial > 0 ? LossScaleValue(builder, c.recipe.loss_scale) : kNoValue;
  c.gradients = Differentiate(builder, c.loss, c.parameters, scale);
  if (c.recipe.fetch_gradients) FetchGradients(c, builder, scale);
  DropStops(c.graph);
}

void RunAllowTf32(PassContext& c) {
  if (c.recipe.precision == Precision::kTf32) AllowTf32(c.graph);
}

int CopiesOfModel(const PassContext& c) { return c.recipe.devices / (c.stages == nullptr ? 1 : c.stages->count); }

bool KeepsParts(const PassContext& c) { return KeepsParts(c.recipe, CopiesOfModel(c)); }

// What a batch's gradient counts in the sum. A batch that is not divided is every device's.
double ShareOfBatch(const PassContext& c) {
  const int64_t alike = KeepsParts(c) && !c.divided ? CopiesOfModel(c) : 1;
  return 1.0 / static_cast<double>(c.recipe.accumulate * alike);
}

void RunAddOptimizer(PassContext& c) {
  if (c.kind == EntryKind::kEval || c.kind == EntryKind::kPredict || c.recipe.TrainsByFile()) return;
  GraphBuilder builder(c.graph, c.rules);
  builder.set_phase(Phase::kUpdate);
  if (c.kind == EntryKind::kAccumulate) return AddAccumulation(builder, c.gradients, ShareOfBatch(c), KeepsParts(c));
  if (c.kind == EntryKind::kLastBatch) c.gradients = CompleteAccumulation(builder, c.gradients, ShareOfBatch(c), KeepsParts(c));
  if (c.kind == EntryKind::kUpdate) c.gradients = TakeAccumulated(builder, c.parameters, KeepsParts(c));
  const ValueId norm = AddOptimizer(builder, c.recipe.optimizer, c.gradients, c.recipe.loss_scale);
  if (norm == kNoValue) return;
  c.graph.outputs.push_back(norm);
  c.fetch_names.emplace(norm, "grad_norm");
}

void RunExposeLossSums(PassContext& c) {
  GraphBuilder builder(c.graph, c.rules);
  ExposeLossSums(builder, c.divided);
}

void RunExposeBatchNormSums(PassContext& c) {
  if (!c.divided || !c.recipe.sync_bn) return;
  GraphBuilder builder(c.graph, c.rules);
  ExposeBatchNormSums(builder);
}

void RunPlaceDevices(PassContext& c) {
  if (c.stages == nullptr) return;
  if (c.recipe.gather_to < 0) {
    PlaceDevices(c.graph, c.recipe.place, *c.stages);
    if (c.loss == kNoValue) return;
    const std::vector<ValueId> terms = PartLoss(c.graph, c.first_loss_node);
    for (size_t i = 0; i < terms.size(); ++i) c.fetch_names[terms[i]] = "loss/" + std::to_string(i);
    return;
  }
  std::vector<PlaceRule> rules = c.recipe.place;
  for (PlaceRule& rule : rules) rule.stage = kTail;
  PlaceDevices(c.graph, rules, *c.stages);
  MarkTail(c.graph, *c.stages);
}

// Two batch sizes must give the same nodes, or it cannot be seen what grows.
void RunSimplify(PassContext& c) { c.divided ? FoldConstants(c.graph) : Simplify(c.graph); }

// cuDNN's convolutions pad both sides alike; and parts of a model are placed as they stand.
void RunFoldPads(PassContext& c) {
  if (c.recipe.device != DeviceKind::kCpu || !MayFuseLayers(c)) return;
  FoldPads(c.graph);
  RemoveDeadNodes(c.graph);
}

void RunSimplifyDevice(PassContext& c) {
  if (c.divided) Simplify(c.graph);
}

void RunSumPartialValues(PassContext& c) {
  if (c.kind == EntryKind::kUpdate || c.kind == EntryKind::kLastBatch) SumPartialValues(c.graph, BucketBytesOf(c.recipe));
}

void RunConcatGradients(PassContext& c) {
  GraphBuilder builder(c.graph, c.rules);
  ConcatGradients(builder);
}

void RunKeepSteps(PassContext& c) { KeepSteps(c.graph, c.recipe.device, c.recipe.threads); }

void RunSplitBatchNorm(PassContext& c) {
  GraphBuilder builder(c.graph, c.rules);
  SplitBatchNorm(builder, c.recipe.device);
}

void RunFuseEpilogues(PassContext& c) {
  if (c.recipe.device != DeviceKind::kCuda) return;
  GraphBuilder builder(c.graph, c.rules);
  FuseEpilogues(builder);
}

void RunNarrowGradients(PassContext& c) {
  if (c.recipe.device == DeviceKind::kCpu) NarrowGradients(c.graph);
}

void RunSplitConvBias(PassContext& c) {
  if (c.recipe.device != DeviceKind::kCuda) return;
  GraphBuilder builder(c.graph, c.rules);
  SplitConvBias(builder);
}

void RunFuseCasts(PassContext& c) {
  if (c.recipe.device != DeviceKind::kCuda) return;
  GraphBuilder builder(c.graph, c.rules);
  FuseCasts(builder);
}

void RunRemakePointwise(PassContext& c) { RemakePointwise(c.graph); }

void RunRecompute(PassContext& c) {
  if (c.recompute_bytes > 0) c.recomputed = Recompute(c.graph, c.recompute_bytes, c.recipe.device, c.recipe.threads);
}

void RunOrder(PassContext& c) { OrderNodes(c.graph, c.recipe.device, c.recipe.threads); }

void RunFusePointwise(PassContext& c) {
  ForEachBody(c.graph, FusePointwise);
  FusePointwise(c.graph);
}

void RunLowerBodies(PassContext& c) { LowerBodies(c.graph); }

void RunCopyInputs(PassContext& c) {
  if (c.copies.all || !c.copies.feeds.empty()) CopyInputs(c.graph, c.copies);
}

void RunChooseStreams(PassContext& c) { ChooseStreams(c.graph, c.recipe.streams, c.recipe.threads, c.scheduled); }

void RunAssignStreams(PassContext& c) { AssignStreams(c.graph, c.scheduled); }

void RunInsertEvents(PassContext& c) { InsertEvents(c.graph, c.scheduled); }

void RunElideEvents(PassContext& c) { ElideEvents(c.graph, c.scheduled); }

void RunAssignLayouts(PassContext& c) {
  const std::vector<ValueId> before = c.graph.outputs;
  AssignLayouts(c.graph, c.plan, c.scheduled);
  // What is fetched in plain order keeps its name.
  for (size_t i = 0; i < before.size(); ++i) {
    if (c.graph.outputs[i] == before[i]) continue;
    const auto named = c.fetch_names.find(before[i]);
    c.fetch_names.emplace(c.graph.outputs[i], named != c.fetch_names.end() ? named->second : c.graph.value(before[i]).name);
  }
}

void RunJoinUpdates(PassContext& c) {
  if (c.recipe.device == DeviceKind::kCuda) JoinUpdates(c.graph, c.scheduled);
}

void RunChooseKernels(PassContext& c) { ChooseKernels(c.graph, c.scheduled); }

void RunPlanMemory(PassContext& c) {
  PlaceStateAndConstants(c.graph, c.scheduled, c.holders != nullptr ? *c.holders : StateHolders{}, c.plan);
  PlanMemory(c.graph, c.plan, c.scheduled);
}

void RunEmit(PassContext& c) { c.program = EmitProgram(c.graph, c.scheduled, c.output_buffers); }

struct Pass {
  const char* name;
  void (*run)(PassContext& context);
  bool optional = false;  // may be disabled: the result is the same, only slower or larger
  bool changes_graph = true;
  PassStage stage = PassStage::kDevice;
};

// The order, and why:
constexpr Pass kPasses[] = {
    // What is trained is a forward graph with training semantics: before anything looks at its operators.
    {"training_view", RunTrainingView, false, true, PassStage::kBatch},
    // Before simplification, which must not fold what differs between batches.
    {"seed_random", RunSeedRandom, false, true, PassStage::kBatch},
    // Of the graph as it will be trained, before anything looks for what computes.
    {"expand_derivatives", RunExpandDerivatives, false, true, PassStage::kBatch},
    // Before fusion, which knows attention by its products.
    {"write_out_einsum", RunWriteOutEinsum, true, true, PassStage::kBatch},
    // Before the loss, whose nodes are those that come after the model's.
    {"fuse_attention", RunFuseAttention, true, true, PassStage::kBatch},
    {"fuse_linear", RunFuseLinear, true, true, PassStage::kBatch},
    {"fuse_group_norm", RunFuseGroupNorm, true, true, PassStage::kBatch},
    {"fuse_moves", RunFuseMoves, true, true, PassStage::kBatch},
    {"add_loss", RunAddLoss, false, true, PassStage::kBatch},
    // Before differentiation, which sees the sums then.
    {"expose_loss_sums", RunExposeLossSums, false, true, PassStage::kBatch},
    // Shape arithmetic and constants are gone before differentiation, so that it sees only what computes.
    {"simplify_forward", RunSimplify, true, true, PassStage::kBatch},
    // Where its numbers are known, and before differentiation, which would give the Pad a gradient.
    {"fold_pads", RunFoldPads, true, true, PassStage::kBatch},
    // Where numbers are constants and all have all their bits.
    {"fuse_gelu", RunFuseGelu, true, true, PassStage::kBatch},
    // Before differentiation: gradients have the types of their values. After simplification: what is known has no precision.
    {"lower_precision", RunLowerPrecision, false, true, PassStage::kBatch},
    {"differentiate", RunDifferentiate, false, true, PassStage::kBatch},
    {"add_optimizer", RunAddOptimizer, false, true, PassStage::kBatch},
    // The gradients of operators repeat each other's work and multiply by ones: once more.
    {"simplify", RunSimplify, true, true, PassStage::kBatch},
    // Gradients too.
    {"allow_tf32", RunAllowTf32, true, true, PassStage::kBatch},
    // After differentiation: its gradient has sums of its own.
    {"expose_batch_norm_sums", RunExposeBatchNormSums, false, true, PassStage::kBatch},
    // Every node is there, and what a device gets is not yet divided by samples.
    {"place_devices", RunPlaceDevices, false, true, PassStage::kBatch},
    // Here the batch is divided (replicate_data) and the stages are cut apart, where there are several devices; compile.cc does it,
    // as it makes several graphs of one. The first device pass, because collectives must run in the same order on all devices: later passes
    // may order the nodes of two devices differently.
    {"sum_partial_values", RunSumPartialValues},
    // What was kept apart for the division is brought together.
    {"simplify_device", RunSimplifyDevice, true},
    // By device, where parts of samples are like any others; before what looks at pointwise operators, which would take the sums.
    {"concat_gradients", RunConcatGradients, true},
    // By device, and before recompute, which may undo it where memory is short.
    {"keep_steps", RunKeepSteps, true},
    // After differentiation, whose rule is the whole operator's; before what looks at pointwise operators.
    {"split_batch_norm", RunSplitBatchNorm, true},
    // After differentiation and the division of the batch; before what looks at pointwise operators.
    {"fuse_epilogues", RunFuseEpilogues, true},
    // After differentiation, for which the bias is the convolution's; before what looks at pointwise operators.
    {"split_conv_bias", RunSplitConvBias, true},
    // After fuse_epilogues, which looks for casts where differentiation has put them.
    {"fuse_casts", RunFuseCasts, true},
    // Where gradients of all devices have been added up; before what counts the bytes of gradients.
    {"narrow_gradients", RunNarrowGradients, true},
    // After simplification, which would make one of what is there twice, and before fusion, which takes what is made again into its groups.
    {"remake_pointwise", RunRemakePointwise, true},
    // Nothing where memory suffices: compile.cc says how much
    // must go when it has seen the memory plan.
    {"recompute", RunRecompute, true},
    // Updates move up to where their gradients are ready, so that gradients die early.
    {"order_nodes", RunOrder, true},
    // In the order in which nodes will run, so that a group is never made later than it is read.
    {"fuse_pointwise", RunFusePointwise, true},
    // Behind fusion, for which bodies have the constants of their arithmetic; before layouts, as constants become operands.
    {"lower_bodies", RunLowerBodies},
    // Behind fusion, which would take a copy for arithmetic; before streams, of which it needs one.
    {"copy_inputs", RunCopyInputs, false},
    // Before anything that goes by the threads of a stream, as kernels and their layouts do.
    {"choose_streams", RunChooseStreams, true, false},
    // After fusion, which would end at every change of layout; before kernels, which are chosen by layout.
    {"assign_layouts", RunAssignLayouts, true},
    // After layouts, which would give all members one.
    {"join_updates", RunJoinUpdates, true},
    // From here on nodes and their order are fixed: kernels, addresses and instructions go by position.
    {"choose_kernels", RunChooseKernels, false, false},
    // Streams, and what orders them: memory may be shared only by what is in order.
    {"assign_streams", RunAssignStreams, false, false},
    {"insert_events", RunInsertEvents, false, false},
    {"elide_events", RunElideEvents, true, false},
    {"plan_memory", RunPlanMemory, false, false},
    {"emit_program", RunEmit, false, false},
};

bool Contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// Of a pass; the last one where there is no such name.
PassStage StageOf(const std::string& name) {
  for (const Pass& pass : kPasses) {
    if (pass.name == name) return pass.stage;
  }
  return PassStage::kDevice;
}

void CheckControl(const PassControl& control) {
  const std::vector<std::string> names = PassNames();
  const auto check = [&](const std::string& name, const char* flag) {
    if (Contains(names, name)) return;
    std::string all;
    for (const std::string& known : names) all += (all.empty() ? "" : ", ") + known;
    throw Error(ErrorCode::kConfig, std::string(flag) + ": unknown pass '" + Escaped(name) + "'", "", "the passes are: " + all);
  };
  if (!control.dump_after.empty() && control.dump_after != "all") check(control.dump_after, "--dump-after");
  if (!control.stop_after.empty()) check(control.stop_after, "--stop-after");
  for (const std::string& name : control.disabled) {
    check(name, "--disable-pass");
    for (const Pass& pass : kPasses) {
      if (pass.name == name && !pass.optional) throw Error(ErrorCode::kConfig, "--disable-pass: '" + name + "' cannot be disabled");
    }
  }
}

}  // namespace

std::vector<std::string> PassNames() {
  std::vector<std::string> names;
  for (const Pass& pass : kPasses) names.emplace_back(pass.name);
  return names;
}

void RunPipeline(PassContext& context, const PassControl& control) {
  RunStage(context, control, PassStage::kBatch);
  RunStage(context, control, PassStage::kDevice);
}

void RunStage(PassContext& context, const PassControl& control, PassStage stage) {
  CheckControl(control);
  if (StageOf(control.stop_after) < stage) return;
  VerifyGraph(context.graph);
  context.scheduled.device = context.recipe.device;
  context.scheduled.threads = context.recipe.threads;
  context.scheduled.place = context.place;
  std::string before = control.dump_after.empty() ? "" : ToText(context.graph);
  for (const Pass& pass : kPasses) {
    if (pass.stage != stage || Contains(control.disabled, pass.name)) continue;
    const auto start = std::chrono::steady_clock::now();
    pass.run(context);
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (pass.changes_graph) VerifyGraph(context.graph);
    if (control.log != nullptr) {
      if (control.time_passes) *control.log << "pass " << pass.name << "  " << ms << " ms  " << context.graph.nodes.size() << " nodes\n";
      if (control.dump_after == "all" || control.dump_after == pass.name) {
        std::string after = ToText(context.graph);
        if (after != before) *control.log << "# after " << pass.name << "\n" << after << "\n";
        before = std::move(after);
      }
    }
    if (control.stop_after == pass.name) return;
  }
}

}  // namespace gradloom
