#include "tools/gradloom/error_texts.h"

namespace gradloom {
namespace {

constexpr ErrorText kTexts[] = {
    {ErrorCode::kInternal, "a bug in Gradloom: an internal condition does not hold",
     "an untested combination of operators, shapes or options\n", "report it with the command that shows it, and the model if you may"},
    {ErrorCode::kParse, "the file is not ONNX, or is cut off",
     "an unfinished download\na web page or a git-lfs pointer saved under the model's name\na file of another kind named .onnx\n",
     "look at its size and its first bytes; fetch it again ('git lfs pull' for a pointer)"},
    {ErrorCode::kSchema, "the file is ONNX, but a required part is missing or occurs twice",
     "a tool that did not write a graph, an IR version or an operator set\n",
     "check it with onnx.checker.check_model in Python; write it again with a newer exporter"},
    {ErrorCode::kName, "a name in the model is not usable: it is not UTF-8, has control characters, or is too long",
     "a model made or changed by hand\n", "rename the value or node in the tool that made the model"},
    {ErrorCode::kGraph, "the nodes do not make a graph: a cycle, a value that no node computes, a duplicate name",
     "a model cut or joined by a script\na subgraph that uses a value outside its scope\n",
     "the message names the nodes; look at them in a graph viewer"},
    {ErrorCode::kArity, "an operator has too few or too many inputs or outputs", "a node written for another version of its operator\n",
     "compare the node with the operator's page for the model's opset"},
    {ErrorCode::kAttr, "an attribute of a node is unknown, missing, of another type or out of its range",
     "a stride of 0, an axis beyond the rank\nan attribute of another version of the operator\n", "the message has the node and the value"},
    {ErrorCode::kType, "the element types of values do not match",
     "floats where integers are required\na declared type that the operators do not produce\n",
     "put a Cast where the message says, or declare the right type"},
    {ErrorCode::kShape, "the shapes of values do not match",
     "inner dimensions of a product that differ\nshapes that cannot be broadcast\na target of another shape than the output\n",
     "the message has both shapes; a symbolic dimension may need its extent: --shape NAME=N"},
    {ErrorCode::kValue, "a constant has a value that its operator cannot have",
     "an index past the end, a Dropout ratio of 2, a step of 0\n", "the message names the constant"},
    {ErrorCode::kTensor, "an initializer is damaged: its bytes do not match its type and dimensions",
     "a cut-off file, or external data of another model\ndimensions that are negative or overflow\n",
     "write the model again, with its external data"},
    {ErrorCode::kPath,
     "a file that a model, an index of weights or a run uses is not allowed: it is outside of the folder, or not a regular file",
     "a path with '..' or an absolute path\na symbolic or hard link to another place\n",
     "put the file beside the one that names it; for a model's data, --external-dir can name another folder"},
    {ErrorCode::kIo, "a file cannot be read",
     "a typo in its path, or a relative path in another folder\nno permission, or a folder instead of a file\n",
     "ls -l the path that the message names"},
    {ErrorCode::kVersion, "the model or file has a version that this release does not support", "a newer exporter than this release\n",
     "export with an older opset, or use a newer release"},
    {ErrorCode::kUnsupported, "a valid model that this release cannot train: an operator without kernel or gradient",
     "an operator of a custom domain\na gradient through an operator that has none\n",
     "gradloom check MODEL lists everything at once; freeze what comes before it (--freeze), or cut the graph there"},
    {ErrorCode::kLimit, "a limit that protects against hostile files has been reached",
     "a very large model or file\na model that asks for terabytes\n",
     "the message names the limit; if you trust the model: gradloom train MODEL --limit nodes=2000000 (gradloom config --keys "
     "model lists them)"},
    {ErrorCode::kConfig, "the command line or the configuration is wrong",
     "a typo in a flag or key; the message suggests similar ones\na value out of its range\n",
     "gradloom VERB --help, gradloom config --keys"},
    {ErrorCode::kData, "the training data is wrong",
     "rows of different lengths, text where a number should be\na label outside the classes\na column that the file lacks\n",
     "the message has file, line and column, or the sample"},
    {ErrorCode::kResource, "the machine has too little memory or disk, or a file cannot be written",
     "a batch too large\na full disk, a folder without permission\n", "a smaller --batch; df -h and free -h show what is left"},
    {ErrorCode::kPlan, "a plan is damaged, fails the verifier, or was made for another machine",
     "a truncated or changed file\na plan of an older release\n", "compile it again: gradloom compile MODEL -o FILE"},
    {ErrorCode::kCheckpoint, "a checkpoint or weights file is damaged, unfinished, or of another model",
     "a run killed in the middle of a save (the one before it is good)\nweights of a model with other shapes\n",
     "gradloom inspect says what a plan trains"},
    {ErrorCode::kDevice, "a device or its driver fails or is absent", "a device that this machine does not have\n",
     "gradloom devices, gradloom doctor"},
    {ErrorCode::kDiverged, "the loss is NaN or infinite", "a learning rate too large\nNaN in the data, a logarithm of 0, a division by 0\n",
     "a smaller --lr, --clip-norm 1, --warmup 5%; look for warnings about NaN in the data; gradloom resume RUN --check-numerics "
     "repeats the run from its last checkpoint and names the node and tensor where the NaN or infinity began"},
    {ErrorCode::kCheckFailed, "a check failed", "files that differ (gradloom diff), a machine that fails a test (gradloom doctor)\n",
     "the lines above say which"},
    {ErrorCode::kPeer, "another process of the job has ended or does not answer", "it was killed, or ran out of memory\n",
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
