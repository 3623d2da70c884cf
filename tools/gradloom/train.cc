// gradloom train: compile a model and train it.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "compiler/compile.h"
#include "compiler/onnx/export.h"
#include "runtime/base/file.h"
#include "runtime/plan/plan_file.h"
#include "runtime/session/metrics.h"
#include "runtime/session/safetensors.h"
#include "runtime/session/session.h"
#include "tools/gradloom/data_flags.h"
#include "tools/gradloom/recipe_flags.h"
#include "tools/gradloom/run_folder.h"
#include "tools/gradloom/screen.h"
#include "tools/gradloom/verbs.h"

namespace gradloom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kDefaultBatch = 32;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct TrainFlags {
  RecipeFlags recipe;
  DataFlags data;
  std::vector<std::string> metrics;
  int64_t epochs = 10;
  int64_t seed = 1234;
  std::string name, out = "runs", init_weights, report, progress = "auto";
  int64_t log_every = 50;
  bool dry_run = false;
};

// What one epoch came to.
struct EpochRow {
  int64_t epoch = 0;
  double train_loss = 0, seconds = 0, samples_per_s = 0;
  std::map<std::string, double> eval;  // "loss" and the metrics
};

class TrainRun {
 public:
  explicit TrainRun(const TrainFlags& flags) : flags_(flags), start_(Clock::now()) {}

  int Run() {
    Prepare();
    PrintHeader();
    if (flags_.dry_run) return 0;
    folder_.emplace(flags_.out, flags_.name);
    TrainAll();
    Save();
    PrintEnd();
    return 0;
  }

 private:
  void Prepare() {
    if (flags_.epochs < 1) throw Error(ErrorCode::kConfig, "--epochs must be at least 1");
    for (const std::string& name : flags_.metrics) Metric::Make(name);
    model_.emplace(Model::Load(flags_.recipe.model));
    CompileOptions options;
    options.import = flags_.recipe.ToImportOptions();
    // A symbolic batch needs some size before the data are known.
    if (options.import.batch == 0) options.import.batch = kDefaultBatch;
    options.control = flags_.recipe.ToPassControl();
    const ImportedGraph probe = Import(*model_, options.import);
    options.recipe = flags_.recipe.ToRecipe(*probe.graph, 0, notes_);
    const std::vector<Feed> feeds = FeedsOfEntry(*model_, options, {EntryKind::kStep, 0});
    data_ = LoadTrainingData(flags_.data.ToOptions(), feeds, flags_.seed);
    notes_.insert(notes_.end(), data_.notes.begin(), data_.notes.end());
    batch_ = probe.batch > 0 ? probe.batch : kDefaultBatch;
    batch_ = std::min(batch_, data_.train.rows());

    const int64_t batches = (data_.train.rows() + batch_ - 1) / batch_;
    total_steps_ = batches * flags_.epochs;
    options.recipe.schedule = flags_.recipe.ToSchedule(total_steps_ / std::max<int64_t>(options.recipe.accumulate, 1));
    for (int64_t size : BatchSizes(data_.train.rows(), batch_)) options.entries.push_back({EntryKind::kStep, size});
    if (data_.eval.rows() > 0) {
      for (int64_t size : BatchSizes(data_.eval.rows(), batch_)) options.entries.push_back({EntryKind::kEval, size});
    }
    loss_ = options.recipe.losses.front();
    const auto compiling = Clock::now();
    plan_ = std::make_shared<const Plan>(Compile(*model_, options, &report_));
    compile_seconds_ = SecondsSince(compiling);
    session_.emplace(plan_, SessionOptions{.seed = flags_.seed});
    if (!flags_.init_weights.empty()) LoadWeights();
  }

  void LoadWeights() {
    for (const auto& [name, tensor] : SafetensorsFile(flags_.init_weights).ReadAll()) {
      if (plan_->FindState(name) >= 0) session_->Set(name, tensor.view());
    }
  }

