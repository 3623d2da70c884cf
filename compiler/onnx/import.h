// Import of an ONNX file as a Graph.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/graph/graph.h"
#include "runtime/base/error.h"
#include "runtime/base/tensor.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Limits on the resources that a model may use. Loading a model that exceeds one throws Error(kLimit) with its name.
struct ModelLimits {
  int64_t file_bytes = int64_t{2} << 30;  // of the ONNX file itself; the limit of protobuf
  int nesting = 64;                       // depth of graphs in attributes of nodes
  int64_t nodes = 1'000'000;              // after functions are inlined and loops are unrolled
  int64_t node_inputs = 1'000'000;
  int64_t name_bytes = 64 << 10;
  int64_t attribute_elements = 1 << 20;
  int64_t fold_bytes = 64 << 20;                // of one folded constant; a larger one is not folded
  int64_t fold_total_bytes = int64_t{1} << 30;  // of all folded constants
  int64_t value_bytes = int64_t{1} << 37;       // of any one value
  int64_t external_files = 100'000;
};

struct LoadOptions {
  ModelLimits limits;
  // Whether external data may be in files with several hard links. A hard link can expose a file from outside the model's folder, so it
  // must be allowed explicitly.
  bool allow_hardlinks = false;
  // The folder of external data; empty: the model's folder.
  std::string external_dir;
  int threads = 0;                   // that read, check and hash the file; 0: as many as there are cores
  bool restores_parameters = false;  // see Model::WithParametersRestored
};

struct ModelFile;

// The form of a trained model: for inference (ExportTrained), or with its nodes as the file has them.
enum class ModelForm : uint8_t { kInference, kAsWritten };

// An ONNX model in memory. It has passed all checks that do not need its shapes. Immutable and cheap to copy.
class Model {
 public:
  // Reads binary ONNX, or ONNX's text syntax if the name ends in .onnxtxt or .txt. External data is read too. Throws Error: kIo, kParse,
  // kSchema, kName, kGraph, kTensor, kPath, kVersion, kLimit and others.
  static Model Load(const std::string& path, const LoadOptions& options = {});

  // The same from memory. External data is read from options.external_dir only. `name` is used in messages.
  static Model FromBytes(std::string_view bytes, const std::string& name, const LoadOptions& options = {});
  static Model FromText(std::string_view text, const std::string& name = "text", const LoadOptions& options = {});

  // The model of a plan, with values for tensors, by their names in a Graph, as ExportTrained would write it. Unlike a file, it may be of
  // any size, and shares the memory of the values. Throws Error(kShape) for a value with another shape, Error(kTensor) for a tensor that is
  // neither in `info` nor in `values`.
  static Model FromInfo(const ModelInfo& info, const std::map<std::string, Tensor>& values, ModelForm form = ModelForm::kInference);

  // This model with other elements of its tensors, by the names of values in a Graph: initializers, and tensors of Constant nodes of the
  // main graph. They are converted to the element types of the file, and repeated where the file holds a copy for each sample. Names that
  // the file does not have are ignored, and so are sparse tensors. A transposed copy (see below) that is not named follows the matrix that
  // it is a copy of. The hash becomes another one if an element differs, which only depends
  // on the file's hash and the tensors that differ. Throws Error(kShape) for another shape.
  Model WithTensors(const std::map<std::string, Tensor>& values) const;

  // This model with its own initializer for each parameter that PyTorch's exporter has merged with another one, or left out because it was
  // zero (torch/restore_parameters.h), under the module's name and in its form. The hash stays that of the file.
  Model WithParametersRestored() const;
  // Their names.
  const std::vector<std::string>& restored() const;

  // The data of the model that a plan stores. The bytes do not contain the tensors of the values named in `replaced`, which are passed to
  // the export later, nor the `tied` ones. They contain all other tensors, including external ones.
  ModelInfo info(const std::vector<std::string>& replaced = {}, const std::vector<TiedTensor>& tied = {}) const;

  // The path given to Load.
  const std::string& path() const;

  // The name without folders, and the hash of the file with its external data, as in ModelInfo.
  std::string name() const;
  const std::string& hash() const;

  // The graph inputs that must be fed, in order.
  std::vector<std::string> input_names() const;

  // Whether the first training_info of the file has an algorithm that takes gradients and updates something. For training_info number
  // `info`: whether it sets the initial values of initializers, and which floating-point initializers of the model it updates.
  bool has_algorithm() const;
  bool has_initialization(int info) const;
  std::vector<std::string> updated_initializers(int info) const;

  // Warnings about the file, one line each.
  const std::vector<std::string>& warnings() const;

  // The matrices that are the transpose of another one, bit for bit, with that one: exporters write such a copy of a tied weight (an
  // embedding that is also the output layer) when they fold its Transpose, under a name that they make up. Not those that may be equal by
  // chance, such as identities, nor two that the module names. For the model of a plan, those that the plan ties.
  std::vector<TiedTensor> transposed_copies() const;

