#include "tools/run/options/memory_limit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/read_number.h"
#include "runtime/plan/memory_report.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

constexpr size_t kNamedBuffers = 3;

bool OnlyRunsForward(const EntryRequest& entry) { return IsForwardOnly(entry.kind); }

bool RunsBackward(const EntryRequest& entry) { return !OnlyRunsForward(entry); }

bool All(const EntryRequest&) { return true; }

// The bytes of the plan if the entries that `varies` selects have this batch.
int64_t BytesAt(const Model& model, CompileOptions options, int64_t batch, bool (*varies)(const EntryRequest&)) {
  for (EntryRequest& entry : options.entries) {
    if (varies(entry)) entry.batch = batch;
  }
  options.entries.erase(std::unique(options.entries.begin(), options.entries.end()), options.entries.end());
  options.control.log = nullptr;
  return ReportMemory(Compile(model, options), 0).fullest().total_bytes();
}

// A batch below `batch` that fits, at most a sixteenth smaller than the largest, unless that takes too many compilations; 0 if none does.
// The size grows linearly with the batch, except for gaps between buffers, what is recomputed, and entries whose batch does not vary.
int64_t LargestBatch(const Model& model, const CompileOptions& options, int64_t batch, bool (*varies)(const EntryRequest&), int64_t bytes,
                     int64_t limit) {
  constexpr int kMaxTries = 7;
  if (batch <= 1) return 0;
  const int64_t one = BytesAt(model, options, 1, varies);
  if (one > limit) return 0;
  const double slope = std::max(1.0, static_cast<double>(bytes - one) / static_cast<double>(batch - 1));
  int64_t fits = 1, exceeds = batch;
  auto guess = static_cast<int64_t>(1 + static_cast<double>(limit - one) / slope);
  for (int tries = 0; tries < kMaxTries && exceeds - fits > std::max<int64_t>(fits / 16, 1); ++tries) {
    guess = std::clamp(guess, fits + 1, exceeds - 1);
    const bool fit = BytesAt(model, options, guess, varies) <= limit;
    (fit ? fits : exceeds) = guess;
    // A guess that fits is probably the largest one: the next is just above.
    guess = fit && tries == 0 ? fits + std::max<int64_t>(fits / 16, 1) : fits + (exceeds - fits) / 2;
  }
  return fits;
}

// Whether there are evaluations or predictions, and training alone fits the limit.
bool OnlyEvaluationsExceed(const Model& model, CompileOptions options, int64_t limit) {
  const size_t all = options.entries.size();
  std::erase_if(options.entries, OnlyRunsForward);
  if (options.entries.empty() || options.entries.size() == all) return false;
  options.control.log = nullptr;
  return ReportMemory(Compile(model, options), 0).fullest().total_bytes() <= limit;
}

std::string LargestOf(const MemoryReport& report) {
  const PlaceMemory& place = report.fullest();
  std::string text = "weights and optimizer " + Bytes(place.state_bytes);
  if (place.fullest < 0) return text;
  for (const LargeBuffer& buffer : report.programs[static_cast<size_t>(place.fullest)].largest) {
    text += ", '" + Escaped(buffer.name, 60) + "'" + (buffer.origin.empty() ? "" : " of " + Escaped(buffer.origin, 60)) + " " +
            Bytes(buffer.bytes);
  }
  return text;
}

// " on device 1" if devices hold different parts of the model.
std::string FullestDevice(const Plan& plan, const MemoryReport& report) {
  if (report.places.size() == 1) return "";
  const auto fullest = static_cast<int>(&report.fullest() - report.places.data());
  for (size_t rank = 0; rank < plan.num_ranks(); ++rank) {
    if (plan.PlaceOf(rank) == fullest) return " on device " + std::to_string(rank);
  }
  return "";
}

}  // namespace

int64_t ParseBytes(const std::string& text, const std::string& what) {
  // Those without a B are Kubernetes's. Docker's M is its Mi: of the two readings of a limit, the lower one holds for both.
  constexpr std::pair<const char*, double> kUnits[] = {{"", 1},         {"B", 1},       {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                                                       {"TiB", 0x1p40}, {"Ki", 0x1p10}, {"Mi", 0x1p20},  {"Gi", 0x1p30},  {"Ti", 0x1p40},
                                                       {"KB", 1e3},     {"MB", 1e6},    {"GB", 1e9},     {"TB", 1e12},    {"k", 1e3},
                                                       {"K", 1e3},      {"M", 1e6},     {"G", 1e9},      {"T", 1e12}};
  std::string_view unit = text;
  const double value = TakeNumber<double>(unit).value_or(0);
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  for (const auto& [name, factor] : kUnits) {
    if (unit != name) continue;
    const double bytes = value * factor;
    if (std::isfinite(bytes) && bytes >= 1 && bytes < 0x1p62) return static_cast<int64_t>(bytes);
  }
  throw Error(ErrorCode::kConfig, what + " cannot be '" + Escaped(text) + "'", what,
              "expected 6GiB (or 6Gi), 500MB (or 500M), or a number of bytes");
}

std::string RecomputedLine(const CompileReport& report, RecomputeMode mode) {
  const Recomputed& made = report.recomputed;
  if (made.values == 0) return "";
  return (mode == RecomputeMode::kFull ? "" : "to fit the memory limit ") + Counted(made.values, "activation") + " (" + Bytes(made.bytes) +
         ") are recomputed in the backward pass: about " + Short(made.seconds * 1e3) + " ms per step";
}

void CheckMemoryLimit(const Configuration& configuration, const Model& model, const CompileOptions& options, const Plan& plan) {
  const std::string& text = configuration.Text("devices.memory_limit");
  if (text.empty()) return;
  const int64_t limit = ParseBytes(text, "--memory-limit");
  const MemoryReport report = ReportMemory(plan, kNamedBuffers);
  const int64_t bytes = report.fullest().total_bytes();
  if (bytes <= limit) return;
  const bool evaluations = OnlyEvaluationsExceed(model, options, limit);
  const bool fixed = configuration.Integer("eval.batch") > 0;  // the batch of evaluations
  const auto varies = evaluations ? OnlyRunsForward : fixed ? RunsBackward : All;
  const int64_t batch = std::find_if(options.entries.begin(), options.entries.end(), varies)->batch;
  const int64_t fits = LargestBatch(model, options, batch, varies, bytes, limit);
  throw Error(ErrorCode::kLimit,
              (evaluations ? "training fits the memory limit, but an evaluation batch of " : "a batch of ") + std::to_string(batch) +
                  " needs " + Bytes(bytes) + FullestDevice(plan, report) + ", " + Bytes(bytes - limit) + " more than the limit of " +
                  Bytes(limit),
              "largest: " + LargestOf(report),
              fits > 0                ? (evaluations ? "use --eval-batch " : "use --batch ") + std::to_string(fits) + ", which fits"
              : fixed && !evaluations ? "use a smaller --batch and --eval-batch, or raise --memory-limit"
                                      : "even a batch of 1 does not fit: raise --memory-limit");
}

}  // namespace gradloom
