#include "tools/run/views/inspection.h"

#include <algorithm>
#include <filesystem>

#include "compiler/onnx/model_summary.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/shard_index.h"
#include "runtime/data/archive_data.h"
#include "runtime/data/csv_records.h"
#include "runtime/data/data_files.h"
#include "runtime/data/idx.h"
#include "runtime/data/image_rows.h"
#include "runtime/data/joined_data.h"
#include "runtime/data/npy.h"
#include "runtime/data/npz.h"
#include "runtime/data/tokens.h"
#include "tools/run/train/run_folder.h"
#include "tools/run/train/stored_tensors.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Longer tables are shortened to about a screen; --json lists everything.
constexpr size_t kMaxRows = 200;

std::string TypeText(const TensorView& type) { return std::string(DTypeName(type.dtype)) + type.shape.ToString(); }

std::string Counted(int64_t count, const std::string& what) { return WithCommas(count) + " " + what + (count == 1 ? "" : "s"); }

bool IsFolderOfCheckpoints(const std::string& path) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (ParseCheckpointName(entry.path().filename().string()) == CheckpointName::kCheckpoint) return true;
  }
  return false;
}

void AddTensors(const std::map<std::string, TensorView>& types, Inspection& made) {
  made.table.push_back({"name", "type", "bytes"});
  Json list = Json::array();
  int64_t elements = 0, bytes = 0;
  for (const auto& [name, type] : types) {
    elements += type.elements();
    bytes += type.bytes();
    made.table.push_back({Escaped(name, 80), TypeText(type), Bytes(type.bytes())});
    list.push_back({{"name", name}, {"dtype", DTypeName(type.dtype)}, {"shape", type.shape.dims()}});
  }
  made.lines.push_back(Counted(std::ssize(types), "tensor") + ", " + Counted(elements, "element") + ", " + Bytes(bytes));
  made.json["elements"] = elements;
  made.json["bytes"] = bytes;
  made.json["tensors"] = std::move(list);
}

// Adds the arrays of a data file, by the names that --map accepts. Inputs and targets cannot use those of text.
void AddArrays(const std::map<std::string, TensorView>& arrays, Inspection& made) {
  made.table.push_back({"array", "type", "rows"});
  Json list = Json::array();
  for (const auto& [name, type] : arrays) {
    const int64_t rows = type.shape.rank() > 0 ? type.shape[0] : 0;
    made.table.push_back({Escaped(name, 80), type.dtype == DType::kString ? "text" : TypeText(type), WithCommas(rows)});
    list.push_back({{"name", name}, {"dtype", DTypeName(type.dtype)}, {"shape", type.shape.dims()}});
  }
  made.json["arrays"] = std::move(list);
}

void AddTable(const std::string& path, Inspection& made) {
  CsvRecords records(path, TableOptions(path));
  std::vector<std::string_view> fields;
  std::vector<std::string> names = CsvHeader(path, TableOptions(path));
  std::vector<int64_t> numbers, empty;
  int64_t rows = names.empty() ? 0 : -1;
  for (; records.Next(fields); ++rows) {
    numbers.resize(std::max(numbers.size(), fields.size()));
    empty.resize(numbers.size());
    for (size_t i = 0; i < fields.size() && rows >= 0; ++i) {
      numbers[i] += IsCsvNumber(fields[i]) || CsvBoolean(fields[i]) ? 1 : 0;
      empty[i] += IsCsvEmpty(fields[i]) ? 1 : 0;
    }
  }
  rows = std::max<int64_t>(rows, 0);
  const size_t columns = numbers.size();
  made.lines.push_back("a table" + std::string(names.empty() ? " without a header" : "") + ": " + Counted(rows, "row") + ", " +
                       Counted(static_cast<int64_t>(columns), "column"));
  made.table.push_back({"column", "name", "numbers", "empty"});
  Json list = Json::array();
  for (size_t i = 0; i < columns; ++i) {
    const std::string name = i < names.size() ? names[i] : "";
    made.table.push_back({std::to_string(i), Escaped(name, 80), WithCommas(numbers[i]), WithCommas(empty[i])});
    list.push_back({{"name", name}, {"numbers", numbers[i]}, {"empty", empty[i]}});
  }
  made.json["rows"] = rows;
  made.json["columns"] = std::move(list);
}

