// The handle types of the C table.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "include/gradloom/gradloom_c.h"
#include "runtime/base/background.h"
#include "runtime/base/error.h"
#include "runtime/base/fork_count.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/plan_identity.h"
#include "runtime/data/batches.h"
#include "runtime/data/dataset.h"
#include "runtime/session/parameter_share.h"
#include "runtime/session/session.h"

struct GradloomStatus {
  gradloom::Error error;
  std::string name;
};

struct GradloomText {
  std::string bytes;
};

namespace gradloom {

// An input or output of a plan, as the table describes it.
struct TensorFacts {
  std::string name;
  DType dtype = DType::kUndefined;
  Shape shape;
  int batch_axis = -1;
};

}  // namespace gradloom

// Constant after its construction, except for the source, which has its own lock.
struct GradloomPlan {
  std::shared_ptr<const gradloom::Plan> plan;
  std::shared_ptr<gradloom::PlanSource> source;              // null: other batch sizes are not possible
  std::string notes;                                         // from the compilation
  std::vector<gradloom::TensorFacts> inputs[3], outputs[3];  // by GradloomEntry
};

struct GradloomCheckpoint {
  gradloom::Checkpoint checkpoint;
  std::string skipped;  // for GetSkippedCheckpoints
};

struct GradloomDataset {
  std::shared_ptr<const gradloom::Dataset> data;
  std::map<std::string, int> axes = {};  // FeedAxes of the plan that it was read for
  int threads = 0;                       // of that plan, in one process; 0: not known
  std::string notes = {};                // from reading it
};

struct GradloomBatches {
  const int forks = gradloom::ForkCount();  // of the process that made it, which has the threads that read rows, if there are any
  std::shared_ptr<const gradloom::Dataset> data;
  std::vector<int64_t> order;
  std::unique_ptr<gradloom::Batches> batches;  // made from the two fields above
  // The batch that was requested last, in the form of the C interface.
  gradloom::Feeds feeds;
  std::vector<const char*> names;
  std::vector<GradloomTensor> columns;
};

struct GradloomAttached {
  gradloom::AttachedParameters parameters;
};

struct GradloomSession {
  const int forks = gradloom::ForkCount();  // of the process that made it, whose threads no child has
  // Held during each call. A thread can hold it several times, because callbacks of Fit may call the table.
  std::recursive_mutex calls;
  std::atomic<int> begun{0};  // calls, including those that wait for the lock
  gradloom::Session session;
  gradloom::PlanIdentity identity;               // of the original plan: entries that are compiled later do not change it
  std::vector<gradloom::TensorFacts> inputs[3];  // of the plan
  std::vector<gradloom::TensorFacts> states;     // parameters, then statistics
  size_t num_parameters = 0;
  std::vector<gradloom::TensorFacts> averages;  // moving averages of parameters, which are read by name only
  std::map<std::string, std::string> properties;
  std::map<std::string, gradloom::Shape, std::less<>> shapes;  // of the outputs that were requested since the last run
  std::optional<gradloom::Schedule> schedule;                  // from RegisterLinearLRScheduler, starting at this update:
  int64_t schedule_start = 0;
  bool fitting = false;
  std::atomic<bool> stop_fit{false};                // set by any thread; Fit begins by clearing it
  std::unique_ptr<gradloom::ParameterShare> share;  // null: other processes cannot attach the parameters

  // The step of StepAsync.
  std::mutex async;
  std::condition_variable ended;
  bool running = false;
  bool waited_for = false;  // started, and its result not yet requested
  gradloom::Feeds async_feeds;
  gradloom::StepResult async_result;
  std::exception_ptr async_error;
  gradloom::Background background;  // last, so that its thread ends before the data that it uses is destroyed

  explicit GradloomSession(gradloom::Session made) : session(std::move(made)) {}
};
