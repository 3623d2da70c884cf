#include "tools/run/records/run_records.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "runtime/base/file.h"
#include "runtime/base/file_calls.h"
#include "runtime/base/read_number.h"
#include "tools/run/records/csv_line.h"
#include "tools/run/records/environment.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

// JSON has no NaN.
nlohmann::json Number(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr); }

// The shortest text that reads back as the same double; empty for NaN, as in spreadsheets.
std::string CsvNumber(double value) { return std::isfinite(value) ? nlohmann::json(value).dump() : ""; }

std::string ContentIfAny(const std::string& path) { return std::filesystem::exists(path) ? ReadWholeFile(path) : ""; }

// The bytes of the first lines of a text; all of it if it has fewer.
size_t BytesOfLines(const std::string& text, int64_t lines) {
  size_t bytes = 0;
  for (int64_t i = 0; i < lines && bytes < text.size(); ++i) bytes = std::min(text.find('\n', bytes), text.size() - 1) + 1;
  return bytes;
}

// The bytes of the whole lines of a file; -1 if it cannot be read.
int64_t BytesOfWholeLines(int file, int64_t bytes) {
  std::array<char, 4096> piece;
  while (bytes > 0) {
    const int64_t begin = std::max<int64_t>(bytes - std::ssize(piece), 0);
    const ssize_t read = ::pread(file, piece.data(), static_cast<size_t>(bytes - begin), begin);
    if (read != bytes - begin) return -1;
    const std::string_view text(piece.data(), static_cast<size_t>(read));
    if (const size_t at = text.rfind('\n'); at != std::string_view::npos) return begin + static_cast<int64_t>(at) + 1;
    bytes = begin;
  }
  return 0;
}

// A file that lost its end in a crash is left as it is.
void TruncateFile(const std::string& path, uint64_t bytes) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error || size <= bytes) return;
  std::filesystem::resize_file(path, bytes, error);
  if (error) throw WriteError("cannot truncate the file", path, error.value());
}

// The losses and the evaluation of a row of results.csv.
EpochReport EpochOf(const std::vector<std::string>& columns, const std::vector<std::string>& row) {
  EpochReport epoch{.train_loss = std::numeric_limits<double>::quiet_NaN()};
  for (size_t i = 0; i < std::min(columns.size(), row.size()); ++i) {
    const std::optional<double> value = ReadNumber<double>(row[i]);
    if (!value) continue;
    const std::string_view name = columns[i];
    if (name == "train/loss") {
      epoch.train_loss = *value;
    } else if (name.starts_with("train/")) {
      epoch.terms.emplace(name.substr(6), *value);
    } else if (name.starts_with("eval/")) {
      epoch.eval.emplace(name.substr(5), *value);
    }
  }
  return epoch;
}

// Some file systems (ext4) write a file when it replaces another one, which takes longer than a short epoch, too. Between steps of one
// epoch the memory hardly changes.
constexpr auto kMemoryInterval = std::chrono::seconds(1), kMemoryIntervalOfSteps = std::chrono::seconds(10);

// For a record that the next epoch replaces: to wait for the disk takes longer than a short epoch.
class UnsyncedCalls : public FileCalls {
 public:
  int Sync(int) override { return 0; }
};

}  // namespace

nlohmann::json TrainLine(const StepReport& step, double loss, const std::map<std::string, double>& terms, int64_t gpu_bytes) {
  nlohmann::json line{{"t", Timestamp()},
                      {"step", step.result.step},
                      {"epoch", step.epochs_done},
                      {"split", "train"},
                      {"loss", Number(loss)},
                      {"lr", step.result.lr},
                      {"mem_mb", static_cast<double>(ThisProcess().resident_bytes / 100000) / 10},
                      {"samples_per_s", Number(step.samples_per_s)}};
  for (const auto& [name, value] : terms) line[name] = Number(value);
  if (step.result.grad_norm >= 0) line["gnorm"] = Number(step.result.grad_norm);
  if (gpu_bytes > 0) line["gpu_mem_mb"] = static_cast<double>(gpu_bytes / 1000) / 1000;
  return line;
}

nlohmann::json EvaluationLine(const EvaluationReport& evaluation) {
  nlohmann::json line{{"t", Timestamp()}, {"step", evaluation.step}, {"epoch", evaluation.epochs_done}, {"split", "eval"}};
  for (const auto& [name, value] : evaluation.values) line[name] = Number(value);
  return line;
}

LineFile::LineFile(std::string path) : path_(std::move(path)), file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  struct stat status {};
  if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0) throw WriteError("cannot open the file", path_, errno);
  bytes_ = BytesOfWholeLines(file_.get(), status.st_size);
  if (bytes_ < 0) throw WriteError("cannot read the file", path_, errno);
  if (bytes_ < status.st_size && ::ftruncate(file_.get(), bytes_) != 0) throw WriteError("cannot truncate the file", path_, errno);
}

