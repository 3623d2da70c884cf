// Loss and metrics over a data set: EvaluateOver and EvaluateShared.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/ignored_class.h"
#include "runtime/base/joined.h"
#include "runtime/base/listing.h"
#include "runtime/comm/communicator.h"
#include "runtime/plan/sample_axes.h"
#include "runtime/session/confusion.h"
#include "runtime/session/shared_batches.h"
#include "runtime/session/trainer.h"

namespace gradloom {
namespace {

[[noreturn]] void RefuseName(const std::string& name, const std::string& metric, const char* what, const std::string& known) {
  throw Error(ErrorCode::kConfig, "metric " + Escaped(metric) + ": unknown " + what + " '" + Escaped(name) + "'", "",
              "expected one of: " + known);
}

// The target that a metric uses.
const TensorView& Named(const Feeds& targets, const std::string& name, const std::string& metric) {
  const auto found = targets.find(name);
  if (found != targets.end()) return found->second;
  RefuseName(name, metric, "target", JoinedTexts(targets, [](const auto& other) { return Escaped(other.first); }));
}

// The output that a metric uses, of the last run.
TensorView OutputOf(const Session& session, const std::string& name, const std::string& metric) {
  if (session.HasFetch(name)) return session.Fetched(name);
  const Entry& entry = session.plan().entries[static_cast<size_t>(session.last_entry())];
  Listing known(100);
  for (size_t i = 0; i < entry.fetches.size(); ++i) {
    if (!IsOnlyExtent(entry, i)) known.Add(Escaped(entry.fetches[i].name));
  }
  RefuseName(name, metric, "output", known.text());
}

// For an output whose number of rows depends on the data, the rows of a target that correspond to them.
TensorView TargetOf(const Session& session, const std::string& output, const TensorView& rows, TensorView target) {
  for (const Fetch& fetch : session.plan().entries[static_cast<size_t>(session.last_entry())].fetches) {
    if (fetch.name != output || fetch.extents.empty() || fetch.extents[0].axis != 0 || target.shape.rank() == 0) continue;
    target.shape[0] = std::min(target.shape[0], rows.shape[0]);
  }
  return target;
}

// A model may cast the labels that it is fed.
int64_t LabelAt(const TensorView& target, int64_t i) {
  return IsFloating(target.dtype) ? static_cast<int64_t>(ElementAsDouble(target, i)) : ElementAsInt(target, i);
}

// Whether the loss counts a label of rows [first, last), of `rows` along an axis.
bool HasLabel(const LossInfo& loss, const TensorView& target, int axis, int64_t first, int64_t last, int64_t rows) {
  const int64_t outer = Product(target.shape, 0, axis), per_row = target.shape.elements() / std::max<int64_t>(outer * rows, 1);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = (o * rows + first) * per_row; i < (o * rows + last) * per_row; ++i) {
      if (LabelAt(target, i) != loss.ignore_index.value_or(kIgnoredClass)) return true;
    }
  }
  return false;
}

// Whether the loss leaves out rows of the data. Of columns that are read on demand, whose rows would all have to be read, only those with
// an explicit ignore_index are looked at.
bool LeavesOutRows(const LossInfo& loss, const Dataset& data) {
  if (loss.ignore_index) return true;
  const auto found = data.columns().find(loss.target);
  if (found == data.columns().end() || !IsInteger(found->second.dtype())) return false;
  const TensorView target = found->second.view();
  for (int64_t i = 0; i < target.elements(); ++i) {
    if (ElementAsInt(target, i) == kIgnoredClass) return true;
  }
  return false;
}

}  // namespace