  const ModelFile& file() const { return *file_; }

 private:
  explicit Model(std::shared_ptr<const ModelFile> file) : file_(std::move(file)) {}
  std::shared_ptr<const ModelFile> file_;
};

// The value of a graph input: a tensor, a sequence of tensors, or, if neither is set, an optional without an element.
struct KnownInput {
  Tensor tensor;
  std::optional<std::vector<Tensor>> sequence;
};

// The attribute that marks a StopGradient inserted because of ImportOptions::detached.
inline constexpr std::string_view kStoppedByName = "by_name";

struct ImportOptions {
  // The extent of the batch axis. 0: as declared in the file.
  int64_t batch = 0;
  // The batch axis of the inputs of a file without symbolic dimensions. With `batch_elsewhere`, an input whose extent along this axis
  // differs from the batch, and that has the batch's extent along one of its first two axes, uses that axis.
  int batch_axis = 0;
  bool batch_elsewhere = false;
  // In a file with a declared batch: inputs with that extent along their first two axes that have the batch along both. They are tables
  // over pairs of samples, such as the adjacency matrix of a graph whose nodes are the samples. Import finds them for files that fit no
  // other batch size otherwise.
  std::set<std::string> batch_of_pairs;
  // Not 0: a file with an open batch is read like one that was exported for this number of samples.
  int64_t open_batch = 0;
  // Rewrites batch-dependent constants in a file with a declared batch for any batch, even if the declared one is used.
  bool any_batch = false;
  // With any_batch: looks for the batch that a file with an open batch was exported for in all of its shapes, not only in the sizes of
  // parts, even if the file fits the batch as it is.
  bool batch_in_shapes = false;
  // The graph is only compared with one at another batch size, to find what depends on it. Constants in which samples differ, such as a
  // table of all pairs of the samples of a file for one batch size, may then have any elements.
  bool compared = false;
  // Extents of symbolic dimensions by name; a dimension without a name is called "input[axis]". A dimension that is a number in the file
  // can be given by its place with that same number: it is then never taken for the batch. Error(kConfig) for any other number.
  std::map<std::string, int64_t> shapes;
  // Known shapes of graph inputs, by name; names of other inputs are ignored. They determine the symbols of these inputs and, if the file
  // declares the batch as a number, the batch; `batch` and `shapes` apply to the rest. An input that has its declared shape, while others
  // have another batch, is taken to have no batch, as if `shapes` said so. Error(kShape) if a shape contradicts the file.
  std::map<std::string, Shape> inputs;
  // Graph inputs whose data is known before the run, by name. They become constants and are not fed. Values that determine shapes (a target
  // shape, axes, repeat counts) can be given this way; for sequences and optionals it is the only way. Error(kShape, kType) if a value
  // contradicts the file.
  std::map<std::string, KnownInput> values;
  // The same as numbers, for tensors: row-major, cast to the input's type; a single one fills the whole input. Such an input does not
  // decide which axis is the batch. Error(kConfig) for a name that is not an input, another number of elements, several of them for an
  // input with the batch, or one that the type cannot represent.
  std::map<std::string, std::vector<double>> numbers;
  // Graph outputs to compute, by name; empty: all. Nodes that these outputs do not need are removed. A value that a node of the main graph
  // produces can be one, too; it follows the file's outputs. Not used with a file's own algorithm. Error(kConfig) for any other name.
  std::vector<std::string> outputs;
  // The maximum number of nodes that the unrolling of a loop with a known number of iterations may produce. A larger loop is executed as a
  // loop at run time.
  int64_t unrolled_nodes = 100'000;
  // The maximum number of iterations of a loop of unknown length for which the values needed by the gradient are stored.
  int64_t loop_bound = 256;
  // Values that the file marks as detached (torch/detached.h) get no gradient: the import inserts gradloom.StopGradient. Not used with a
  // file's own algorithm, where Gradient follows the standard.
  bool detach = true;
  // Further values to detach: VALUE, or VALUE@NODE for the use of a value by one node. A node is given by its name, or by the name of a
  // value that it computes. Names are those in the file; in functions and bodies they follow the path of calls that leads there. '*' and
  // '?' are wildcards. Error(kConfig) for a pattern that matches nothing. Not used with a file's own algorithm.
  std::vector<std::string> detached;
  // Appends the algorithm of this training_info of the file to the model's graph; -1: only the model.
  int training_info = -1;
  // Imports the initialization of that training_info instead, which is a graph of its own.
  bool initialization = false;
};

// An extent of the model's inputs that can be chosen: a symbol, or the batch that the file declares as a number, or another extent with the
// same number that is not the batch.
struct OpenExtent {
  std::string symbol;  // "N", or "input[axis]" if it has no name; empty: the declared batch
  std::string input;   // the first input with this extent, and its axis
  int axis = 0;
  bool is_batch = false;
  bool is_fixed = false;  // not the batch, according to ImportOptions::shapes or ::inputs
  int64_t value = 0;      // with these options

