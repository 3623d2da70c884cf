#include "tools/report/stream_tables.h"

#include <algorithm>
#include <map>
#include <vector>

#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/number_text.h"
#include "tools/report/schedule.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

// Instructions of the critical path that are listed.
constexpr size_t kLongest = 5;

std::string Padded(const std::string& text, size_t width) {
  return text.size() >= width ? text : text + std::string(width - text.size(), ' ');
}

// The width of a column of these names, with the space behind them.
size_t ColumnOf(const std::vector<std::string>& names) {
  size_t width = 26;
  for (const std::string& name : names) width = std::max(width, name.size() + 2);
  return width;
}

std::string Right(const std::string& text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

std::string NamesOf(const Program& program, const Instruction& instruction, Access access) {
  std::string names;
  int more = 0;
  for (const Use& use : instruction.uses) {
    if (use.access != access || use.buffer < 0) continue;
    if (names.size() > 70) {
      ++more;
      continue;
    }
    names += (names.empty() ? "" : ", ") + Escaped(program.buffers[static_cast<size_t>(use.buffer)].name, 40);
  }
  return names + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

// The instructions of a stream. Waits are shown in the line of the next instruction, records in that of the previous one.
std::string TableOf(const Program& program, size_t stream, const std::map<int, SimulatedSpan>& spans) {
  std::vector<std::string> names;
  for (const Instruction& instruction : program.instructions) {
    if (static_cast<size_t>(instruction.stream) == stream) names.push_back(InstructionName(instruction));
  }
  const size_t name_width = ColumnOf(names);
  std::vector<std::string> lines;
  std::string waits;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (static_cast<size_t>(instruction.stream) != stream) continue;
    if (instruction.kind == InstructionKind::kWait) {
      waits += (waits.empty() ? "waits e" : ", e") + std::to_string(instruction.event);
      continue;
    }
    if (instruction.kind == InstructionKind::kRecord) {
      if (!lines.empty()) lines.back() += "  records e" + std::to_string(instruction.event);
      continue;
    }
    const auto span = spans.find(static_cast<int>(i));
    const double start = span == spans.end() ? 0 : span->second.start, seconds = span == spans.end() ? 0 : span->second.end - start;
    const std::string times = Formatted("%10.3f %9.3f", start * 1e3, seconds * 1e3);
    lines.push_back("  " + Right("#" + std::to_string(i), 6) + times + "  " + Padded(InstructionName(instruction), name_width) +
                    Escaped(instruction.origin, 48) + "  " + NamesOf(program, instruction, Access::kRead) + " -> " +
                    NamesOf(program, instruction, Access::kWrite) + (waits.empty() ? "" : "  " + waits));
    waits.clear();
  }
  std::string text = StreamName(program, stream) + ": " + std::to_string(lines.size()) + " instructions\n          begin ms        ms\n";
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

std::string Milliseconds(double seconds) { return seconds < 10 ? Formatted("%.4g ms", seconds * 1e3) : Formatted("%.4g s", seconds); }

std::string StreamTables(const Program& program, const SimulatedProgram& simulated) {
  std::map<int, SimulatedSpan> spans;
  for (const SimulatedSpan& span : simulated.spans) spans.emplace(span.instruction, span);
  std::string text;
  for (size_t s = 0; s < program.streams.size(); ++s) text += TableOf(program, s, spans);
  return text;
}

std::map<PlanPhase, double> SecondsByPhase(const Program& program, const SimulatedProgram& simulated) {
  std::map<PlanPhase, double> seconds;
  for (const SimulatedSpan& span : simulated.spans) {
    seconds[program.instructions[static_cast<size_t>(span.instruction)].phase] += span.end - span.start;
  }
  return seconds;
}

std::string SimulationSummary(const Plan& plan, const Simulation& simulation) {
  std::string text;
  for (const SimulatedProgram& simulated : simulation.programs) {
    const Program& program = plan.programs[static_cast<size_t>(simulated.program)];
    text += "program " + std::to_string(simulated.program) + " on " + Counted(simulated.ranks, "device") + ", arena " +
            Bytes(program.transient_bytes) + "\n";
    for (size_t s = 0; s < program.streams.size(); ++s) {
      const double busy = simulation.seconds > 0 ? 100 * simulated.busy[s] / simulation.seconds : 0.0;
      text += "  " + Padded(StreamName(program, s), 12) + Formatted("busy %5.1f %%", busy) + "\n";
    }
    std::string phases;
    for (const auto& [phase, seconds] : SecondsByPhase(program, simulated)) {
      if (phase == PlanPhase::kNone) continue;
      phases += (phases.empty() ? "  " : ", ") + std::string(PhaseName(phase)) + " " + Milliseconds(seconds);
    }
    if (!phases.empty()) text += phases + "\n";
    if (simulated.communication > 0) {
      text += "  communication " + Milliseconds(simulated.communication) + ", exposed " + Milliseconds(simulated.exposed) + "\n";
    }
  }
  struct Part {
    double seconds;
    int runner, instruction;
  };
  std::vector<Part> critical;
  for (const auto& [runner, instruction] : simulation.critical) {
    for (const SimulatedSpan& span : simulation.programs[static_cast<size_t>(runner)].spans) {
      if (span.instruction == instruction) critical.push_back({span.end - span.start, runner, instruction});
    }
  }
  text += "critical path of " + std::to_string(critical.size()) + " instructions, the longest:\n";
  std::stable_sort(critical.begin(), critical.end(), [](const Part& a, const Part& b) { return a.seconds > b.seconds; });
  if (critical.size() > kLongest) critical.resize(kLongest);
  const auto instruction_of = [&](const Part& part) -> const Instruction& {
    const int program = simulation.programs[static_cast<size_t>(part.runner)].program;
    return plan.programs[static_cast<size_t>(program)].instructions[static_cast<size_t>(part.instruction)];
  };
  std::vector<std::string> names;
  for (const Part& part : critical) names.push_back(InstructionName(instruction_of(part)));
  const size_t name_width = ColumnOf(names);
  for (size_t i = 0; i < critical.size(); ++i) {
    text += "  " + Right(Milliseconds(critical[i].seconds), 12) + "  " + Padded(names[i], name_width) +
            Escaped(instruction_of(critical[i]).origin, 60) + "\n";
  }
  return text;
}

}  // namespace gradloom
