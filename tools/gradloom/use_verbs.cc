// gradloom eval and predict: use a trained model.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/data/csv.h"
#include "runtime/data/npz.h"
#include "tools/config/flags.h"
#include "tools/gradloom/verbs.h"
#include "tools/run/options/key_values.h"
#include "tools/run/outputs.h"
#include "tools/run/records/confusion_report.h"
#include "tools/run/serve/predictions.h"
#include "tools/run/serve/trained_model.h"
#include "tools/run/train/job.h"
#include "tools/run/train/run_folder.h"
#include "tools/run/train/training_job.h"
#include "tools/screen/json_line.h"
#include "tools/screen/screen.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

struct UseFlags {
  TrainedSource source;
  std::string data, out;
  bool json = false, confusion = false;
  TrainedModel::PredictionForm form;
  ConfigurationFlags keys;

  Configuration Resolve() const {
    Configuration configuration = keys.Resolve(fs::is_directory(source.path) ? RunFolder::Open(source.path).ConfigPath() : "");
    // The number of threads of a run fits the machine that it was trained on.
    if (configuration.origin("devices.threads").kind == OriginKind::kFile) configuration.Reset("devices.threads");
    // It decides how gradients are summed. Nothing is summed here, and its file may be gone.
    if (configuration.origin("devices.topology").kind == OriginKind::kFile) configuration.Reset("devices.topology");
    // The format of a run belongs to its own data.
    if (!data.empty() && configuration.origin("data.format").kind == OriginKind::kFile) configuration.Reset("data.format");
    return configuration;
  }
};

std::shared_ptr<UseFlags> Declare(CLI::App& app, uint8_t uses) {
  auto flags = std::make_shared<UseFlags>();
  app.add_option("run", flags->source.path, "the folder of a run, or a plan")->required();
  app.add_option("--weights", flags->source.weights,
                 "a safetensors file, the index of several, or a checkpoint's folder, instead of the run's own weights");
  app.add_option("--from", flags->source.from, "a checkpoint of the run (step-000500), or best; default: the newest state");
  app.add_flag("!--no-ema", flags->source.averages, "take the weights of the last update, not their moving averages");
  flags->keys.Declare(app, uses, false);
  return flags;
}

void PrintNotes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) LogToStderr(note);
}

// Runs `f` with the trained model in each process of the job; only rank 0 prints. An evaluation by a single process prints its topology as
// well.
int InJob(const UseFlags& flags, JobPhase phase, const std::function<void(const TrainedModel& model, const TrainingJob& job)>& use) {
  Configuration configuration = flags.Resolve();
  PrintSetKeys(configuration);
  const std::shared_ptr<TrainingJob> job = TrainingJob::Join(configuration, [&](const JobTopology& topology) {
    if (topology.rank == 0 && (phase == JobPhase::kEvaluation || topology.world > 1)) PrintNotes(LinesOf(topology));
  });
  return job->Guard([&] {
    if (job->leads() && !job->alone()) PrintNotes({job->TransportLine()});
    job->CheckConfiguration(configuration, false);
    job->DivideWork(configuration);
    if (job->leads() && job->shares_batches())
      PrintNotes({"devices " + configuration.Text("devices.use") + " of " + std::to_string(job->topology().world) +
                  " processes, which run each batch together"});
    const TrainedModel model(flags.source, configuration);
    job->set_phase(phase);
    use(model, *job);
    return 0;
  });
}

void Evaluate(const UseFlags& flags, const TrainedModel& model, const TrainingJob& job) {
  std::vector<std::string> notes = model.notes();
  const TrainedModel::Evaluation evaluation = model.Evaluate(flags.data, flags.confusion, notes, job);
  job.Leave();
  if (!job.leads()) return;
  PrintNotes(notes);
  if (flags.json) {
    nlohmann::json line{{"run", flags.source.path}, {"weights", model.weights_path()}, {"data", flags.data}, {"rows", evaluation.rows}};
    for (const auto& [name, value] : evaluation.values) line[name] = std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
    if (evaluation.confusion) line["confusion"] = ConfusionJson(*evaluation.confusion, evaluation.classes);
    std::printf("%s\n", JsonLine(line).c_str());
    return;
  }
  std::vector<std::vector<std::string>> table;
  for (const auto& [name, value] : evaluation.values) table.push_back({name, Short(value)});
  if (evaluation.confusion) std::printf("%s\n", ConfusionText(*evaluation.confusion, evaluation.classes).c_str());
  std::printf("%s%s rows of %s\n", Table(table).c_str(), WithCommas(evaluation.rows).c_str(),
              flags.data.empty() ? "the run's evaluation data" : Escaped(flags.data, 4096).c_str());
}

int Generate(const UseFlags& flags, const GenerationOptions& options) {
  const Configuration configuration = flags.Resolve();
  RefuseSeveralProcesses(TopologyOf(configuration), "text generation");
  const TrainedModel model(flags.source, configuration);
  PrintNotes(model.notes());
  const TrainedModel::Generated made = model.Generate(options);
  if (!flags.json) {
    std::printf("%s%s\n", options.prompt.c_str(), made.text.c_str());
    return 0;
  }
  const nlohmann::json line{{"prompt", options.prompt},
                            {"text", made.text},
                            {"tokens", made.tokens},
                            {"temperature", options.temperature},
                            {"seed", options.seed}};
  std::printf("%s\n", JsonLine(line).c_str());
  return 0;
}