  void PrintHeader() {
    int64_t trained = 0, statistics = 0;
    for (const StateTensor& state : plan_->state) {
      if (state.kind == StateKind::kParameter) trained += state.shape.elements();
      if (state.kind == StateKind::kStatistic) statistics += state.shape.elements();
    }
    std::fprintf(stderr, "gradloom 0.1.0  seed %lld  plan %s\n", static_cast<long long>(flags_.seed),
                 PlanHash(*plan_).substr(0, 8).c_str());
    std::fprintf(stderr, "model   %s  %s parameters trained, %s frozen, %s running statistics\n", flags_.recipe.model.c_str(),
                 WithCommas(trained).c_str(), WithCommas(report_.initializer_elements - report_.trained_elements - statistics).c_str(),
                 WithCommas(statistics).c_str());
    for (const std::string& warning : report_.warnings) std::fprintf(stderr, "warning %s\n", warning.c_str());
    for (const std::string& note : notes_) std::fprintf(stderr, "%s\n", note.c_str());
    const std::vector<int64_t> sizes = BatchSizes(data_.train.rows(), batch_);
    std::fprintf(stderr, "data    %s  %s train  %s eval  batch %lld", flags_.data.data.c_str(), WithCommas(data_.train.rows()).c_str(),
                 WithCommas(data_.eval.rows()).c_str(), static_cast<long long>(batch_));
    if (sizes.size() > 1) std::fprintf(stderr, "   (last batch of an epoch %lld)", static_cast<long long>(sizes[1]));
    const Program& program = plan_->programs.front();
    std::fprintf(stderr, "\ndevices cpu  %d threads  %zu instructions a step\n", program.streams.front().threads,
                 program.instructions.size());
    std::fprintf(stderr, "memory  %s activations + %s weights and optimizer  (exact)   verified in %.1f ms\n",
                 Bytes(report_.transient_bytes).c_str(), Bytes(plan_->state_bytes).c_str(), report_.verify_ms);
  }

  void TrainAll() {
    const ProgressMode mode = flags_.progress == "bar"     ? ProgressMode::kBar
                              : flags_.progress == "plain" ? ProgressMode::kPlain
                              : flags_.progress == "json"  ? ProgressMode::kJson
                              : flags_.progress == "none"  ? ProgressMode::kNone
                                                           : ProgressMode::kAuto;
    Progress progress(mode, flags_.log_every);
    for (int64_t epoch = 0; epoch < flags_.epochs; ++epoch) {
      EpochRow row = TrainEpoch(epoch, progress);
      if (data_.eval.rows() > 0) row.eval = Evaluate();
      folder_->AppendMetrics(session_->step(), row.epoch, row.train_loss, row.eval);
      rows_.push_back(std::move(row));
    }
  }

  EpochRow TrainEpoch(int64_t epoch, Progress& progress) {
    const auto start = Clock::now();
    const std::vector<int64_t> order = ShuffledRows(data_.train.rows(), static_cast<uint64_t>(flags_.seed), static_cast<uint64_t>(epoch));
    Batches batches(data_.train, order, batch_);
    double sum = 0;
    int64_t seen = 0;
    for (int64_t i = 0; i < batches.count(); ++i) {
      const StepResult result = session_->Step(batches.Get(i));
      if (!std::isfinite(result.loss)) {
        progress.Clear();
        throw Error(ErrorCode::kDiverged, "the loss is " + std::to_string(result.loss) + " at step " + std::to_string(result.batch),
                    flags_.recipe.model, "use a smaller --lr, --clip-norm 1, or look for NaN in the data");
      }
      sum += result.loss * static_cast<double>(batches.size(i));
      seen += batches.size(i);
      progress.Update({.step = result.batch,
                       .total_steps = total_steps_,
                       .epoch = static_cast<double>(epoch) + static_cast<double>(i + 1) / static_cast<double>(batches.count()),
                       .epochs = flags_.epochs,
                       .loss = result.loss,
                       .lr = result.lr,
                       .grad_norm = result.grad_norm,
                       .samples_per_s = static_cast<double>(seen) / SecondsSince(start)});
    }
    const double seconds = SecondsSince(start);
    train_seconds_ += seconds;
    return {epoch + 1, sum / static_cast<double>(seen), seconds, static_cast<double>(seen) / seconds, {}};
  }

  std::map<std::string, double> Evaluate() {
    std::vector<int64_t> order(static_cast<size_t>(data_.eval.rows()));
    std::iota(order.begin(), order.end(), 0);
    Batches batches(data_.eval, order, batch_);
    std::map<std::string, std::unique_ptr<Metric>> metrics;
    for (const std::string& name : flags_.metrics) metrics.emplace(name, Metric::Make(name));
    double loss = 0;
    for (int64_t i = 0; i < batches.count(); ++i) {
      const auto feeds = batches.Get(i);
      const auto outputs = session_->Evaluate(feeds);
      loss += ElementAsDouble(outputs.at("loss").view(), 0) * static_cast<double>(batches.size(i));
      for (auto& [name, metric] : metrics) metric->Add(OutputOf(outputs).view(), feeds.at(loss_.target.empty() ? "target" : loss_.target));
    }
    std::map<std::string, double> values{{"loss", loss / static_cast<double>(data_.eval.rows())}};
    for (const auto& [name, metric] : metrics) values.emplace(name, metric->Value());
    return values;
  }

