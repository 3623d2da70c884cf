// gradloom <verb> [flags]
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/joined.h"
#include "runtime/base/suggestion.h"
#include "runtime/base/thrown.h"
#include "runtime/base/version.h"
#include "tools/config/keys.h"
#include "tools/gradloom/verbs.h"
#include "tools/launch/file_limit.h"
#include "tools/run/partial_files.h"
#include "tools/run/views/obstacles.h"
#include "tools/screen/error_file.h"
#include "tools/screen/screen.h"
#include "tools/screen/shell_word.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {
namespace {

struct Verb {
  const char* name;
  const char* summary;
  const char* example;
  Action (*declare)(CLI::App& app);
};

constexpr Verb kVerbs[] = {
    {"init", "write a commented configuration for a model", "gradloom init --model model.onnx --data train.csv", DeclareInit},
    {"check", "import and compile in memory; list everything that prevents training", "gradloom check model.onnx --data train.csv",
     DeclareCheck},
    {"compile", "compile a model to a plan file", "gradloom compile model.onnx --loss cross_entropy --batch 64 -o model.plan",
     DeclareCompile},
    {"inspect", "show the contents of a plan, a checkpoint, a model or data", "gradloom inspect model.plan", DeclareInspect},
    {"verify", "prove that a plan has no races and no out-of-bounds accesses", "gradloom verify model.plan", DeclareVerify},
    {"train", "compile a model and train it", "gradloom train model.onnx --data train.csv --loss mse --epochs 10", DeclareTrain},
    {"resume", "continue a run, to the same bits as if it had not stopped", "gradloom resume runs/exp1", DeclareResume},
    {"eval", "compute loss and metrics of a trained model", "gradloom eval runs/exp1 --data test.csv --metric accuracy", DeclareEval},
    {"predict", "compute outputs of a trained model", "gradloom predict runs/exp1 --data x.npz -o y.npz", DeclarePredict},
    {"export", "write a trained model as ONNX for inference, or its weights", "gradloom export runs/exp1 -o trained.onnx", DeclareExport},
    {"bench", "measure how fast a model trains on this machine", "gradloom bench model.onnx --batch 64", DeclareBench},
    {"simulate", "simulate a plan, on this machine or on a described cluster",
     "gradloom simulate model.plan --topology cluster.toml --devices 8,64,4096", DeclareSimulate},
    {"launch", "start the processes of a job on this and other hosts (with torchrun's flags)",
     "gradloom launch --nproc-per-node 2 -- doctor", DeclareLaunch},
    {"diff", "show the differences of two runs, plans, files of weights or checkpoints; exit 11 if there are any",
     "gradloom diff runs/exp1 runs/exp2", DeclareDiff},
    {"devices", "list the devices of this machine, or measure its CPU", "gradloom devices --measure -o machine.toml", DeclareDevices},
    {"doctor", "check this machine, and whether training works on it", "gradloom doctor", DeclareDoctor},
    {"explain", "explain a class of errors and what to do about it", "gradloom explain E-SHAPE", DeclareExplain},
    {"config", "print the resolved configuration and where each value came from; list the keys",
     "gradloom config -c gradloom.toml --set optimizer.lr=1e-4", DeclareConfig},
};

std::string VerbList() {
  return JoinedTexts(kVerbs, [](const Verb& verb) { return std::string_view(verb.name); });
}

Error UnknownVerb(const std::string& word) {
  return Error(ErrorCode::kConfig, "unknown verb '" + Escaped(word) + "'", "", Suggestion(word, VerbNames(), "verbs: " + VerbList()));
}

// Whether a word is written as a flag, and not as a negative number or a file.
bool IsFlag(std::string_view word) {
  return word.starts_with("--") || (word.size() == 2 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1])) != 0);
}

// A command line that CLI11 refuses.
class Misuse {
 public:
  Misuse(const CLI::ParseError& error, const CLI::App& app, const std::vector<std::string>& words)
      : error_(error), app_(app), words_(words), verb_(app.get_subcommands().empty() ? app : *app.get_subcommands().front()) {
    see_ = names_verb() ? "see: gradloom " + verb_.get_name() + " --help" : "see: gradloom --help";
    for (const CLI::Option* option : verb_.get_options()) {
      for (const std::string& name : option->get_lnames()) flags_.push_back("--" + name);
      for (const std::string& name : option->get_snames()) flags_.push_back("-" + name);
    }
  }

