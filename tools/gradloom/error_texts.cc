#include "tools/gradloom/error_texts.h"

namespace gradloom {
namespace {

constexpr ErrorText kTexts[] = {
    {ErrorCode::kInternal, "a bug of Gradloom: a condition that only a mistake of ours can break",
     "a combination of operators, shapes or options that nobody has tried\n",
     "report it with the command that shows it, and the model if you may"},
    {ErrorCode::kParse, "the file is not ONNX, or is cut off",
     "an unfinished download\na web page or a git-lfs pointer saved under the model's name\na file of another kind named .onnx\n",
     "look at its size and its first bytes; fetch it again ('git lfs pull' for a pointer)"},
    {ErrorCode::kSchema, "the file is ONNX, but lacks what every model has, or has it twice",
     "a tool that wrote no graph, no IR version or no operator set\n",
     "check it with onnx.checker.check_model in Python; write it again with a newer exporter"},
    {ErrorCode::kName, "a name in the model is not fit for use: not UTF-8, with control characters, or too long",
     "a model made or changed by hand\n", "rename the value or node in the tool that made the model"},
    {ErrorCode::kGraph, "the nodes do not make a graph: a cycle, a value that nobody computes, a name given twice",
     "a model cut or joined by a script\na subgraph that names a value outside of its sight\n",
     "the message names the nodes; look at them in a graph viewer"},
    {ErrorCode::kArity, "an operator has too few or too many inputs or outputs", "a node written for another version of its operator\n",
     "compare the node with the operator's page for the model's opset"},
    {ErrorCode::kAttr, "an attribute of a node is unknown, missing, of another type or out of its range",
     "a stride of 0, an axis past the rank\nan attribute that another version of the operator has\n",
     "the message has the node and the value"},
    {ErrorCode::kType, "the element types of values do not go together",
     "a float fed where integers are wanted\na declared type that the operators do not give\n",
     "put a Cast where the message says, or declare the right type"},
    {ErrorCode::kShape, "the shapes of values do not go together",
     "inner dimensions of a product that differ\nshapes that cannot be broadcast\na target of another shape than the output\n",
     "the message has both shapes; a symbolic dimension may need its extent: --shape NAME=N"},
    {ErrorCode::kValue, "a constant has a value that its operator cannot have",
     "an index past the end, a Dropout ratio of 2, a step of 0\n", "the message names the constant"},
    {ErrorCode::kTensor, "an initializer is damaged: its bytes do not fit its type and dimensions",
     "a cut-off file, or external data of another model\ndimensions that are negative or overflow\n",
     "write the model again, with its external data"},
    {ErrorCode::kPath, "external data of the model would be read from where they may not be: outside of its folder, or no plain file",
     "a path with '..' or from the root\na symbolic or hard link to elsewhere\n",
     "put the data beside the model, or name their folder with --external-dir"},
    {ErrorCode::kIo, "a file cannot be read",
     "a typo in its path, or a relative path in another folder\nno permission, or a folder in place of a file\n",
     "ls -l the path that the message names"},
    {ErrorCode::kVersion, "the model or file is of a version that this release does not know", "a newer exporter than this release\n",
     "export with an older opset, or use a newer release"},
    {ErrorCode::kUnsupported, "a valid model that this release cannot train: an operator without kernel or gradient",
     "an operator of a domain of its own\na gradient through an operator that has none\n",
     "gradloom check MODEL lists all of it at once; freeze what lies before it (--freeze), or cut the graph there"},
    {ErrorCode::kLimit, "a limit that keeps hostile files harmless has been reached",
     "a very large model or file\na model that asks for terabytes\n",
     "the message names the limit; where the model is to be trusted: gradloom train MODEL --limit nodes=2000000 (gradloom config --keys "
     "model lists them)"},
    {ErrorCode::kConfig, "the command line or the configuration is wrong",
     "a typo in a flag or key; the message says what is near\na value out of its range\n", "gradloom VERB --help, gradloom config --keys"},
    {ErrorCode::kData, "the training data are wrong",
     "rows of different lengths, text where a number should be\na label that is not within the classes\na column that the file lacks\n",
     "the message has file, line and column, or the sample"},
    {ErrorCode::kResource, "the machine has too little memory or disk, or a file cannot be written",
     "a batch too large\na full disk, a folder without permission\n", "a smaller --batch; df -h and free -h say what is left"},
    {ErrorCode::kPlan, "a plan is damaged, fails the verifier, or was made for another machine",
     "a file cut off or changed\na plan of an older release\n", "compile it again: gradloom compile MODEL -o FILE"},
    {ErrorCode::kCheckpoint, "a checkpoint or weights file is damaged, unfinished, or of another model",
     "a run killed in the middle of a save (the one before it is good)\nweights of a model with other shapes\n",
     "gradloom inspect says what a plan trains"},
    {ErrorCode::kDevice, "a device or its driver fails or is absent", "a device that this machine does not have\n",
     "gradloom devices, gradloom doctor"},
    {ErrorCode::kDiverged, "the loss is NaN or infinite", "a learning rate too large\nNaN in the data, a logarithm of 0, a division by 0\n",
     "a smaller --lr, --clip-norm 1, --warmup 5%; look for warnings about NaN in the data"},
    {ErrorCode::kCheckFailed, "something that was to be checked is not so",
     "files that differ (gradloom diff), a machine that fails a test (gradloom doctor)\n", "the lines before say what"},
    {ErrorCode::kPeer, "another process of the run is gone or does not answer", "it was killed, or ran out of memory\n",
     "gradloom resume RUN"},
};

constexpr bool InOrder() {
  for (size_t i = 0; i < std::size(kTexts); ++i) {
    if (static_cast<size_t>(kTexts[i].code) != i) return false;
  }
  return std::size(kTexts) == static_cast<size_t>(ErrorCode::kPeer) + 1;
}
static_assert(InOrder());

}  // namespace

std::span<const ErrorText> ErrorTexts() { return kTexts; }

}  // namespace gradloom
