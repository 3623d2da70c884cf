#include "tools/run/views/comparison.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/checkpoint/shard_index.h"
#include "runtime/plan/memory_report.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/text.h"
#include "tools/config/configuration.h"
#include "tools/run/records/csv_line.h"
#include "tools/run/serve/trained_model.h"
#include "tools/run/train/run_folder.h"
#include "tools/run/train/stored_tensors.h"
#include "tools/screen/screen.h"
#include "tools/screen/shell_word.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {
namespace {

constexpr size_t kMaxLines = 40;  // of a plan's text

std::string KindOf(const std::string& path) {
  if (!std::filesystem::exists(path)) InputFile missing(path, 0);  // throws, and suggests a file with a similar name
  if (std::filesystem::exists(path + "/MANIFEST")) return "weights";
  if (!std::filesystem::is_regular_file(path)) return "runs";
  return path.ends_with(".safetensors") || IsShardIndex(path) ? "weights" : "plans";
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The lines that only one of two plan texts has, in their order.
void CompareText(const std::string& a, const std::string& b, std::vector<std::string>& out) {
  const std::vector<std::string> left = LinesOf(a), right = LinesOf(b);
  std::map<std::string, int> count;
  for (const std::string& line : left) ++count[line];
  std::vector<std::string> added;
  for (const std::string& line : right) {
    if (count[line]-- <= 0) added.push_back("> " + line);
  }
  std::vector<std::string> differences;
  for (const std::string& line : left) {
    int& rest = count[line];
    if (rest <= 0) continue;
    --rest;
    differences.push_back("< " + line);
  }
  differences.insert(differences.end(), added.begin(), added.end());
  for (size_t i = 0; i < std::min(differences.size(), kMaxLines); ++i) out.push_back(differences[i]);
  if (differences.size() > kMaxLines) out.push_back("and " + std::to_string(differences.size() - kMaxLines) + " more lines");
}

// How often the programs of a plan launch each kernel.
std::map<std::string, int64_t> LaunchesOf(const Plan& plan) {
  std::map<std::string, int64_t> launches;
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    for (const Instruction& instruction : plan.programs[i].instructions) {
      if (instruction.kind == InstructionKind::kLaunch) ++launches[instruction.kernel];
    }
  }
  return launches;
}

// The memory of the device that needs most. The plan may be unsound.
int64_t MemoryOf(const Plan& plan) {
  int64_t bytes = 0;
  for (size_t place = 0; place < plan.places.size(); ++place)
    bytes = std::max(bytes, ArenasOf(plan, static_cast<int>(place)).total_bytes());
  return bytes;
}

// What differs in memory and kernels, before the text, which is long.
void SumUp(const Plan& a, const Plan& b, std::vector<std::string>& out) {
  const int64_t bytes = MemoryOf(a), others = MemoryOf(b);
  if (bytes != others) out.push_back("memory of a device: " + Bytes(bytes) + " and " + Bytes(others));
  std::map<std::string, std::pair<int64_t, int64_t>> launches;
  for (const auto& [kernel, count] : LaunchesOf(a)) launches[kernel].first = count;
  for (const auto& [kernel, count] : LaunchesOf(b)) launches[kernel].second = count;
  for (const auto& [kernel, counts] : launches) {
    if (counts.first != counts.second)
      out.push_back("launches of " + Escaped(kernel, 200) + ": " + std::to_string(counts.first) + " and " + std::to_string(counts.second));
  }
}

void ComparePlans(const std::string& a, const std::string& b, std::vector<std::string>& out) {
  const Plan left = ReadPlan(PlanPathOf(a)), right = ReadPlan(PlanPathOf(b));
  if (PlanHash(left) == PlanHash(right)) return;
  out.push_back("plan: " + PlanHash(left).substr(0, 8) + " and " + PlanHash(right).substr(0, 8));
  if (left.model.hash != right.model.hash)
    out.push_back("model: " + Escaped(left.model.name) + " and " + Escaped(right.model.name) + ", with different contents");
  SumUp(left, right, out);
  CompareText(PlanText(left), PlanText(right), out);
}

// The distance between two tensors of the same shape; nullopt if they are equal.
std::optional<std::string> Distance(const Tensor& a, const Tensor& b) {
  double largest = 0, squares = 0, own = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    const double x = ElementAsDouble(a.view(), i), y = ElementAsDouble(b.view(), i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    ++count;
    largest = std::isnan(x - y) ? std::nan("") : std::max(largest, std::abs(x - y));
    squares += (x - y) * (x - y);
    own += x * x;
  }
  if (count == 0) return std::nullopt;
  return WithCommas(count) + " of " + WithCommas(a.elements()) + " differ, by " + Short(largest) + " at most, relative norm " +
         Short(std::sqrt(squares / std::max(own, 1e-300)));
}

void CompareTensors(const StoredTensors& left, const StoredTensors& right, std::vector<std::string>& out) {
  for (const auto& [name, type] : left.types()) {
    const auto other = right.types().find(name);
    const std::string tensor = "tensor '" + Escaped(name) + "': ";
    if (other == right.types().end()) {
      out.push_back(tensor + "only in " + Escaped(left.path(), 4096));
    } else if (type.dtype != other->second.dtype || type.shape != other->second.shape) {
      out.push_back(tensor + std::string(DTypeName(type.dtype)) + type.shape.ToString() + " and " +
                    std::string(DTypeName(other->second.dtype)) + other->second.shape.ToString());
    } else if (const auto distance = Distance(left.Read(name), right.Read(name))) {
      out.push_back(tensor + *distance);
    }
  }
  for (const auto& [name, type] : right.types()) {
    if (!left.types().contains(name)) out.push_back("tensor '" + Escaped(name) + "': only in " + Escaped(right.path(), 4096));
  }
}

void CompareWeights(const std::string& a, const std::string& b, std::vector<std::string>& out) {
  CompareTensors(StoredTensors(a), StoredTensors(b), out);
}

// The last line of a run's results by column; none if it has not written any yet.
std::map<std::string, std::string> LastResults(const RunFolder& run) {
  if (!std::filesystem::exists(run.File("results.csv"))) return {};
  const std::vector<std::string> lines = LinesOf(ReadWholeFile(run.File("results.csv")));
  std::map<std::string, std::string> results;
  if (lines.size() < 2) return results;
  const std::vector<std::string> names = CsvFields(lines.front()), values = CsvFields(lines.back());
  for (size_t i = 0; i < std::min(names.size(), values.size()); ++i) results[names[i]] = values[i];
  return results;
}

void CompareRuns(const std::string& a, const std::string& b, std::vector<std::string>& out) {
  const RunFolder left = RunFolder::Open(a), right = RunFolder::Open(b);
  Configuration ours, theirs;
  ours.ReadFile(left.ConfigPath());
  theirs.ReadFile(right.ConfigPath());
  for (const Key& key : Keys()) {
    // Different names of two runs do not count.
    if (key.section() == "run" || ours.value(key.name) == theirs.value(key.name)) continue;
    out.push_back(std::string(key.name) + ": " + Escaped(TomlOf(key, ours.value(key.name))) + " and " +
                  Escaped(TomlOf(key, theirs.value(key.name))));
  }
  const auto results = LastResults(left), others = LastResults(right);
  for (const auto& [name, value] : results) {
    // Timings differ in every run.
    if (name == "time" || name == "samples_per_s") continue;
    const auto other = others.find(name);
    const std::string theirs_text = other == others.end() ? "none" : other->second;
    if (value != theirs_text) out.push_back("result " + Escaped(name) + ": " + Escaped(value) + " and " + Escaped(theirs_text));
  }
  std::vector<std::string> plans;
  ComparePlans(left.PlanPath(), right.PlanPath(), plans);
  if (!plans.empty())
    out.push_back(plans.front() + "   (gradloom diff " + ShellWord(left.PlanPath()) + " " + ShellWord(right.PlanPath()) + ")");
  std::vector<std::string> notes;
  const StoredTensors our_weights = OpenWeights({.path = a}, notes), their_weights = OpenWeights({.path = b}, notes);
  for (const std::string& note : notes) LogToStderr(note);
  CompareTensors(our_weights, their_weights, out);
}

}  // namespace

Comparison Compare(const std::string& a, const std::string& b) {
  Comparison comparison;
  comparison.kind = KindOf(a);
  if (comparison.kind != KindOf(b)) {
    throw Error(ErrorCode::kConfig, "cannot compare two kinds of files: " + comparison.kind + " and " + KindOf(b),
                Escaped(a, 4096) + ", " + Escaped(b, 4096), "pass two folders of runs, two plans, or two files of weights or checkpoints");
  }
  const auto compare = comparison.kind == "runs" ? CompareRuns : comparison.kind == "weights" ? CompareWeights : ComparePlans;
  compare(a, b, comparison.lines);
  return comparison;
}

}  // namespace gradloom