  // What is wrong, in the order in which it helps most.
  Error ToError() const {
    if (words_.empty()) return Refused("no verb given", "verbs: " + VerbList() + "   see: gradloom --help");
    if (!names_verb() && !words_[0].starts_with("-")) return UnknownVerb(words_[0]);
    for (const auto find : {&Misuse::UnknownFlag, &Misuse::LaunchedCount, &Misuse::ExtraArgument, &Misuse::MissingValue}) {
      if (std::optional<Error> found = (this->*find)()) return *std::move(found);
    }
    return MissingArgument();
  }

 private:
  static Error Refused(const std::string& what, const std::string& help) { return Error(ErrorCode::kConfig, what, "", help); }
  bool names_verb() const { return &verb_ != &app_; }
  bool launches() const { return verb_.get_name() == "launch"; }
  bool has_flag(const std::string& flag) const { return std::find(flags_.begin(), flags_.end(), flag) != flags_.end(); }

  std::optional<Error> UnknownFlag() const {
    for (const std::string& word : words_) {
      // The rest belongs to the launched command.
      if (word == "--") break;
      const std::string flag = word.substr(0, word.find('='));
      if (!IsFlag(flag) || has_flag(flag)) continue;
      const std::string near = flag.size() == 2 ? "" : NearFlag(flag, flags_);
      // torchrun passes on everything after the program; here a separator is required.
      const bool unmarked = launches() && std::find(words_.begin(), words_.end(), "--") == words_.end();
      return Refused("unknown flag '" + Escaped(flag) + "'" + (names_verb() ? " of gradloom " + verb_.get_name() : ""),
                     DidYouMean(near, (unmarked ? "write -- before the launched command   " : "") + see_));
    }
    return std::nullopt;
  }

  // `gradloom launch 4`
  std::optional<Error> LaunchedCount() const {
    const std::string help = launches() && words_.size() > 1 ? HelpForCount(words_[1]) : "";
    if (help.empty()) return std::nullopt;
    return Refused("unexpected argument '" + Escaped(words_[1]) + "'", help + "   " + see_);
  }

  std::optional<Error> ExtraArgument() const {
    std::vector<std::string> left = app_.remaining(true);
    // CLI11 also reports the separator itself as a remaining word.
    std::erase(left, "--");
    if (dynamic_cast<const CLI::ExtrasError*>(&error_) == nullptr || left.empty()) return std::nullopt;
    const std::string& word = left.front();
    const std::string what = "unexpected argument '" + Escaped(word, 4096) + "'";
    const bool lacks_data =
        has_flag("--data") && std::none_of(words_.begin(), words_.end(), [](const std::string& one) { return one.starts_with("--data"); });
    if (lacks_data && !word.starts_with("-")) return Refused(what, "pass data with --data: --data " + ShellWord(word) + "   " + see_);
    if (words_[0] == word && has_flag(word)) {
      return Refused("unexpected argument '" + Escaped(word) + "' before " + verb_.get_name(),
                     "write flags after the verb: gradloom " + verb_.get_name() + " " + Escaped(word) + "   " + see_);
    }
    // Usually an unquoted pattern that the shell has expanded.
    const std::string help = word.starts_with("-")
                                 ? "write a file of this name as ./" + Escaped(word, 4096) + "; words after -- are not flags   "
                                 : "a flag takes one argument; quote a pattern for several files: --data 'train/*.csv'   ";
    return Refused(what, help + see_);
  }

  std::optional<Error> MissingValue() const {
    const std::string said = error_.what();
    if (error_.get_name() != "ArgumentMismatch" || !said.starts_with("-")) return std::nullopt;
    return Refused(Escaped(said.substr(0, said.find(':'))) + " needs a value", see_);
  }

