// The verbs of the command. Each declares its flags on a CLI11 subcommand and returns a function to run after parsing, which returns the
// exit code and throws Error.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace gradloom {

using Action = std::function<int()>;

// The names of all verbs, and whether a word is one.
std::vector<std::string> VerbNames();
bool IsVerb(std::string_view word);

// From now on, errors that end the command are also printed as one JSON object on stdout, as with --json. For a configuration that says it.
void ReportErrorsAsJson();

// For a verb that has been parsed: throws Error(kConfig) if a file that one of its flags writes is one that it reads (CheckApart).
void CheckOutputsApart(const CLI::App& verb);

Action DeclareInit(CLI::App& app);
Action DeclareTrain(CLI::App& app);
Action DeclareResume(CLI::App& app);
Action DeclareCheck(CLI::App& app);
Action DeclareCompile(CLI::App& app);
Action DeclareInspect(CLI::App& app);
Action DeclareVerify(CLI::App& app);
Action DeclareExport(CLI::App& app);
Action DeclareDevices(CLI::App& app);
Action DeclareConfig(CLI::App& app);
Action DeclareEval(CLI::App& app);
Action DeclarePredict(CLI::App& app);
Action DeclareDiff(CLI::App& app);
Action DeclareExplain(CLI::App& app);
Action DeclareDoctor(CLI::App& app);
Action DeclareBench(CLI::App& app);
Action DeclareSimulate(CLI::App& app);
Action DeclareLaunch(CLI::App& app);
// If a word in the place of the launched command is a number of processes: the flag for it. Otherwise "".
std::string HelpForCount(std::string_view word);

}  // namespace gradloom
