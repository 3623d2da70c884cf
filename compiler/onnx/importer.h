// Converts the nodes of a model to a Graph. Private to compiler/onnx.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/onnx/emitter.h"
#include "compiler/onnx/import_counted.h"
#include "compiler/onnx/model_file.h"
#include "compiler/onnx/operator_support.h"
#include "compiler/onnx/torch/detached.h"
#include "compiler/onnx/torch/named_stops.h"
#include "compiler/onnx/type_rules.h"

namespace gradloom {

// What a name refers to: a tensor, or a sequence of tensors whose length is known (a static sequence).
struct Binding {
  ValueId tensor = kNoValue;
  std::shared_ptr<const std::vector<ValueId>> sequence;
  // For a sequence whose elements have not been created yet: they are along axis 0 of this tensor, each with extent 1.
  ValueId rows = kNoValue;
};

// The names visible to the nodes of one graph or function body.
struct Scope {
  const Scope* outer = nullptr;  // the scope of the enclosing graph; null for the main graph and for functions
  size_t depth = 0;              // the number of enclosing bodies of branches and loops; its values belong to the innermost one
  std::string path;              // the path of calls, a prefix of names and origins: "" or "layer1/"
  const OpsetVersions* opsets = nullptr;
  std::unordered_map<std::string, Binding> names;
  // The names that the values of formal outputs get.
  std::unordered_map<std::string, std::string> renamed;
  // The attributes of a function call, for attributes in the body that refer to them; null outside of functions.
  const std::unordered_map<std::string, const onnx::AttributeProto*>* attributes = nullptr;
};

// A body of a branch or a loop that is decided during a step, during its import. It is a graph of its own.
struct RegionFrame {
  std::unique_ptr<Graph> graph;
  std::unique_ptr<Emitter> emitter;
  std::vector<ValueId> captured;                           // values of the enclosing graph; they are the last inputs of the body, in order
  std::map<ValueId, ValueId> inner;                        // the value in the body for a value of the enclosing graph
  std::unordered_map<const Binding*, Binding> translated;  // bindings of enclosing scopes, translated for the body

  // Translates a size of the body to the enclosing graph; returns false if that does not have it.
  bool Outside(const Size& size, Size& outside) const;
};

// The axes and directions of a Scan's inputs and outputs.
struct ScanForm;

// A Loop or a Scan.
struct LoopParts {
  const onnx::GraphProto& graph;
  std::vector<Binding> states = {};
  ValueId trip_count = kNoValue;      // kNoValue: there is none
  int64_t trips = -1;                 // the trip count if it is known; -1 otherwise
  Size counted = {};                  // the trip count if it is data-dependent but bounded
  ValueId condition = kNoValue;       // before the first iteration; kNoValue: true
  bool has_condition_output = false;  // the body's first output is the condition to continue
  std::vector<std::string> names;     // of its outputs; empty: not used
  // Binds the names that an iteration begins with: its number and the states.
  std::function<void(Scope& body, ValueId trip, const std::vector<Binding>& states)> enter = {};
  // Returns the row of scan output `output` that iteration `trip` writes.
  std::function<ValueId(ValueId trip, size_t output)> place = {};
};

struct MaskedWrite;

// The arguments of a function body.
struct Call {
  std::string origin;
  std::vector<Binding> inputs;
  std::unordered_map<std::string, const onnx::AttributeProto*> attributes;
  std::vector<std::string> output_names;  // empty if an output is not used
};

// The batch size that a file declares as a number, or is read with (ImportOptions::open_batch), and the one that it gets; both 0 if there
// is none. `symbol`: the name of a symbolic batch dimension.
struct BatchNumbers {
  int64_t declared = 0, actual = 0;
  std::string symbol = {};
};
BatchNumbers BatchNumbersOf(const ModelFile& file, const ImportOptions& options);

// Returns the options for another batch size, if the file declares one as a number.
ImportOptions WithBatch(const ModelFile& file, ImportOptions options, int64_t declared, int64_t batch);

// Returns the options with which an input has the batch only if the file declares `batch` samples along its first axis.
ImportOptions WithSamplesFirst(const ModelFile& file, ImportOptions options, int64_t batch);

// Returns the options with which inputs have the batch along their second axis, after the steps of a sequence; nullopt if none has several
// steps, or if one is no sequence of features or of numbers of tokens.
std::optional<ImportOptions> WithStepsFirst(const ModelFile& file, ImportOptions options);

// Returns the options with which no extent that is a number in the file is the batch.
ImportOptions WithDeclaredShapes(const ModelFile& file, ImportOptions options);

// The inputs with the declared batch along the first axis and the same extent along the second (ImportOptions::batch_of_pairs).
std::vector<std::string> PossiblePairs(const ModelFile& file, const ImportOptions& options, int64_t declared);

// A node in messages, with the functions and bodies that contain it. A node without a name is identified by its first output.
std::string WhereOf(const onnx::NodeProto& proto, const Scope& scope);

class Importer {
 public:
  // `watch` sees every node; it may be null.
  Importer(const ModelFile& file, const ImportOptions& options, BatchObserver* watch = nullptr);

