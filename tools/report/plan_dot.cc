#include "tools/report/plan_dot.h"

#include <set>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "tools/report/schedule.h"

namespace gradloom {
namespace {

// A quoted identifier of the DOT language.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : Escaped(text, 120)) quoted += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return quoted + "\"";
}

std::string LabelOf(const Instruction& instruction, size_t index) {
  return "#" + std::to_string(index) + " " + InstructionName(instruction) + (instruction.origin.empty() ? "" : " " + instruction.origin);
}

std::string EdgesOf(const Program& program) {
  std::string text;
  const auto edge = [&](int from, size_t to, const char* style) {
    text += "  n" + std::to_string(from) + " -> n" + std::to_string(to) + style + ";\n";
  };
  std::vector<int> writer(program.buffers.size(), -1);
  std::set<std::pair<int, int>> joined;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    for (const Use& use : program.instructions[i].uses) {
      if (use.buffer < 0) continue;
      const int whole = program.buffers[static_cast<size_t>(use.buffer)].whole;
      int& writes = writer[static_cast<size_t>(whole >= 0 ? whole : use.buffer)];
      if (use.access == Access::kRead && writes >= 0 && joined.emplace(writes, static_cast<int>(i)).second) edge(writes, i, "");
      if (use.access == Access::kWrite) writes = static_cast<int>(i);
    }
  }
  for (const auto& [before, after] : EventArrows(program)) {
    if (!joined.contains({before, after})) edge(before, static_cast<size_t>(after), " [style=dashed]");
  }
  return text;
}

}  // namespace

std::string ProgramDot(const Program& program, const std::string& title) {
  std::string text = "digraph plan {\n  label=" + Quoted(title) + ";\n  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n";
  for (size_t s = 0; s < program.streams.size(); ++s) {
    text += "  subgraph cluster_" + std::to_string(s) + " {\n    label=\"" + StreamName(program, s) + "\";\n";
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