std::function<double(const Feeds&)> LossWeightOf(std::span<const LossInfo> losses, const Dataset& data, const Dataset* more) {
  if (losses.size() != 1 || !losses.front().mean) return {};
  const LossInfo& loss = losses.front();
  const bool leaves_out = LeavesOutRows(loss, data) || (more != nullptr && LeavesOutRows(loss, *more));
  if (loss.class_weight.empty() && !leaves_out) return {};
  return [loss, ignored = loss.ignore_index.value_or(kIgnoredClass)](const Feeds& feeds) {
    const auto found = feeds.find(loss.target);
    if (found == feeds.end()) {
      throw Error(ErrorCode::kPlan, "the plan says that its loss compares with '" + Escaped(loss.target) + "', which it does not read", "",
                  "compile the plan again");
    }
    const TensorView& target = found->second;
    double weight = 0;
    for (int64_t i = 0; i < target.elements(); ++i) {
      const int64_t c = LabelAt(target, i);
      // A step refuses other classes.
      const bool weighs = c >= 0 && c < std::ssize(loss.class_weight);
      if (c != ignored) weight += loss.class_weight.empty() ? 1 : weighs ? loss.class_weight[static_cast<size_t>(c)] : 0;
    }
    return weight;
  };
}

bool LeavesOutLabels(const Session& session, EntryKind kind, const Feeds& feeds, int64_t rows) {
  // Other rows may not have been read by this process.
  const auto [first, last] = session.RowsRead(kind, rows);
  const std::map<std::string, int> axes = FeedAxes(session.plan());
  std::string none;  // for each loss over classes, whether this process has no label
  for (const LossInfo& loss : session.plan().losses) {
    const auto found = feeds.find(loss.target);
    if (!loss.classes) continue;
    const auto moved = axes.find(loss.target);
    const int axis = moved == axes.end() ? 0 : moved->second;
    none += found != feeds.end() && !HasLabel(loss, found->second, axis, first, last, rows) ? '1' : '0';
  }
  const std::vector<std::string> all = session.AllGather(none);
  for (size_t i = 0; i < none.size(); ++i) {
    if (std::all_of(all.begin(), all.end(), [&](const std::string& of) { return of.at(i) == '1'; })) return true;
  }
  return false;
}

std::vector<WeighedLoss> WeighLosses(double loss, std::span<const double> terms, double weight, bool left_out) {
  std::vector<WeighedLoss> made{{loss, left_out ? 0 : weight}};
  double sum = 0;
  for (const double term : terms) {
    const bool counts = !left_out || !std::isnan(term);
    made.push_back({term, counts ? weight : 0});
    if (!left_out || !counts) continue;
    sum += term;
    made[0] = {sum, weight};
  }
  return made;
}

ReadRows RowsReadBy(const Session& session, EntryKind kind, const Dataset& data, const TrainerOptions& options) {
  // Weights depend on classes, which are integers.
  const auto has_classes = [](const auto& made) { return !IsFloating(made.second.source->dtype()); };
  const bool weighted = options.loss_weight && std::any_of(data.lazy_columns().begin(), data.lazy_columns().end(), has_classes);
  const bool compared = kind == EntryKind::kEval && std::any_of(options.metrics.begin(), options.metrics.end(),
                                                                [&](const MetricSpec& spec) { return data.is_lazy(spec.target); });
  if (weighted || compared) return {};
  const int64_t batch = kind == EntryKind::kEval ? EvaluationBatch(options) : options.batch, rows = data.rows();
  std::map<int64_t, std::pair<int64_t, int64_t>> read;
  for (const int64_t size : {batch, rows % batch}) {
    if (size > 0) read[size] = session.RowsRead(kind, size);
  }
  return [read = std::move(read)](int64_t size) {
    const auto found = read.find(size);
    return found == read.end() ? std::pair<int64_t, int64_t>(0, size) : found->second;
  };
}

Error InBatch(const Error& error, const std::string& batch) {
  if (error.code() != ErrorCode::kData) return error;
  return {error.code(), error.message(), error.where().empty() ? batch : error.where() + ", in " + batch, error.help()};
}

std::map<std::string, double> EvaluateOver(Session& session, const Dataset& data, const TrainerOptions& options,
                                           const std::function<bool()>& stop) {
  return EvaluateShared(session, data, options, nullptr, nullptr, stop);
}

