// What the handles of the C table are.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "include/gradloom/gradloom_c.h"
#include "runtime/base/background.h"
#include "runtime/base/error.h"
#include "runtime/session/batches.h"
#include "runtime/session/checkpoint.h"
#include "runtime/session/dataset.h"
#include "runtime/session/parameter_share.h"
#include "runtime/session/plan_identity.h"
#include "runtime/session/session.h"

struct GradloomStatus {
  gradloom::Error error;
  std::string name;
};

struct GradloomText {
  std::string bytes;
};

namespace gradloom {

// An input or output of a plan, as the table tells of it.
struct TensorFacts {
  std::string name;
  DType dtype = DType::kUndefined;
  Shape shape;
  int batch_axis = -1;
};

}  // namespace gradloom

// Constant once it is made, but for what the source does within its own lock.
struct GradloomPlan {
  std::shared_ptr<const gradloom::Plan> plan;
  std::shared_ptr<gradloom::PlanSource> source;              // null: no other batch sizes
  std::string notes;                                         // of compiling it
  std::vector<gradloom::TensorFacts> inputs[3], outputs[3];  // by GradloomEntry
};

struct GradloomCheckpoint {
  gradloom::Checkpoint checkpoint;
};

struct GradloomDataset {
  std::shared_ptr<const gradloom::Dataset> data;
};

struct GradloomBatches {
  std::shared_ptr<const gradloom::Dataset> data;
  std::vector<int64_t> order;
  std::unique_ptr<gradloom::Batches> batches;  // of the two above
  // The batch that was asked for last, as C sees it.
  gradloom::Feeds feeds;
  std::vector<const char*> names;
  std::vector<GradloomTensor> columns;
};

struct GradloomAttached {
  gradloom::AttachedParameters parameters;
};

struct GradloomSession {
  // Held by each call; by one thread several times where a callback of Fit calls the table.
  std::recursive_mutex calls;
  gradloom::Session session;
  gradloom::PlanIdentity identity;               // of the plan as it was given: entries that are compiled later are no other plan
  std::vector<gradloom::TensorFacts> inputs[3];  // the plan's
  std::vector<gradloom::TensorFacts> states;     // parameters, then statistics
  size_t num_parameters = 0;
  std::map<std::string, std::string> properties;
  std::map<std::string, gradloom::Shape, std::less<>> shapes;  // of outputs that were asked for since the last run
  std::optional<gradloom::Schedule> schedule;                  // of RegisterLinearLRScheduler, from this update on:
  int64_t schedule_start = 0;
  bool fitting = false;
  std::unique_ptr<gradloom::ParameterShare> share;  // null: nobody can attach the parameters

  // The step of StepAsync.
  std::mutex async;
  std::condition_variable ended;
  bool running = false;
  bool waited_for = false;  // begun, and its result not asked for
  gradloom::Feeds async_feeds;
  gradloom::StepResult async_result;
  std::optional<gradloom::Error> async_error;
  gradloom::Background background;  // last: its thread ends before what it works on

  explicit GradloomSession(gradloom::Session made) : session(std::move(made)) {}
};
