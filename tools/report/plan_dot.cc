#include "tools/report/plan_dot.h"

#include <set>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr const char* kStreams[] = {"compute", "comm", "copy"};

// As a quoted identifier of the language.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : Escaped(text, 120)) quoted += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return quoted + "\"";
}

bool IsSignal(const Instruction& i) { return i.kind == InstructionKind::kRecord || i.kind == InstructionKind::kWait; }

std::string LabelOf(const Instruction& instruction, size_t index) {
  std::string what = instruction.kernel;
  if (instruction.kind == InstructionKind::kCopy) what = "copy";
  if (instruction.kind == InstructionKind::kCollective) what = "all_reduce of " + std::to_string(instruction.uses.size() / 2);
  return "#" + std::to_string(index) + " " + what + (instruction.origin.empty() ? "" : " " + instruction.origin);
}

std::string EdgesOf(const Program& program) {
  std::string text;
  std::vector<int> writer(program.buffers.size(), -1), recorded(static_cast<size_t>(program.num_events), -1);
  std::vector<int> last(program.streams.size(), -1);
  std::vector<std::vector<int>> waits(program.streams.size());
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const auto stream = static_cast<size_t>(instruction.stream);
    if (instruction.kind == InstructionKind::kRecord) recorded[static_cast<size_t>(instruction.event)] = last[stream];
    if (instruction.kind == InstructionKind::kWait) waits[stream].push_back(recorded[static_cast<size_t>(instruction.event)]);
    if (IsSignal(instruction)) continue;
    std::set<int> from;
    for (const Use& use : instruction.uses) {
      if (use.buffer < 0) continue;
      const int whole = program.buffers[static_cast<size_t>(use.buffer)].whole;
      const auto bytes = static_cast<size_t>(whole >= 0 ? whole : use.buffer);
      if (use.access == Access::kRead && writer[bytes] >= 0) from.insert(writer[bytes]);
      if (use.access == Access::kWrite) writer[bytes] = static_cast<int>(i);
    }
    for (int before : from) text += "  n" + std::to_string(before) + " -> n" + std::to_string(i) + ";\n";
    for (int before : waits[stream]) {
      if (before >= 0 && !from.contains(before))
        text += "  n" + std::to_string(before) + " -> n" + std::to_string(i) + " [style=dashed];\n";
    }
    waits[stream].clear();
    last[stream] = static_cast<int>(i);
  }
  return text;
}

}  // namespace

std::string ProgramDot(const Program& program, const std::string& title) {
  std::string text = "digraph plan {\n  label=" + Quoted(title) + ";\n  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n";
  for (size_t s = 0; s < program.streams.size(); ++s) {
    text += "  subgraph cluster_" + std::to_string(s) + " {\n    label=\"" + kStreams[static_cast<size_t>(program.streams[s].kind)] + " " +
            std::to_string(s) + "\";\n";
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      if (static_cast<size_t>(instruction.stream) != s || IsSignal(instruction)) continue;
      text += "    n" + std::to_string(i) + " [label=" + Quoted(LabelOf(instruction, i)) + "];\n";
    }
    text += "  }\n";
  }
  return text + EdgesOf(program) + "}\n";
}

}  // namespace gradloom