void AddImages(const std::string& path, Inspection& made) {
  const ImageFolder folder = ListImages(path);
  std::vector<int64_t> counts(folder.classes.size());
  for (const int64_t label : folder.labels) ++counts[static_cast<size_t>(label)];
  made.lines.push_back("a folder of images: " + Counted(std::ssize(folder.paths), "image") + ", " +
                       (folder.classes.empty()       ? "no classes"
                        : folder.classes.size() == 1 ? "1 class"
                                                     : WithCommas(std::ssize(folder.classes)) + " classes"));
  if (!folder.classes.empty()) made.table.push_back({"label", "class", "images"});
  Json list = Json::array();
  for (size_t i = 0; i < counts.size(); ++i) {
    made.table.push_back({std::to_string(i), Escaped(folder.classes[i], 80), WithCommas(counts[i])});
    list.push_back({{"name", folder.classes[i]}, {"images", counts[i]}});
  }
  made.json["rows"] = folder.paths.size();
  made.json["classes"] = std::move(list);
}

void AddArchive(const std::string& path, Inspection& made) {
  const ArchiveContent content = ContentOf(path);
  made.lines.push_back("an archive: " + Counted(content.samples, "sample"));
  made.table.push_back({"ending", "files"});
  for (const auto& [ending, files] : content.endings) made.table.push_back({Escaped(ending, 80), WithCommas(files)});
  made.json["rows"] = content.samples;
  made.json["endings"] = content.endings;
}

// The arrays of a set of IDX files.
std::map<std::string, TensorView> IdxTypes(const std::string& prefix) {
  std::map<std::string, TensorView> types;
  for (const auto& [name, path] : IdxFilesOf(prefix)) types.emplace(name, IdxType(path));
  return types;
}

}  // namespace

std::string Inspection::Text() const {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  const auto shown = static_cast<std::ptrdiff_t>(std::min(table.size(), kMaxRows + 1));
  if (!table.empty()) text += Table({table.begin(), table.begin() + shown});
  if (table.size() > kMaxRows + 1) text += "and " + std::to_string(table.size() - kMaxRows - 1) + " more   (--json lists all)\n";
  return text;
}

InspectedKind KindOfInspected(const std::string& path) {
  const auto ends = [&](const char* suffix) { return path.ends_with(suffix); };
  if (fs::is_directory(path)) {
    if (RunFolder::IsRun(path)) return InspectedKind::kPlan;
    if (fs::exists(path + "/MANIFEST") || IsFolderOfCheckpoints(path)) return InspectedKind::kCheckpoint;
    return IsImageFolder(path) ? InspectedKind::kData : InspectedKind::kPlan;
  }
  if (ends(".safetensors") || IsShardIndex(path)) return InspectedKind::kWeights;
  if (ends(".onnx") || ends(".onnxtxt")) return InspectedKind::kModel;
  if (ends(".plan")) return InspectedKind::kPlan;
  try {
    KindOfDataFile(path);
    return InspectedKind::kData;
  } catch (const Error& error) {
    // The file does not exist.
    if (error.code() == ErrorCode::kIo) throw;
    return InspectedKind::kPlan;
  }
}

Inspection InspectModel(const std::string& path) {
  const Model model = Model::Load(path);
  const ModelSummary summary = SummaryOf(model);
  Inspection made;
  std::string opsets;
  Json opset_list = Json::object(), inputs = Json::object(), outputs = Json::object();
  for (const auto& [domain, version] : summary.opsets) {
    opsets += (opsets.empty() ? "" : ", ") + Escaped(domain) + " " + std::to_string(version);
    opset_list[domain] = version;
  }
  made.lines.push_back("an ONNX model: graph '" + Escaped(summary.graph, 200) + "', IR version " + std::to_string(summary.ir_version) +
                       ", opset " + opsets + (summary.producer.empty() ? "" : ", by " + Escaped(summary.producer, 200)));
  for (const auto& [name, type] : summary.inputs) {
    made.lines.push_back("input   " + Escaped(name) + " " + Escaped(type));
    inputs[name] = type;
  }
  for (const auto& [name, type] : summary.outputs) {
    made.lines.push_back("output  " + Escaped(name) + " " + Escaped(type));
    outputs[name] = type;
  }
  std::vector<std::pair<int64_t, std::string>> operators;
  for (const auto& [name, count] : summary.operators) operators.emplace_back(-count, name);
  std::sort(operators.begin(), operators.end());
  std::string nodes;
  for (const auto& [count, name] : operators) nodes += (nodes.empty() ? "" : ", ") + std::to_string(-count) + " " + Escaped(name);
  made.lines.push_back(Counted(summary.nodes, "node") + ": " + nodes);
  if (summary.functions > 0) made.lines.push_back(Counted(summary.functions, "function"));
  for (const std::string& warning : model.warnings()) made.lines.push_back("warning " + warning);
  made.json = {{"kind", "model"},
               {"graph", summary.graph},
               {"ir_version", summary.ir_version},
               {"producer", summary.producer},
               {"opsets", opset_list},
               {"inputs", inputs},
               {"outputs", outputs},
               {"nodes", summary.nodes},
               {"operators", summary.operators},
               {"functions", summary.functions}};
  std::map<std::string, TensorView> weights;
  for (const ModelSummary::Weight& weight : summary.weights) weights.emplace(weight.name, weight.type);
  AddTensors(weights, made);
  return made;
}