  // Or what CLI11 says, if it is something else.
  Error MissingArgument() const {
    const auto example = std::find_if(std::begin(kVerbs), std::end(kVerbs), [&](const Verb& one) { return one.name == verb_.get_name(); });
    const bool lacks = error_.get_name() == "RequiredError" && example != std::end(kVerbs);
    const std::string help = (lacks ? std::string("for example: ") + example->example + "   " : "") + see_;
    for (const CLI::Option* option : verb_.get_options()) {
      if (!lacks || !option->get_positional() || !option->get_required() || option->count() > 0) continue;
      return Refused("gradloom " + verb_.get_name() + " lacks its argument '" + option->get_name() + "': " + option->get_description(),
                     help);
    }
    return Refused(Escaped(error_.what()), help);
  }

  const CLI::ParseError& error_;
  const CLI::App& app_;
  const std::vector<std::string>& words_;
  const CLI::App& verb_;  // the program itself if no verb was recognized
  std::string see_;
  std::vector<std::string> flags_;  // of the verb
};

// torch.distributed.launch puts it before all arguments of the script, so with `gradloom "$@"` it comes before the verb.
bool IsLocalRank(std::string_view word) { return word.starts_with("--local-rank=") || word.starts_with("--local_rank="); }

// Flags that every verb has.
struct CommonFlags {
  bool verbose = false, quiet = false;
  std::string color = "auto", log_file;
};

void DeclareCommon(CLI::App& verb, CommonFlags& flags) {
  CLI::Option* verbose =
      verb.add_flag("-v,--verbose", flags.verbose, "print more on stderr: each value that you gave and where it came from");
  verb.add_flag("-q,--quiet", flags.quiet, "print only warnings and errors on stderr")->excludes(verbose);
  verb.add_option("--color", flags.color, "colour stderr: auto (on a terminal, unless NO_COLOR is set), always or never")
      ->capture_default_str();
  // For some verbs this is a key of the configuration.
  if (verb.get_option_no_throw("--log-file") == nullptr)
    verb.add_option("--log-file", flags.log_file, "also append the lines of stderr to this file");
}

// The value of a flag before the command line is parsed, for messages until then.
std::string WordOf(const std::vector<std::string>& words, const std::string& flag, const std::string& fallback) {
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i].starts_with(flag + "=")) return words[i].substr(flag.size() + 1);
    if (words[i] == flag && i + 1 < words.size()) return words[i + 1];
  }
  return fallback;
}

void SetColor(const std::string& word) {
  if (word != "auto" && word != "always" && word != "never") {
    throw Error(ErrorCode::kConfig, "unknown value '" + Escaped(word) + "'", "--color", "expected auto, always or never");
  }
  SetColorMode(word == "always" ? ColorMode::kAlways : word == "never" ? ColorMode::kNever : ColorMode::kAuto);
}

// Whether stdout is a pipe whose reader has closed it.
bool ReaderHasGone() {
  pollfd stream{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return ::poll(&stream, 1, 0) == 1 && (stream.revents & POLLERR) != 0;
}

// Lost output is a failure, for example on a full disk behind a redirection.
void CheckResultsWritten() {
  errno = 0;
  if ((std::fflush(stdout) == 0 && std::ferror(stdout) == 0) || ReaderHasGone()) return;
  throw Error(ErrorCode::kResource, "cannot write the results" + (errno == 0 ? "" : std::string(": ") + std::strerror(errno)), "stdout",
              "check that the disk is not full");
}

int Run(int argc, char** argv) {
  SetColorMode(ColorMode::kAuto);
  if (argc > 2 && IsLocalRank(argv[1])) std::swap(argv[1], argv[2]);
  const std::vector<std::string> words(argv + 1, argv + argc);
  SetColor(WordOf(words, "--color", "auto"));
  // A configuration file that says it too is read later.
  SetStderrLines(WordOf(words, "--log-format", "text") == "json", "");
  CLI::App app("Gradloom trains ONNX models: one plan, proved before it runs.", "gradloom");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("gradloom ") + kVersion);
  std::vector<Action> actions;
  CommonFlags common;
  for (const Verb& verb : kVerbs) {
    CLI::App* sub = app.add_subcommand(verb.name, verb.summary);
    sub->footer(std::string("Example:\n  ") + verb.example);
    Action& action = actions.emplace_back();
    // To declare the flags of all verbs takes a quarter of the time in which the command starts.
    if (std::find(argv + 1, argv + argc, std::string_view(verb.name)) == argv + argc) continue;
    action = verb.declare(*sub);
    DeclareCommon(*sub, common);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    throw Misuse(error, app, words).ToError();
  }
  SetVerbosity(common.quiet ? Verbosity::kQuiet : common.verbose ? Verbosity::kVerbose : Verbosity::kNormal);
  CheckOutputsApart(*app.get_subcommands().front());
  if (!common.log_file.empty()) SetStderrLines(StderrLinesAreJson(), common.log_file);
  for (size_t i = 0; i < actions.size(); ++i) {
    if (!app.got_subcommand(kVerbs[i].name)) continue;
    const int code = actions[i]();
    CheckResultsWritten();
    return code;
  }
  return ExitCode(ErrorCode::kInternal);
}

