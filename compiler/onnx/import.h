// From an ONNX file to a Graph.
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

// What a model may ask of this process. Past one of them loading throws Error(kLimit) that names it.
struct ModelLimits {
  int64_t file_bytes = int64_t{2} << 30;  // of the ONNX file itself; protobuf can hold no more
  int nesting = 64;                       // graphs in attributes of nodes of graphs ...
  int64_t nodes = 1'000'000;              // after functions and fixed loops are written out
  int64_t node_inputs = 1'000'000;
  int64_t name_bytes = 64 << 10;
  int64_t attribute_elements = 1 << 20;
  int64_t fold_bytes = 64 << 20;                // one folded constant; a larger one stays computed
  int64_t fold_total_bytes = int64_t{1} << 30;  // all of them
  int64_t value_bytes = int64_t{1} << 37;       // any one value
  int64_t external_files = 100'000;
};

struct LoadOptions {
  ModelLimits limits;
  // External data in files that have another name as well. A hard link can show a file from outside the
  // model's folder, so it takes a decision.
  bool allow_hardlinks = false;
  // Where external data lies; empty: the model's folder.
  std::string external_dir;
};

struct ModelFile;

// An ONNX model in memory, checked as far as that goes without knowing its shapes. Cheap to copy; constant.
class Model {
 public:
  // Reads binary ONNX, or ONNX's text syntax from names ending in .onnxtxt or .txt. External data is read, too.
  // Throws Error: kIo, kParse, kSchema, kName, kGraph, kTensor, kPath, kVersion, kLimit ...
  static Model Load(const std::string& path, const LoadOptions& options = {});

  // The same from memory; external data is looked for in options.external_dir alone. `name` is for messages.
  static Model FromBytes(std::string_view bytes, const std::string& name, const LoadOptions& options = {});
  static Model FromText(std::string_view text, const std::string& name = "text", const LoadOptions& options = {});

  // What a plan keeps of the model. The bytes leave out the tensors of the values named in `replaced`, which
  // export will be given; all others are inside, external ones too.
  ModelInfo info(const std::vector<std::string>& replaced = {}) const;

  // As given to Load.
  const std::string& path() const;

  // The graph's inputs that must be fed, in order.
  std::vector<std::string> input_names() const;

  // Whether the file's first training_info has an algorithm that takes gradients and updates something. Of one of them: whether it says
  // what initializers begin as, and which floating initializers of the model it updates.
  bool has_algorithm() const;
  bool has_initialization(int info) const;
  std::vector<std::string> updated_initializers(int info) const;

  // What is odd about the file and no error, one line each.
  const std::vector<std::string>& warnings() const;

  const ModelFile& file() const { return *file_; }

 private:
  explicit Model(std::shared_ptr<const ModelFile> file) : file_(std::move(file)) {}
  std::shared_ptr<const ModelFile> file_;
};

// What a graph input stands for: a tensor, a sequence of them, or with neither an optional without an element.
struct KnownInput {
  Tensor tensor;
  std::optional<std::vector<Tensor>> sequence;
};

// An attribute of the StopGradient of a value that ImportOptions::detached names.
inline constexpr std::string_view kStoppedByName = "by_name";

struct ImportOptions {
  // The extent of the batch axis. 0: the declared one.
  int64_t batch = 0;
  // Where a file without symbols has its batch: along this axis of its inputs. With `batch_elsewhere`, an input that has
  // another extent there and the batch's along one of its first two axes has it along that.
  int batch_axis = 0;
  bool batch_elsewhere = false;
  // Not 0: a file that leaves its batch open is read as one that was made for so many samples.
  int64_t open_batch = 0;
  // Has what a file with a declared batch has of it in its shapes made for any batch, for the declared one too.
  bool any_batch = false;
  // Extents of symbolic dimensions by name; a dimension without a name is called "input[axis]". Of one that the file has as a number, by
  // its place and with that number: it is no batch, whatever its extent says. Error(kConfig) for another number.
  std::map<std::string, int64_t> shapes;
  // Shapes of graph inputs that are known, by name; others are ignored. They fix the symbols that these inputs have,
  // and where the file declares a batch as a number, the batch; `batch` and `shapes` are for the rest. One that is as declared, where
  // others have another batch, has none (as if `shapes` said so). Error(kShape) where one is not as the file declares it.
  std::map<std::string, Shape> inputs;
  // Graph inputs whose data is known before the run, by name: constants, which nobody feeds. What shapes depend on (a
  // target shape, axes, a number of repeats) can be given so, and sequences and optionals in no other way. Error(kShape,
  // kType) where one is not as the file declares it.
  std::map<std::string, KnownInput> values;
  // Graph outputs that are computed, by name; empty: all. Nodes that these do not need are left out. Not of a file's own algorithm.
  // Error(kConfig) for a name that is no output.
  std::vector<std::string> outputs;
  // Nodes that the rounds of loops are written out to, where it is known how many there are. A loop of more is decided during the step.
  int64_t unrolled_nodes = 100'000;
  // Rounds of a loop that has no number of them, where what they begin with is kept for its gradient.
  int64_t loop_bound = 256;
  // Values that the file says are detached (detached.h) get no gradient: nodes of gradloom.StopGradient. Not of a file's own algorithm,
  // whose Gradient goes by the standard.
  bool detach = true;
  // Values that are detached besides, whatever the file says: VALUE, or VALUE@NODE as that one node reads it (a node goes by its name, or
  // by a value that it makes). Names are those of the file, behind the calls that led there where they are of functions and bodies; '*' and
  // '?' stand for others. Error(kConfig) for one that fits nothing. Not of a file's own algorithm.
  std::vector<std::string> detached;
  // With the algorithm of this training_info of the file behind the model's graph, as if they were one; -1: the model alone.
  int training_info = -1;
  // The initialization of that training_info instead: a graph of its own.
  bool initialization = false;
};