  // Sets the inputs whose extents are counted. To be called before Run.
  void set_counted(const CountedInputs& counted) { counted_ = counted; }
  const std::map<ValueId, int64_t>& counts() const { return counts_; }

  ImportedGraph Run();

 private:
  using NodeList = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

  // inputs.cc
  void AddInputs(Scope& scope);
  Binding BindingOf(const std::string& name, const KnownInput& known);
  void AddCounts(const Scope& scope);

  // declared_types.cc
  // Throws Error(kType) if the declared element type differs from the one that the nodes produce, or if a sequence is declared for a
  // tensor.
  void CheckDeclared(const onnx::ValueInfoProto& info, const Binding& made, const std::string& what, const std::string& where) const;
  // The same for the values within a graph. A different number of axes is only a warning.
  void CheckInner(const onnx::GraphProto& graph, const Scope& scope);

  // importer.cc
  bool KeepsAll() const;  // whether all outputs are computed
  void AddInitializers(const onnx::GraphProto& graph, Scope& scope);
  void AddOutputs(const onnx::GraphProto& graph, const Scope& scope);
  ValueId AddOutput(const std::string& name, ValueId id);
  void AddExtents(const std::string& name, ValueId value, ValueId output);
  // `needed`: the nodes to import, by position; null: all.
  void RunNodes(const NodeList& nodes, Scope& scope, const std::vector<bool>* needed = nullptr);
  void RunNode(const onnx::NodeProto& proto, Scope& scope);
  void RunAsWritten(const onnx::NodeProto& proto, Scope& scope);
  bool CastsToItself(Node& node) const;
  DType WidenScaled(Node& node);
  ValueId TakeWholeScale(Node& node);
  void RunOperator(const onnx::NodeProto& proto, Scope& scope);
  bool RunSpecial(const onnx::NodeProto& proto, Scope& scope);
  void RunConstant(const onnx::NodeProto& proto, Scope& scope);
  Node MakeNode(const onnx::NodeProto& proto, Scope& scope);
  std::string Origin(const onnx::NodeProto& proto, const Scope& scope);
  // What the name refers to in the innermost body, or null.
  const Binding* Find(const std::string& name, const Scope& scope);
  const Binding& Lookup(const std::string& name, const onnx::NodeProto& proto, const Scope& scope);
  // The tensor of an input; kNoValue if it is absent or stands for nothing.
  ValueId TensorOf(const std::string& name, const onnx::NodeProto& proto, const Scope& scope);
  // The same for a required input: throws Error(kArity) if it is absent.
  ValueId NeededTensorOf(const std::string& name, const onnx::NodeProto& proto, const Scope& scope);
  ValueId ConstantOf(const void* site);
  std::string NameOf(const std::string& name, const Scope& scope) const;

  // masked_writes.cc
  void RunMaskedWrite(const MaskedWrite& write, const onnx::NodeProto& proto, Scope& scope);

  // training_info.cc
  void FindUpdated(const std::vector<const onnx::GraphProto*>& graphs);
  void AddBindings(const Scope& scope);
  void RunGradient(const onnx::NodeProto& proto, Scope& scope);