  // The output that the first loss looks at.
  const Tensor& OutputOf(const std::map<std::string, Tensor>& outputs) const {
    if (const auto named = outputs.find(loss_.output); named != outputs.end()) return named->second;
    for (const auto& [name, tensor] : outputs) {
      if (name != "loss") return tensor;
    }
    throw Error(ErrorCode::kConfig, "the evaluation gives no output");
  }

  void Save() {
    const auto start = Clock::now();
    std::map<std::string, Tensor> state, weights;
    for (const StateTensor& tensor : plan_->state) {
      Tensor value = session_->Get(tensor.name);
      if (tensor.kind == StateKind::kParameter || tensor.kind == StateKind::kStatistic) weights.emplace(tensor.name, value);
      state.emplace(tensor.name, std::move(value));
    }
    folder_->WriteState(state, session_->step(), session_->batch(), flags_.seed);
    folder_->WritePlanFile(*plan_);
    ExportTrained(plan_->model, weights, folder_->ExportPath());
    save_seconds_ = SecondsSince(start);
  }

  void PrintEnd() {
    std::vector<std::string> header{"epoch", "train loss"};
    std::vector<std::string> names;
    for (const auto& [name, value] : rows_.back().eval) {
      names.push_back(name);
      header.push_back("eval " + name);
    }
    header.insert(header.end(), {"samples/s", "time"});
    std::vector<std::vector<std::string>> table{header};
    // All of a short run; of a long one every tenth part and the last.
    const size_t stride = std::max<size_t>(1, (rows_.size() + 9) / 10);
    for (size_t i = 0; i < rows_.size(); ++i) {
      if ((i + 1) % stride != 0 && i + 1 != rows_.size()) continue;
      std::vector<std::string> line{std::to_string(rows_[i].epoch), Short(rows_[i].train_loss)};
      for (const std::string& name : names) line.push_back(Short(rows_[i].eval.at(name)));
      line.push_back(WithCommas(static_cast<int64_t>(rows_[i].samples_per_s)));
      line.push_back(Duration(rows_[i].seconds));
      table.push_back(std::move(line));
    }
    std::fprintf(stderr, "%s", Table(table).c_str());
    std::fprintf(stderr, "done in %s (compile %s, train %s, save %s)\n", Duration(SecondsSince(start_)).c_str(),
                 Duration(compile_seconds_).c_str(), Duration(train_seconds_).c_str(), Duration(save_seconds_).c_str());
    std::fprintf(stderr, "model   %s   all of the run: %s\n", folder_->ExportPath().c_str(), folder_->path().c_str());
    if (flags_.report != "json") return;
    nlohmann::json line{{"run", folder_->path()},    {"model", folder_->ExportPath()},        {"epochs", rows_.back().epoch},
                        {"steps", session_->step()}, {"train_loss", rows_.back().train_loss}, {"compile_s", compile_seconds_},
                        {"train_s", train_seconds_}};
    for (const auto& [name, value] : rows_.back().eval) line["eval_" + name] = value;
    std::printf("%s\n", line.dump().c_str());
  }

  const TrainFlags& flags_;
  Clock::time_point start_;
  std::optional<Model> model_;
  TrainingData data_;
  LossTerm loss_;
  std::vector<std::string> notes_;
  CompileReport report_;
  std::shared_ptr<const Plan> plan_;
  std::optional<Session> session_;
  std::optional<RunFolder> folder_;
  std::vector<EpochRow> rows_;
  int64_t batch_ = 0, total_steps_ = 0;
  double compile_seconds_ = 0, train_seconds_ = 0, save_seconds_ = 0;
};

}  // namespace

Action DeclareTrain(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  flags->recipe.Declare(app);
  flags->data.Declare(app);
  app.add_option("--metric", flags->metrics, "accuracy, mse, rmse, mae: measured on the evaluation data after each epoch");
  app.add_option("--epochs", flags->epochs, "passes over the data")->capture_default_str();
  app.add_option("--seed", flags->seed, "of shuffling, splits and dropout")->capture_default_str();
  app.add_option("--name", flags->name, "of the run; default: the model's name with a number");
  app.add_option("--out", flags->out, "where runs go")->capture_default_str();
  app.add_option("--init-weights", flags->init_weights, "start from the weights of a safetensors file");
  app.add_option("--report", flags->report, "json: one line on stdout at the end")->check(CLI::IsMember({"json"}));
  app.add_option("--progress", flags->progress, "auto, bar, plain, json or none")
      ->check(CLI::IsMember({"auto", "bar", "plain", "json", "none"}));
  app.add_option("--log-every", flags->log_every, "steps between lines where there is no bar")->capture_default_str();
  app.add_flag("--dry-run", flags->dry_run, "compile and print the header, train nothing");
  return [flags] { return TrainRun(*flags).Run(); };
}

}  // namespace gradloom