void Write(const UseFlags& flags, const Predictions& predictions) {
  if (flags.out.ends_with(".npz")) {
    WriteNpz(flags.out, ArraysOf(predictions, flags.out));
  } else if (flags.out.ends_with(".csv")) {
    AtomicFile file(flags.out);
    WriteTable(predictions, flags.out, [&](std::string_view text) { file.Write(text); });
    file.Commit();
  } else if (flags.out.empty()) {
    std::printf("%s\n", JsonOf(predictions).c_str());
  } else {
    WriteFileAtomically(flags.out, JsonOf(predictions) + "\n");
  }
  // After the file, since an error is one JSON object, too.
  if (flags.json && !flags.out.empty()) std::printf("%s\n", JsonOf(predictions).c_str());
  if (flags.out.ends_with(".npz")) {
    for (const auto& [name, classes] : predictions.classes) {
      if (!classes.empty()) LogToStderr("classes " + Escaped(name) + " from 0: " + ListedClasses(classes));
    }
  }
  for (const auto& [name, tensor] : predictions.outputs) {
    LogToStderr(Escaped(name) + "  " + std::string(DTypeName(tensor.dtype())) + tensor.shape().ToString() +
                (flags.out.empty() ? "" : "  -> " + Escaped(flags.out, 4096)));
  }
}

int Predict(const UseFlags& flags) {
  if (flags.data.empty()) {
    throw Error(ErrorCode::kConfig, "no input data is given", "--data",
                "pass a file: --data x.npz; to generate text with a language model: --generate 200");
  }
  if (!flags.out.empty() && !flags.out.ends_with(".npz") && !flags.out.ends_with(".json") && !flags.out.ends_with(".csv")) {
    throw Error(ErrorCode::kConfig, "predictions must be written as .npz, .csv or .json", Escaped(flags.out, 4096), "use -o y.npz");
  }
  if (!flags.out.empty()) CheckCanWrite(flags.out);
  return InJob(flags, JobPhase::kPrediction, [&](const TrainedModel& model, const TrainingJob& job) {
    std::vector<std::string> notes = model.notes();
    const Predictions predictions = model.Predict(flags.data, flags.form, notes, job);
    job.Leave();
    if (!job.leads()) return;
    PrintNotes(notes);
    Write(flags, predictions);
  });
}

}  // namespace

Action DeclareEval(CLI::App& app) {
  const auto flags = Declare(app, kUseEval | kUseJob);
  app.add_option("--data", flags->data, "the data to evaluate on; default: the run's evaluation data");
  app.add_flag("--confusion", flags->confusion, "also show precision, recall and F1 of each class, and which class was taken for which");
  app.add_flag("--json", flags->json, "print one JSON object");
  return [flags] {
    return InJob(*flags, JobPhase::kEvaluation, [&](const TrainedModel& model, const TrainingJob& job) { Evaluate(*flags, model, job); });
  };
}

Action DeclarePredict(CLI::App& app) {
  const auto flags = Declare(app, kUseEval | kUseJob);
  CLI::Option* data = app.add_option("--data", flags->data, "the input data; target columns are not needed");
  auto generation = std::make_shared<GenerationOptions>();
  CLI::Option* generate =
      app.add_option("--generate", generation->count, "generate this many tokens of text with a language model instead");
  app.add_option("--prompt", generation->prompt, "the text to continue, or the numbers of its tokens: '464 3797'");
  app.add_option("--temperature", generation->temperature, "below 1: prefer likely tokens; 0: always the likeliest")->capture_default_str();
  app.add_option("--seed", generation->seed, "seed of the tokens")->capture_default_str();
  app.add_option("--alphabet", generation->alphabet,
                 "a file with the characters of the tokens, in order; default: ASCII for 96 tokens, bytes for 256, otherwise numbers");
  CLI::Option* units = app.add_flag("--target-units", flags->form.target_units,
                                    "undo the transforms of the targets, so that predictions are in the units of the data");
  CLI::Option* classes = app.add_flag("--classes", flags->form.classes,
                                      "write the predicted class, by its name if it has one, and its probability, instead of the scores");
  CLI::Option* probabilities = app.add_flag("--probabilities", flags->form.probabilities,
                                            "write the probability of each class, in a column TARGET.CLASS, instead of the scores");
  CLI::Option* keep = app.add_option("--keep", flags->form.keep, "copy columns of the table to the output: id, or id,name, or 0..2");
  CLI::Option* out = app.add_option("-o,--output", flags->out, "the file to write, .npz, .csv or .json; default: JSON on stdout");
  for (CLI::Option* of_predictions : {data, units, classes, probabilities, keep, out}) generate->excludes(of_predictions);
  app.add_flag("--json", flags->json, "print JSON on stdout, also with -o");
  return [flags, generation, generate] { return generate->count() > 0 ? Generate(*flags, *generation) : Predict(*flags); };
}

}  // namespace gradloom
