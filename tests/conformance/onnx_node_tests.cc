// onnx_node_tests DIR [--only TEXT] [--target ISA] [--pending FILE] [--failures] [--page] [--same-page FILE]
//
// Runs ONNX's backend tests (folders of DIR with a model.onnx) through the compiler and the executor. Prints a line per operator, followed
// by the reasons of the tests that did not pass:
//
//   Add  passed 12  failed 0  skipped 1
//     skipped test_add_uint4: E-UNSUPPORTED ...
//
// Ends with "N passed, N failed, N skipped". A skipped test needs something that is not supported. --only runs the tests with TEXT in their
// name; --target sm_90 runs them on a GPU of that kind. Without --pending, any failing test is an error. With it, FILE lists the tests that
// may fail (a line each: the name, two spaces, the reason), and it is an error if a listed test passes or an unlisted one does not.
// --failures prints only the tests that did not pass, in the format of that list. --page prints docs/operators.md instead, with the reasons
// from the list; --same-page makes it an error if FILE differs from that page.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "tests/conformance/node_test.h"
#include "tests/conformance/operators_page.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

constexpr char kUsage[] = "onnx_node_tests DIR [--only TEXT] [--target ISA] [--pending FILE] [--failures] [--page] [--same-page FILE]";

struct Arguments {
  std::string folder, only, isa, pending, same_page;
  bool failures = false, page = false;
};

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) throw Error(ErrorCode::kConfig, word + " needs a value", "", kUsage);
      return argv[++i];
    };
    if (word == "--only") {
      arguments.only = value();
    } else if (word == "--target") {
      arguments.isa = value();
    } else if (word == "--pending") {
      arguments.pending = value();
    } else if (word == "--same-page") {
      arguments.same_page = value();
    } else if (word == "--page") {
      arguments.page = true;
    } else if (word == "--failures") {
      arguments.failures = true;
    } else if (word.starts_with("--") || !arguments.folder.empty()) {
      throw Error(ErrorCode::kConfig, "unexpected argument '" + Escaped(word) + "'", "", kUsage);
    } else {
      arguments.folder = word;
    }
  }
  if (arguments.folder.empty()) throw Error(ErrorCode::kConfig, "no folder given", "", kUsage);
  return arguments;
}

std::vector<std::string> FindTests(const Arguments& arguments) {
  if (!fs::is_directory(arguments.folder)) throw Error(ErrorCode::kIo, "no folder '" + Escaped(arguments.folder) + "'");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(arguments.folder)) {
    const std::string name = entry.path().filename().string();
    if (name.find(arguments.only) != std::string::npos && fs::exists(entry.path() / "model.onnx")) names.push_back(name);
  }
  if (names.empty()) throw Error(ErrorCode::kIo, "no tests in '" + Escaped(arguments.folder) + "'");
  std::sort(names.begin(), names.end());
  return names;
}

std::map<std::string, std::string> ReadPending(const std::string& path) {
  std::map<std::string, std::string> pending;
  if (path.empty()) return pending;
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::kIo, "cannot read '" + Escaped(path) + "'");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t gap = line.find("  ");
    if (gap == std::string::npos) throw Error(ErrorCode::kParse, "no reason in '" + Escaped(line) + "'", path);
    pending.emplace(line.substr(0, gap), line.substr(gap + 2));
  }
  return pending;
}

// The operator of a test. A test with the operator expanded counts for the operator.
std::string OperatorOf(const std::string& folder, const std::string& name) {
  const size_t expanded = name.find("_expanded");
  const fs::path whole = fs::path(folder) / name.substr(0, expanded);
  try {
    return OperatorOfNodeTest(fs::exists(whole / "model.onnx") ? whole.string() : (fs::path(folder) / name).string());
  } catch (const Error&) {
    return "(unreadable)";
  }
}

const char* VerdictName(NodeVerdict verdict) {
  return verdict == NodeVerdict::kPassed ? "passed" : verdict == NodeVerdict::kFailed ? "failed" : "skipped";
}

void Print(const std::string& op, const std::map<std::string, NodeOutcome>& results) {
  std::map<NodeVerdict, int> counts;
  for (const auto& [name, outcome] : results) ++counts[outcome.verdict];
  std::printf("%s  passed %d  failed %d  skipped %d\n", op.c_str(), counts[NodeVerdict::kPassed], counts[NodeVerdict::kFailed],
              counts[NodeVerdict::kSkipped]);
  for (const auto& [name, outcome] : results) {
    if (outcome.verdict != NodeVerdict::kPassed)
      std::printf("  %s %s: %s\n", VerdictName(outcome.verdict), name.c_str(), outcome.reason.c_str());
  }
}

int Run(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  const std::map<std::string, std::string> pending = ReadPending(arguments.pending);
  NodeResults by_operator;
  std::map<NodeVerdict, int> counts;
  std::vector<std::string> surprises;
  for (const std::string& name : FindTests(arguments)) {
    const NodeOutcome outcome = RunNodeTest((fs::path(arguments.folder) / name).string(), arguments.isa);
    ++counts[outcome.verdict];
    const bool passed = outcome.verdict == NodeVerdict::kPassed;
    if (!arguments.pending.empty() && passed == pending.contains(name))
      surprises.push_back(name + (passed ? " passes: take it off the list" : ": " + outcome.reason));
    by_operator[OperatorOf(arguments.folder, name)].emplace(name, outcome);
  }
  const std::string page = OperatorsPage(by_operator, pending);
  if (arguments.page) {
    std::printf("%s", page.c_str());
    return 0;
  }
  for (const auto& [op, results] : by_operator) {
    if (!arguments.failures) Print(op, results);
    for (const auto& [name, outcome] : results) {
      if (arguments.failures && outcome.verdict != NodeVerdict::kPassed) std::printf("%s  %s\n", name.c_str(), outcome.reason.c_str());
    }
  }
  for (const std::string& surprise : surprises) std::printf("not as %s says: %s\n", arguments.pending.c_str(), surprise.c_str());
  std::printf("%d passed, %d failed, %d skipped\n", counts[NodeVerdict::kPassed], counts[NodeVerdict::kFailed],
              counts[NodeVerdict::kSkipped]);
  const bool same_page = arguments.same_page.empty() || ReadWholeFile(arguments.same_page) == page;
  if (!same_page) std::printf("%s is out of date: it says how it is made\n", arguments.same_page.c_str());
  const bool as_expected = arguments.pending.empty() ? counts[NodeVerdict::kFailed] == 0 : surprises.empty();
  return as_expected && same_page ? 0 : ExitCode(ErrorCode::kCheckFailed);
}

}  // namespace
}  // namespace gradloom

int main(int argc, char** argv) {
  try {
    return gradloom::Run(argc, argv);
  } catch (const gradloom::Error& error) {
    std::fprintf(stderr, "%s\n", error.Describe().c_str());
    return gradloom::ExitCode(error.code());
  }
}