  // torch/detached.cc
  void FindDetached();
  // The same value, through which no gradient flows. Integers are returned as they are.
  ValueId Stopped(ValueId id, const std::string& origin, const std::string& name, bool by_name = false);
  // The rows that a Gather has taken from a table, without a gradient for this one.
  ValueId WithoutGradientOfRow(int64_t row, const onnx::NodeProto& gather, const Scope& scope, ValueId taken);
  // Runs the node with gradients stopped at those operands and results that are named.
  void RunWithStops(const onnx::NodeProto& proto, Scope& scope);
  Binding StoppedByName(const Binding& binding, const std::string& name);

  // attributes.cc
  const onnx::AttributeProto* Resolve(const onnx::AttributeProto& attribute, const Scope& scope) const;
  const onnx::AttributeProto* FindAttribute(const onnx::NodeProto& proto, const std::string& name, const Scope& scope) const;
  void AddAttributes(const onnx::NodeProto& proto, const Scope& scope, Node& node) const;
  Tensor TensorAt(const onnx::TensorProto& proto) const;
  Tensor ConstantValue(const std::string& name, const onnx::AttributeProto& attribute, const std::string& where) const;

  // functions.cc
  std::vector<Binding> RunBody(const onnx::FunctionProto& function, const Call& call);
  // `proto`: the node in the file, which has its graphs.
  bool ExpandBySchema(const Node& node, const onnx::NodeProto& proto, const Scope& scope, const std::vector<std::string>& output_names,
                      std::vector<ValueId>& results);
  // Puts the elements of tensors, which are stored separately, into a copy of one of the file's graphs.
  void RestoreTensors(const onnx::GraphProto& graph, onnx::GraphProto& copy) const;
  void RunFunction(const onnx::FunctionProto& function, const onnx::NodeProto& proto, Scope& scope);
  void CheckUnsupported();

  // control_flow.cc
  std::vector<Binding> RunGraph(const onnx::GraphProto& graph, Scope& scope);
  Scope Nested(const Scope& outer, const std::string& path) const;
  void RunIf(const onnx::NodeProto& proto, Scope& scope);
  void RunLoop(const onnx::NodeProto& proto, Scope& scope);
  // bag_loops.cc: a loop over parts of a tensor, whose iterations are computed at once; returns false if the loop has another form.
  class BagLoop;
  bool RunBags(const LoopParts& parts, const std::string& origin, const Scope& scope, std::vector<Binding>& results);
  // Unrolls a loop; returns false if it is not known at compile time whether the loop continues.
  bool UnrollLoop(const LoopParts& parts, const std::string& origin, const Scope& scope, std::vector<Binding>& results);
  void RunScan(const onnx::NodeProto& proto, Scope& scope);
  ScanForm FormOfScan(const onnx::NodeProto& proto, const Scope& scope) const;
  // The tensors that a Scan reads one slice after the other, each with the axis of the slices, and the number of slices.
  struct Scanned {
    std::vector<std::pair<ValueId, int>> inputs;
    Size length;
  };
  Scanned ScannedBy(const onnx::NodeProto& proto, const ScanForm& form, const Scope& scope);
  // Moves the rows of the scan outputs to the axes that the Scan gives.
  void MoveScanOutputs(const ScanForm& form, const std::string& where, const std::string& origin, std::vector<Binding>& results);
  std::vector<Binding> RunIterations(const onnx::NodeProto& proto, LoopParts& parts, const std::string& origin, const Scope& scope);
  // Whether `trips` iterations of `nodes` nodes may be unrolled.
  bool MayUnroll(int64_t trips, int64_t nodes) const;
  // Counts the nodes of an iteration that must be unrolled. Throws Error(kLimit) if the total is too large.
  void CountUnrolled(int64_t nodes, const std::string& where);
  // Throws Error(kType) if the value is not a single element of this type.
  void CheckSingle(ValueId id, DType dtype, const std::string& message, const std::string& where);
  void BindOutputs(const onnx::NodeProto& proto, const std::vector<Binding>& values, Scope& scope) const;
  ValueId Stack(const std::vector<ValueId>& rows, int64_t axis, const std::string& origin, const std::string& name);
  // A standard operator with one output. Its value is named after the origin if `name` is empty.
  ValueId EmitOp(const std::string& op, std::vector<ValueId> inputs, Attributes attributes, const std::string& origin,
                 const std::string& name);
  ValueId Ints(const std::string& origin, const std::vector<int64_t>& values);