bool errors_as_json = false;

// Reports the errors to the launcher, on stderr, and with --json or --report json as one object on stdout. Returns the exit code.
int Refuse(const std::vector<Error>& errors) {
  std::vector<Error> told;
  for (const Error& error : errors) {
    const std::string explain = "gradloom explain " + std::string(ErrorName(error.code())) + "   says more";
    told.emplace_back(error.code(), error.message(), error.where(), error.help().empty() ? explain : error.help());
  }
  const std::string blocks = JoinedTexts(
      told, [](const Error& error) { return error.Describe(); }, "\n");
  WriteErrorFile(blocks);
  PrintErrors(told);
  if (errors_as_json) std::printf("%s\n", ErrorsAsJson(told).c_str());
  return ExitCode(errors.front().code());
}

// Opens /dev/null for standard streams that the caller has closed. Otherwise the first file that is opened would get such a descriptor, and
// messages would be written into a plan or a checkpoint.
void OpenStandardStreams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) == -1) [[maybe_unused]]
      const int opened = ::open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  }
}

std::terminate_handler end_before = nullptr;

// If memory runs out where no exception can propagate (in a destructor or a receiver thread), ends the process with the usual error. The
// other processes of the job notice that it has ended.
[[noreturn]] void EndProcess() {
  try {
    if (const std::exception_ptr failure = std::current_exception()) std::rethrow_exception(failure);
  } catch (const std::bad_alloc&) {
    constexpr std::string_view kMessage =
        "error[E-RESOURCE]: out of memory\n  help: use a smaller --batch, or a machine with more memory\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
    ::_exit(ExitCode(ErrorCode::kResource));
  } catch (...) {
    // Reported below.
  }
  end_before();
  std::abort();
}

}  // namespace

std::vector<std::string> VerbNames() {
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) names.emplace_back(verb.name);
  return names;
}

bool IsVerb(std::string_view word) {
  return std::any_of(std::begin(kVerbs), std::end(kVerbs), [&](const Verb& verb) { return word == verb.name; });
}

void ReportErrorsAsJson() { errors_as_json = true; }

}  // namespace gradloom

int main(int argc, char** argv) {
  using gradloom::Error;
  gradloom::OpenStandardStreams();
  gradloom::RaiseFileLimit();
  gradloom::EndOnSignals();
  gradloom::end_before = std::set_terminate(gradloom::EndProcess);
  // Exceeding the file size limit then fails the write with an error that can be reported, instead of ending the process.
  std::signal(SIGXFSZ, SIG_IGN);
  const std::vector<std::string> words(argv, argv + argc);
  const auto given = [&](std::string_view word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  const bool json =
      given("--json") || gradloom::WordOf(words, "--report", "") == "json" || given("log.report=json") || given("--set=log.report=json");
  if (json) gradloom::ReportErrorsAsJson();
  try {
    return gradloom::Run(argc, argv);
  } catch (const gradloom::UnsupportedModel& error) {
    return gradloom::Refuse(error.all());
  } catch (const Error& error) {
    return gradloom::Refuse({error});
  } catch (const std::exception& error) {
    return gradloom::Refuse({gradloom::ErrorFrom(error)});
  }
}