  // The options with another value for this extent.
  ImportOptions At(ImportOptions options, int64_t other) const;
};

struct ImportedGraph {
  std::unique_ptr<Graph> graph;
  // The extent of the batch axis in this graph; 0: no input has one.
  int64_t batch = 0;
  // For each graph input the batch axis, or -1.
  std::vector<int> batch_axes;
  // The ONNX names of the graph outputs whose values have other names, because an input or initializer has the name already.
  std::map<ValueId, std::string> output_names;
  // Extents of graph outputs that depend on the data of a step, by output and axis. The value is an int64 scalar, which is also an output.
  // It is the number of valid elements along the axis, counted from the front.
  std::map<ValueId, std::map<int, ValueId>> extents;
  // Floating-point tensors of the file that contain a copy for each sample of the declared batch, and of which this graph uses one copy.
  // They cannot be trained at this batch. Tensors that the import has reduced to one weight are not included, see Import.
  std::set<std::string> batch_copies;
  // Floating-point tensors that are in Constant nodes of the file; the others are initializers.
  std::set<std::string> node_constants;
  // The exporter's notes on initializers (from the signature of torch.export and the origins of folded constants). True: parameters of the
  // module and tensors computed from them. False: buffers, tensors in the code and tensors computed from these. The others have no note, or
  // one that may belong to another tensor with the same elements.
  std::map<std::string, bool> module_parameters;
  std::map<std::string, std::string> divided_parameters;   // see DividedParameters
  std::map<std::string, std::string> computed_parameters;  // see ComputedParameters
  // The exporter names parameters and buffers as the module does, and keeps numbers in the code in Constant nodes.
  bool names_attributes = false;
  int64_t declared_batch = 0;  // as a number, or 1 for an open batch in a file that was exported for one sample; 0: none
  // With training_info: each value kept between steps (role kState) with its next value, and the value that the first Gradient
  // differentiates.
  std::vector<std::pair<ValueId, ValueId>> updates;
  ValueId loss = kNoValue;
  // For an initialization: names of initializers with their values.
  std::vector<std::pair<std::string, ValueId>> initial;
  std::vector<std::string> warnings;  // one line each
};

// Whether the model's exporter writes nothing for detached values: PyTorch's older exporter and tf2onnx.
bool LosesDetached(const Model& model);

// Nodes that come from the forward() of autograd functions (torch.autograd.Function) in the module's code, and the first line of code of
// each source file, such as "surrogate.py:190". Their backward() may be anything, and no file has it. Only files of
// torch.onnx.export(dynamo=True) tell.
struct FunctionCode {
  int64_t nodes = 0;
  std::vector<std::string> places;
};
FunctionCode CodeOfFunctions(const Model& model);

// The nodes that read one of the values in place of the result of an operator that PyTorch's exporter has removed, as VALUE@NODE. If that
// operator read the result of a detach(), nothing tells.
std::vector<std::string> ReadThroughRemoved(const Model& model, const std::set<std::string>& values);

// The model as a graph at opset kOpset with all shapes known. Initializers, and tensors of Constant nodes, are constants under their ONNX
// names (for a Constant node the name of its output). Graph inputs and outputs keep their names. A node's origin is its ONNX name (or, if
// it has none, its operator and first output) after the path of calls that leads to it. Functions are inlined. Branches and sequences that
// are known are resolved, and everything computed from shapes and integer constants is folded. Nodes that depend on a floating-point tensor
// are not folded, because the tensor may be trained.
//
// If a file declares its batch as a number, that is the first extent of its first input; if the file does not fit another extent there, or
// its outputs do not follow, it is the first extent of its outputs. If it contains the batch in constant shapes, these are rewritten for
// the requested one. If the graph does not determine which constants are the batch, Import throws Error(kShape) with the node. The same is
// done for a file with an open batch that was exported for one sample and does not work with any other number; a warning says so.
//
// A floating-point tensor in such a file may contain a copy for each sample (exporters write this when they fold an Expand). It is imported
// as the one weight that it was, with the extent of one sample along that axis. At another batch than the file's own, this is only done if
// every reader uses it that way.
//
// Throws Error with the node or input: kConfig for a symbolic dimension without an extent; kArity, kAttr, kType, kShape, kValue for an
// invalid node; kUnsupported with all unsupported operators; kLimit.
ImportedGraph Import(const Model& model, const ImportOptions& options = {});

// An error caused by the model, with the file's name before its place. Other errors are returned as they are: wrong options are not the
// model's fault.
Error WithFileName(const Model& model, const Error& error);

// The open extents in the order of the inputs. Throws Error(kConfig) for a symbol without a value.
std::vector<OpenExtent> OpenExtents(const Model& model, const ImportOptions& options = {});

}  // namespace gradloom