std::map<std::string, double> EvaluateShared(Session& session, const Dataset& data, const TrainerOptions& options,
                                             Communicator* communicator, ConfusionMatrix* confusion, const std::function<bool()>& stop) {
  SharedBatches shared(data.rows(), EvaluationBatch(options), communicator);
  TrainerOptions compared = options;
  if (confusion != nullptr) compared.metrics.push_back(confusion->spec());
  Batches batches(
      data, shared.order(), EvaluationBatch(options),
      {.reads = RowsReadBy(session, EntryKind::kEval, data, compared), .axes = FeedAxes(session.plan()), .cores = session.host_threads()});
  const std::map<std::string, int> sample_axes = FetchAxes(session.plan());
  std::vector<std::unique_ptr<Metric>> metrics;
  for (MetricSpec spec : options.metrics) {
    if (const auto found = sample_axes.find(spec.output); found != sample_axes.end()) spec.sample_axis = found->second;
    spec.threads = session.host_threads();
    metrics.push_back(Metric::Make(spec));
  }
  std::vector<WeightedMean> means(1 + session.plan().loss_terms.size());  // of the loss and its terms
  // Computes loss and terms of the batch, each with its weight, then the outputs and targets of each metric.
  const auto compute = [&](int64_t own) {
    const Feeds feeds = batches.Get(own);
    try {
      session.Forward(EntryKind::kEval, feeds);
    } catch (const Error& error) {
      throw InBatch(error, "batch " + std::to_string(shared.IndexOf(own) + 1) + " of the evaluation");
    }
    const double weight = options.loss_weight ? options.loss_weight(feeds) : static_cast<double>(batches.size(own));
    const double loss = session.loss();
    const bool left_out = std::isnan(loss) && LeavesOutLabels(session, EntryKind::kEval, feeds, batches.size(own));
    std::vector<double> losses;
    for (const WeighedLoss& of : WeighLosses(loss, session.loss_terms(), weight, left_out)) {
      losses.push_back(of.value);
      losses.push_back(of.weight);
    }
    std::vector<Tensor> computed{Tensor::From<double>(losses, Shape{std::ssize(losses)})};
    // Outputs may be as large as the rest of the step: only those that are compared are copied, and once.
    std::map<std::string, Tensor> outputs;
    for (const MetricSpec& spec : compared.metrics) {
      auto output = outputs.find(spec.output);
      if (output == outputs.end()) output = outputs.emplace(spec.output, Tensor::Copy(OutputOf(session, spec.output, spec.name))).first;
      computed.push_back(output->second);
      computed.push_back(Tensor::Copy(TargetOf(session, spec.output, output->second.view(), Named(feeds, spec.target, spec.name))));
    }
    return computed;
  };
  const auto take = [&](int64_t, const std::vector<Tensor>& computed) {
    const std::span<const double> losses = computed[0].as<double>();
    for (size_t i = 0; i < means.size(); ++i) means[i].Add(losses[2 * i], losses[2 * i + 1]);
    for (size_t m = 0; m < metrics.size(); ++m) metrics[m]->Add(computed[1 + 2 * m].view(), computed[2 + 2 * m].view());
    if (confusion != nullptr) confusion->Add(computed[computed.size() - 2].view(), computed.back().view());
  };
  if (!shared.Run(compute, take, stop)) return {};
  if (communicator != nullptr && communicator->process() != 0) return {};
  std::map<std::string, double> values{{"loss", means[0].value()}};
  for (size_t i = 1; i < means.size(); ++i) values.emplace(session.plan().loss_terms[i - 1], means[i].value());
  for (size_t m = 0; m < metrics.size(); ++m) {
    const MetricSpec& spec = options.metrics[m];
    // The first name is that of the metric, and the names of its parts begin with it.
    for (const auto& [name, value] : metrics[m]->Values()) values[spec.shown() + name.substr(spec.name.size())] = value;
  }
  return values;
}

}  // namespace gradloom