// An extent of the model's inputs that the file leaves open: a symbol, or the batch that it declares as a number, or a number beside it
// that is the same and no batch.
struct OpenExtent {
  std::string symbol;  // "N", or "input[axis]" where it has no name; empty: the declared batch
  std::string input;   // the first input that has it, and where
  int axis = 0;
  bool is_batch = false;
  bool is_fixed = false;  // no batch, by ImportOptions::shapes or ::inputs
  int64_t value = 0;      // in these options

  // The options with another value of it.
  ImportOptions At(ImportOptions options, int64_t other) const;
};

struct ImportedGraph {
  std::unique_ptr<Graph> graph;
  // The extent of the batch axis in this graph; 0 where no input has one.
  int64_t batch = 0;
  // Per graph input the axis that holds the batch, or -1.
  std::vector<int> batch_axes;
  // The ONNX names of graph outputs whose values are called otherwise: an input or initializer has the name already.
  std::map<ValueId, std::string> output_names;
  // Extents of graph outputs that the data of a step decides, by output and axis: an int64 scalar, which is an output, too, says how
  // many elements along the axis count, from the front.
  std::map<ValueId, std::map<int, ValueId>> extents;
  // Floating tensors of the file that hold a copy for each sample of the batch that it was made for, of which this graph
  // uses one: at this batch they cannot be trained. Not those that are one weight in the graph, see Import.
  std::set<std::string> batch_copies;
  // Floating tensors of the file that its Constant nodes hold; the others are initializers.
  std::set<std::string> node_constants;
  // What the exporter has noted of initializers (torch.export's signature, and what was computed from what): parameters of the module and
  // what is made of them, or (false) its buffers, tensors in the code and what is made of these. Others have no note, or one that may be of
  // another tensor with the same elements.
  std::map<std::string, bool> module_parameters;
  // The exporter calls parameters and buffers as the module does, and keeps numbers in the code in Constant nodes.
  bool names_attributes = false;
  int64_t declared_batch = 0;  // as a number, or 1 where the file leaves it open and was made for one sample; 0: none
  // With training_info: what is kept between steps (role kState) with its next value, and what its first Gradient differentiates.
  std::vector<std::pair<ValueId, ValueId>> updates;
  ValueId loss = kNoValue;
  // Of an initialization: names of initializers with their values.
  std::vector<std::pair<std::string, ValueId>> initial;
  std::vector<std::string> warnings;  // one line each
};

// The model as a graph at opset kOpset with all shapes known. Initializers, and tensors of Constant nodes, are
// constants under their ONNX names (a Constant node's is its output's); graph inputs and outputs keep their names;
// a node's origin is its ONNX name (where it has none, its operator and first output) after the path of calls that
// led to it. Functions are inlined; branches and sequences that are known, and what can be computed from shapes and
// integer constants, are gone. What depends on a floating tensor stays computed, because that tensor may be trained.
// A batch that the file declares as a number and has in constant shapes is rewritten to the one asked for where the
// graph says which of them it is, Error(kShape) naming the node otherwise. So is the one sample of a file that leaves its batch open and
// does not fit any other, since its inputs were renamed behind the exporter: a warning says so. A floating tensor of which such a file
// holds a copy for each sample, as exporters make them that fold an Expand, is the one weight that it was: of the extent along that axis
// what one sample has is left. At another batch than the file's own that is so where nothing reads it otherwise.
// Whether the model's exporter writes nothing of what a module detaches: PyTorch's older one, tf2onnx.
bool LosesDetached(const Model& model);

// Throws Error naming the node or input: kConfig for a symbolic dimension without an extent; kArity, kAttr, kType,
// kShape, kValue for a node that is wrong; kUnsupported with all operators that are not known; kLimit.
ImportedGraph Import(const Model& model, const ImportOptions& options = {});

// The error of a model's own, with its file in front of the place; others as they are: what is wrong with options is not the model's.
Error InFileOf(const Model& model, const Error& error);

// In the order of the inputs. Throws Error(kConfig) for a symbol that nothing fixes.
std::vector<OpenExtent> OpenExtents(const Model& model, const ImportOptions& options = {});

}  // namespace gradloom