Inspection InspectCheckpoint(const std::string& path) {
  Inspection made;
  if (!fs::is_directory(path)) {
    const StoredTensors stored(path);
    const std::string file = IsShardIndex(path) ? "weights in " + Counted(stored.files(), "safetensors file") : "a safetensors file";
    const std::optional<int64_t> updates = stored.updates();
    made.lines.push_back(file + (updates ? ", after " + Counted(*updates, "update") : ""));
    made.json = {{"kind", "weights"}, {"step", updates ? Json(*updates) : Json(nullptr)}};
    AddTensors(stored.types(), made);
    return made;
  }
  std::string folder = path;
  if (!fs::exists(path + "/MANIFEST")) {
    const FoundCheckpoint found = FindNewestCheckpoint(path);
    for (const SkippedCheckpoint& skipped : found.skipped)
      made.lines.push_back("warning " + Escaped(skipped.path, 4096) + " cannot be loaded: " + skipped.why);
    if (!found.checkpoint) throw Error(ErrorCode::kCheckpoint, "no checkpoint in this folder can be loaded", Escaped(path, 4096));
    folder = found.checkpoint->folder();
  }
  const Checkpoint checkpoint = Checkpoint::Load(folder);
  const Manifest& manifest = checkpoint.manifest();
  made.lines.push_back("a checkpoint of gradloom " + Escaped(manifest.version) + ": " + Escaped(folder, 4096) + ", hashes verified");
  made.lines.push_back("step " + WithCommas(manifest.step) + ", batch " + WithCommas(manifest.batch) + ", seed " +
                       std::to_string(manifest.seed) + ", epoch " + std::to_string(manifest.cursor.epoch) + " after batch " +
                       WithCommas(manifest.cursor.batch) + " of " + std::to_string(manifest.cursor.batch_size) + " samples, " +
                       WithCommas(manifest.cursor.rows) + " rows");
  made.lines.push_back("model " + Escaped(manifest.plan.model_name, 200) + ", hash " + Escaped(manifest.plan.model_hash) + "; plan " +
                       Escaped(manifest.plan.hash));
  for (const std::string& warning : checkpoint.Warnings()) made.lines.push_back("warning " + warning);
  made.json = {{"kind", "checkpoint"},
               {"folder", folder},
               {"version", manifest.version},
               {"step", manifest.step},
               {"batch", manifest.batch},
               {"seed", manifest.seed},
               {"epoch", manifest.cursor.epoch},
               {"rows", manifest.cursor.rows},
               {"model", manifest.plan.model_name},
               {"model_hash", manifest.plan.model_hash}};
  AddTensors(checkpoint.types(), made);
  return made;
}

Inspection InspectData(const std::string& path) {
  Inspection made;
  made.json["kind"] = "data";
  if (const std::vector<std::string> files = FilesOf(path); files.size() > 1 || files.front() != path) {
    made.lines.push_back(Counted(std::ssize(files), "file") + ", in the order in which they are read");
    for (const std::string& file : files) {
      const Inspection one = InspectData(file);
      made.lines.push_back(Escaped(file, 4096) + "   " + one.lines.front());
      made.json["files"].push_back({{"path", file}, {"data", one.json}});
    }
    return made;
  }
  switch (KindOfDataFile(path)) {
    case DataFileKind::kTable: AddTable(path, made); break;
    case DataFileKind::kImages: AddImages(path, made); break;
    case DataFileKind::kArchive: AddArchive(path, made); break;
    case DataFileKind::kTokens: {
      const int64_t tokens = OpenTokens(path).shape[0];
      made.lines.push_back("a file of tokens: " + WithCommas(tokens) + " of them");
      made.json["tokens"] = tokens;
      break;
    }
    case DataFileKind::kNpy:
      made.lines.emplace_back("a numpy array");
      AddArrays({{"array", NpyType(path)}}, made);
      break;
    case DataFileKind::kIdx:
      made.lines.emplace_back("an IDX file");
      AddArrays({{"array", IdxType(path)}}, made);
      break;
    case DataFileKind::kNpz:
      made.lines.emplace_back("numpy arrays");
      AddArrays(NpzTypes(path), made);
      break;
    case DataFileKind::kIdxSet:
      made.lines.emplace_back("a set of IDX files");
      AddArrays(IdxTypes(path), made);
      break;
  }
  return made;
}

}  // namespace gradloom