  // regions.cc: branches and loops that are decided during a step
  Emitter& emitter() { return frames_.empty() ? emitter_ : *frames_.back().emitter; }
  const Emitter& emitter() const { return frames_.empty() ? emitter_ : *frames_.back().emitter; }
  Emitter& EmitterAt(size_t depth) { return depth == 0 ? emitter_ : *frames_[depth - 1].emitter; }
  // The value in the innermost body for a value of the graph at `depth`.
  ValueId Inner(ValueId id, size_t depth);
  ValueId Capture(RegionFrame& frame, size_t depth, ValueId id);
  void BeginRegion(const std::string& where);
  RegionFrame EndRegion(const std::vector<ValueId>& results);
  // Like RunGraph. Errors at a batch other than the file's are reported as errors of the file's batch.
  std::vector<Binding> RunRegion(const onnx::GraphProto& graph, Scope& scope);
  std::vector<ValueId> Tensors(const std::vector<Binding>& bindings, const std::string& where) const;
  void RunIfRegion(const onnx::NodeProto& proto, ValueId condition, const onnx::GraphProto& then_branch,
                   const onnx::GraphProto& else_branch, Scope& scope);
  // The states after the last iteration, then the scan outputs of all iterations along axis 0.
  class LoopRegion;
  std::vector<ValueId> RunLoopRegion(const LoopParts& parts, const std::string& origin, const Scope& scope);

  // sequences.cc
  bool RunSequence(const onnx::NodeProto& proto, Scope& scope);
  void RunSequenceMap(const onnx::NodeProto& proto, Scope& scope);
  const std::vector<ValueId>& SequenceOf(const std::string& name, const onnx::NodeProto& proto, Scope& scope);
  int64_t Position(const std::string& name, int64_t size, const onnx::NodeProto& proto, const Scope& scope);
  Binding SequenceEmpty(const onnx::NodeProto& proto, Scope& scope);
  Binding SequenceConstruct(const onnx::NodeProto& proto, Scope& scope);
  Binding SequenceInsert(const onnx::NodeProto& proto, Scope& scope);
  Binding SequenceErase(const onnx::NodeProto& proto, Scope& scope);
  Binding SequenceAt(const onnx::NodeProto& proto, Scope& scope);
  Binding SequenceLength(const onnx::NodeProto& proto, Scope& scope);
  Binding SplitToSequence(const onnx::NodeProto& proto, Scope& scope);
  Binding ConcatFromSequence(const onnx::NodeProto& proto, Scope& scope);
  Binding OptionalOf(const onnx::NodeProto& proto, Scope& scope);
  Binding OptionalHasElement(const onnx::NodeProto& proto, Scope& scope);

  const ModelFile& file_;
  const ImportOptions& options_;
  OnnxTypeRules rules_;
  ImportedGraph result_;
  Emitter emitter_;  // for result_.graph
  std::vector<RegionFrame> frames_;
  const FunctionIndex functions_;
  OpsetVersions opsets_;
  // The value of each tensor of the file, so that a function that is called twice has its weights only once.
  std::unordered_map<const void*, ValueId> constants_;
  CountedInputs counted_;
  std::map<ValueId, int64_t> counts_;       // the inputs that have the counts
  std::optional<DetachedValues> detached_;  // nullopt: no value is detached
  NamedStops stops_;
  std::set<std::string> origins_;
  std::set<const void*> updated_;                        // the tensors of the file that an algorithm updates
  std::unordered_map<std::string, int> origin_numbers_;  // the last numbers given to equal origins
  int64_t unrolled_nodes_ = 0;
  std::optional<bool> as_made_;  // whether the import has the batch size that the file declares; nullopt: not needed yet
  bool misdeclared_ = false;     // a value has another number of axes than declared, and a warning says so
};

}  // namespace gradloom