void LineFile::Append(const std::string& line) {
  try {
    WriteFully(file_.get(), line.data(), std::ssize(line), path_);
  } catch (...) {
    [[maybe_unused]] const int cut = ::ftruncate(file_.get(), bytes_);
    throw;
  }
  bytes_ += std::ssize(line);
}

RunRecords::RunRecords(const std::string& folder, const RecordOptions& options) : folder_(folder), options_(options) { Open(-1); }

RunRecords::RunRecords(const std::string& folder, const RecordOptions& options, const std::string& state, int64_t step)
    : folder_(folder), options_(options), step_(std::max<int64_t>(step, 0)) {
  try {
    const nlohmann::json json = nlohmann::json::parse(state);
    rows_ = json.at("rows").get<int64_t>();
    // In checkpoints of older releases the rows were the same for all sums.
    loss_ = {json.at("loss_sum").get<double>(), json.value("loss_rows", static_cast<double>(rows_))};
    const std::vector<double> sums = json.value("terms", std::vector<double>());
    const nlohmann::json counted = json.value("term_rows", nlohmann::json(0));
    const auto rows = counted.is_array() ? counted.get<std::vector<double>>() : std::vector<double>(sums.size(), counted.get<double>());
    // Those of a loss with other terms mean nothing.
    const bool same = sums.size() == options_.terms.size() && rows.size() == sums.size();
    for (size_t i = 0; same && i < sums.size(); ++i) terms_.push_back({sums[i], rows[i]});
    TruncateFile(folder + "/metrics.jsonl", json.at("metrics_bytes").get<uint64_t>());
    // In lines, because columns may have been added since; missing in checkpoints of older releases.
    const std::string results = folder + "/results.csv";
    const int64_t lines = json.value("results_lines", int64_t{-1});
    TruncateFile(results, lines < 0 ? json.at("results_bytes").get<uint64_t>() : BytesOfLines(ContentIfAny(results), lines));
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kCheckpoint, "cannot read the saved state of the records: " + Escaped(state));
  }
  Open(step + 1);
}

RunRecords::~RunRecords() {
  if (finished_) return;
  try {
    WriteMemory({});
  } catch (...) {
    // The run has failed for another reason, or its device has.
  }
}

std::string RunRecords::state() const {
  std::vector<double> sums, rows;
  for (const WeightedMean& term : terms_) {
    sums.push_back(term.sum);
    rows.push_back(term.weight);
  }
  return nlohmann::json{{"loss_sum", loss_.sum},
                        {"loss_rows", loss_.weight},
                        {"terms", sums},
                        {"term_rows", rows},
                        {"rows", rows_},
                        {"metrics_bytes", json_->bytes()},
                        {"results_bytes", csv_->bytes()},
                        {"results_lines", csv_lines_}}
      .dump();
}

void RunRecords::Open(int64_t next_step) {
  json_.emplace(folder_ + "/metrics.jsonl");
  terms_.resize(options_.terms.size());
  OpenResults();
  if (!options_.tensorboard) return;
  events_ = std::make_unique<EventFile>(folder_, next_step);
  if (!options_.hparams.empty()) events_->AddHparams(options_.hparams);
}

void RunRecords::OpenResults() {
  const std::string path = folder_ + "/results.csv";
  csv_.emplace(path);
  const std::string before = ReadWholeFile(path);
  const size_t header = BytesOfLines(before, 1);
  if (header > 0) columns_ = CsvFields(std::string_view(before).substr(0, before.find('\n')));
  const size_t known = columns_.size();
  const auto want = [&](const std::string& name) {
    if (std::find(columns_.begin(), columns_.end(), name) == columns_.end()) columns_.push_back(name);
  };
  for (const char* name : {"epoch", "step", "time", "train/loss", "lr", "samples_per_s"}) want(name);
  for (const std::string& name : options_.terms) want("train/" + name);
  for (const std::string& name : options_.eval_columns) want("eval/" + name);
  std::string text = before;
  // A resumed run may measure something else. Rows from before have nothing in its columns.
  if (columns_.size() > known) {
    text = CsvLine(columns_);
    for (size_t begin = header; begin < before.size();) {
      const size_t end = std::min(before.find('\n', begin), before.size());
      const std::string row = before.substr(begin, end - begin);
      text += row + std::string(columns_.size() - std::min(CsvFields(row).size(), columns_.size()), ',') + "\n";
      begin = end + 1;
    }
    WriteFileAtomically(path, text);
    csv_.emplace(path);
  }
  csv_lines_ = std::count(text.begin(), text.end(), '\n');
  if (csv_lines_ < 2) return;
  const std::string_view rows = std::string_view(text).substr(0, text.rfind('\n'));
  last_epoch_ = EpochOf(columns_, CsvFields(rows.substr(rows.rfind('\n') + 1)));
}

void RunRecords::Write(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    if (!options_.on_failure || error.code() != ErrorCode::kResource) throw;
    if (lost_++ == 0) options_.on_failure(error);
  }
}

void RunRecords::WriteJsonLine(const nlohmann::json& line) {
  Write([&] { json_->Append(line.dump() + "\n"); });
}

void RunRecords::AddEvent(int64_t step, const std::map<std::string, double>& scalars) {
  if (events_ != nullptr) Write([&] { events_->Add(step, scalars); });
}

void RunRecords::OnStep(const StepReport& step) {
  last_ = step;
  if (!step.skipped) {
    const auto add = [&](const WeighedLoss& loss, WeightedMean& mean) {
      mean.Add(loss.value, loss.weight > 0 ? static_cast<double>(step.rows) : 0);
    };
    add(step.losses.at(0), loss_);
    for (size_t i = 0; i < terms_.size(); ++i) add(step.losses.at(i + 1), terms_[i]);
    rows_ += step.rows;
  }
  if (step.result.updated) {
    const bool due = PassesMultiple(last_step_, step.result.step, options_.every);
    last_step_ = step_ = step.result.step;
    if (due) WriteTrainLine();
  }
  WriteMemory(kMemoryIntervalOfSteps);
}

void RunRecords::WriteTrainLine() {
  if (rows_ == 0) return;
  const double loss = loss_.value();
  const StepResult& result = last_.result;
  std::map<std::string, double> terms;
  for (size_t i = 0; i < terms_.size(); ++i) terms.emplace(options_.terms[i], terms_[i].value());
  WriteJsonLine(TrainLine(last_, loss, terms, options_.gpu_bytes));
  std::map<std::string, double> scalars{{"train/loss", loss}, {"train/lr", result.lr}, {"train/samples_per_sec", last_.samples_per_s}};
  for (const auto& [name, value] : terms) scalars["train/" + name] = value;
  if (result.grad_norm >= 0) scalars["train/grad_norm"] = result.grad_norm;
  AddEvent(result.step, scalars);
  loss_ = {};
  terms_.assign(terms_.size(), {});
  rows_ = 0;
}

// If a stop interrupts the evaluation, the run that continues with it knows nothing of the step before.
void RunRecords::OnEvaluationStart() { WriteTrainLine(); }

void RunRecords::OnEvaluation(const EvaluationReport& evaluation) {
  std::map<std::string, double> scalars;
  for (const auto& [name, value] : evaluation.values) scalars["eval/" + name] = value;
  WriteJsonLine(EvaluationLine(evaluation));
  AddEvent(evaluation.step, scalars);
}

void RunRecords::OnEpoch(const EpochReport& epoch) {
  WriteTrainLine();
  std::map<std::string, std::string> values{
      {"epoch", std::to_string(epoch.epoch)},      {"step", std::to_string(epoch.step)}, {"time", CsvNumber(epoch.seconds)},
      {"train/loss", CsvNumber(epoch.train_loss)}, {"lr", CsvNumber(epoch.lr)},          {"samples_per_s", CsvNumber(epoch.samples_per_s)}};
  for (const auto& [name, value] : epoch.terms) values["train/" + name] = CsvNumber(value);
  for (const auto& [name, value] : epoch.eval) values["eval/" + name] = CsvNumber(value);
  std::vector<std::string> row;
  for (const std::string& column : columns_) row.push_back(values[column]);
  Write([&] {
    csv_->Append(CsvLine(row));
    ++csv_lines_;
  });
  step_ = epoch.step;
  WriteMemory(kMemoryInterval);
}

// A resumed run that had nothing to do leaves the record of the process that trained it.
void RunRecords::Finish() {
  finished_ = true;
  if (memory_written_) WriteMemory({});
}

void RunRecords::WriteMemory(std::chrono::steady_clock::duration interval) {
  if (!options_.memory) return;
  const auto now = std::chrono::steady_clock::now();
  if (memory_written_ && now - *memory_written_ < interval) return;
  memory_written_ = now;
  memory_step_ = step_;
  nlohmann::json memory = ToJson(options_.memory());
  memory["process"] = getpid();
  memory["step"] = step_;
  static UnsyncedCalls calls;
  Write([&] { WriteFileAtomically(folder_ + "/memory.json", memory.dump() + "\n", calls); });
}

}  // namespace gradloom
