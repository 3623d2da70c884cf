/* Gradloom from C: one table of functions, opaque handles, buffers that the caller owns.
 *
 *   const GradloomApi* api = GradloomGetApi(GRADLOOM_API_VERSION);
 *
 * docs/embedding.md shows whole programs. The rules, for every function of the table:
 *
 * Errors: a function that can fail returns a GradloomStatus*, null where all is well, else a description that the caller releases. What it
 * would have given out is then null or unchanged. No exception passes the table. Null where a pointer is needed, a number that is no such
 * constant, a call at the wrong time: a status, never a crash. A handle must be one that the table gave and that has not been released.
 *
 * Handles: whoever gets one releases it, in any order; what one handle needs of another it holds itself. Releasing null does nothing.
 *
 * Strings are UTF-8, ending in a zero byte. What a function gives out is borrowed from the handle that it was asked for; it is there as
 * long as that handle is, where nothing else is said. What is given to a function is copied.
 *
 * Structs that begin with `size` are to have sizeof of themselves there, set by the caller: so later versions can have more fields. All
 * other bytes zero is the default of everything.
 *
 * Threads: functions may be called from any thread, and handles of any kind used by several at once; calls on one session happen one after
 * the other. What a session gives out by reference (GetOutput) is there until its next run, whichever thread asks for that.
 *
 * Versions: new functions come at the end of the table, new fields at the end of structs; what is there never changes.
 */
#ifndef GRADLOOM_GRADLOOM_C_H_
#define GRADLOOM_GRADLOOM_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GRADLOOM_API_VERSION 1

typedef struct GradloomStatus GradloomStatus;         /* what went wrong */
typedef struct GradloomText GradloomText;             /* text or bytes, owned by whoever has the handle */
typedef struct GradloomModel GradloomModel;           /* an ONNX model in memory; constant */
typedef struct GradloomPlan GradloomPlan;             /* a verified plan; constant */
typedef struct GradloomCheckpoint GradloomCheckpoint; /* a checkpoint in memory; constant */
typedef struct GradloomSession GradloomSession;       /* a plan with its state, on its devices */
typedef struct GradloomDataset GradloomDataset;       /* a table of samples in memory; constant */
typedef struct GradloomBatches GradloomBatches;       /* the batches of an epoch */
typedef struct GradloomAttached GradloomAttached;     /* the parameters of a session in another process; constant but for their elements */

/* The class of an error; docs/errors.md has them all. The numbers are those of this table for ever. */
typedef int32_t GradloomErrorCode;
enum {
  GRADLOOM_OK = 0,
  GRADLOOM_E_INTERNAL = 1, /* a bug of Gradloom's */
  GRADLOOM_E_PARSE = 2,
  GRADLOOM_E_SCHEMA = 3,
  GRADLOOM_E_NAME = 4,
  GRADLOOM_E_GRAPH = 5,
  GRADLOOM_E_ARITY = 6,
  GRADLOOM_E_ATTR = 7,
  GRADLOOM_E_TYPE = 8,
  GRADLOOM_E_SHAPE = 9,
  GRADLOOM_E_VALUE = 10,
  GRADLOOM_E_TENSOR = 11,
  GRADLOOM_E_PATH = 12,
  GRADLOOM_E_IO = 13,
  GRADLOOM_E_VERSION = 14,
  GRADLOOM_E_UNSUPPORTED = 15, /* also what this build of the library does not have */
  GRADLOOM_E_LIMIT = 16,
  GRADLOOM_E_CONFIG = 17, /* also null, constants that are none, and calls at the wrong time */
  GRADLOOM_E_DATA = 18,
  GRADLOOM_E_RESOURCE = 19,
  GRADLOOM_E_PLAN = 20,
  GRADLOOM_E_CHECKPOINT = 21,
  GRADLOOM_E_DEVICE = 22,
  GRADLOOM_E_DIVERGED = 23,
  GRADLOOM_E_CHECK_FAILED = 24,
  GRADLOOM_E_PEER = 25
};

/* Element types; the numbers are ONNX's TensorProto.DataType, and so onnxruntime's. */
typedef int32_t GradloomDType;
enum {
  GRADLOOM_FLOAT32 = 1,
  GRADLOOM_UINT8 = 2,
  GRADLOOM_INT8 = 3,
  GRADLOOM_UINT16 = 4,
  GRADLOOM_INT16 = 5,
  GRADLOOM_INT32 = 6,
  GRADLOOM_INT64 = 7,
  GRADLOOM_BOOL = 9, /* one byte an element, 0 or 1 */
  GRADLOOM_FLOAT16 = 10,
  GRADLOOM_FLOAT64 = 11,
  GRADLOOM_UINT32 = 12,
  GRADLOOM_UINT64 = 13,
  GRADLOOM_BFLOAT16 = 16
};

/* A tensor in host memory that somebody else owns: row-major elements, `data` aligned to the size of one. As an input it is read and never
 * written, and has to stay until the call returns (StepAsync: until Wait has). */
typedef struct GradloomTensor {
  void* data;
  const int64_t* shape; /* `rank` extents; may be null where rank is 0 */
  int32_t rank;
  GradloomDType dtype;
} GradloomTensor;

/* What is known of a tensor before it is there. */
typedef struct GradloomTensorInfo {
  size_t size;
  const char* name;
  const int64_t* shape;
  int32_t rank;
  GradloomDType dtype;
  int32_t batch_axis; /* the axis of the samples; -1: none */
  int32_t reserved;
} GradloomTensorInfo;

/* Which of a plan's programs is meant. */
typedef int32_t GradloomEntry;
enum {
  GRADLOOM_TRAIN = 0,  /* a training step: inputs are the model's and the targets of the loss */
  GRADLOOM_EVAL = 1,   /* loss and outputs without training */
  GRADLOOM_PREDICT = 2 /* outputs alone; no targets */
};

/* A key of the configuration and its value as `--set KEY=VALUE` has it: {"optimizer.lr", "1e-3"}. */
typedef struct GradloomSetting {
  const char* key;
  const char* value;
} GradloomSetting;

typedef struct GradloomLoadOptions {
  size_t size;
  const char* name;         /* of a model from a buffer, for messages; null: "model" */
  const char* external_dir; /* where external data lies; null: beside the file, of a buffer nowhere */
} GradloomLoadOptions;

/* What a plan is to have besides the fused training step, by which a bit is set. */
enum {
  GRADLOOM_WITH_EVAL = 1,         /* EvalStep */
  GRADLOOM_WITH_PREDICT = 2,      /* Predict */
  GRADLOOM_WITH_GRADIENTS = 4,    /* TrainStep, OptimizerStep and GetGradient; takes memory for a sum of gradients by parameter */
  GRADLOOM_WITH_OUTPUTS = 8,      /* training steps give the model's outputs, too */
  GRADLOOM_WITH_NOTHING_ELSE = 16 /* alone: training steps and no more; beside others it means nothing */
};

typedef struct GradloomCompileOptions {
  size_t size;
  const char* config_path;         /* a TOML file of the configuration; null: none */
  const GradloomSetting* settings; /* these win over the file; GetSettings lists all keys with their defaults */
  size_t num_settings;
  /* Batch sizes that the plan is made for at once; none: that of `data.batch`, or what the model's file says, or 32. A session compiles
   * others when they come, where its plan was compiled in this process. */
  const int64_t* batches;
  size_t num_batches;
  uint32_t with; /* bits of GRADLOOM_WITH_; 0: GRADLOOM_WITH_EVAL | GRADLOOM_WITH_PREDICT */
  uint32_t reserved;
  const char* config_text; /* what such a file would hold, read after config_path; null: none */
} GradloomCompileOptions;

/* What DescribePlan writes. */
typedef int32_t GradloomDescription;
enum {
  GRADLOOM_PLAN_TEXT = 0,        /* the whole plan, as `gradloom inspect` prints it */
  GRADLOOM_PLAN_MEMORY_JSON = 1, /* bytes by kind and by program, as `gradloom inspect --json` */
  GRADLOOM_PLAN_NOTES = 2        /* what compiling it guessed and warned of, one line each; of a plan from a file nothing */
};

typedef struct GradloomSessionOptions {
  size_t size;
  int64_t seed;            /* of all that is random; of a checkpoint with a position, the checkpoint's counts */
  const int32_t* ordinals; /* CUDA devices by rank; null: 0, 1, 2 ... */
  size_t num_ordinals;
  int32_t any_plan; /* 1: a checkpoint of a plan with other options is taken, too (the same model and state); it goes on, not to the same
                       bits */
  int32_t reserved;
} GradloomSessionOptions;

typedef struct GradloomStepResult {
  size_t size;
  double loss;      /* of this batch, before the update */
  double lr;        /* of this update */
  double grad_norm; /* before clipping; -1 where the plan does not compute it */
  int64_t step;     /* updates done so far */
  int64_t batch;    /* batches trained on so far */
  int32_t updated;  /* 0 while gradients are being accumulated */
  int32_t reserved;
} GradloomStepResult;

/* Where a tensor lives. */
typedef struct GradloomLocation {
  size_t size;
  char device[32];     /* of the first device that has it: "cpu", "cpu:1", "cuda:0" */
  int32_t num_devices; /* that hold a copy; 0: parts of it lie on several */
  int32_t row_major;   /* 1: its elements lie there in the order of GetParameter; 0: in the order that its kernels want */
  const void* address; /* of that device, valid as long as the session; null for what is in no fixed place */
  int64_t bytes;       /* there, padding included */
} GradloomLocation;

/* What is asked for. */
typedef int32_t GradloomTensorKind;
enum { GRADLOOM_STATE = 0, GRADLOOM_GRADIENT = 1, GRADLOOM_OUTPUT = 2 };

typedef struct GradloomDeviceMemory {
  size_t size;
  char device[32];
  int64_t allocated_bytes; /* must be kept: state, constants */
  int64_t cached_bytes;    /* for steps; ReleaseMemory gives it back */
  int64_t free_bytes;      /* of the device, for anybody */
} GradloomDeviceMemory;

/* What a device is. GetDevices says more, as text. */
typedef struct GradloomDeviceInfo {
  size_t size;
  char device[32]; /* as Compile and locations name it: "cpu", "cuda:0" */
  char name[128];  /* the maker's */
  char isa[32];    /* what kernels are chosen by: "avx512", "sm_90" */
  char uuid[64];   /* of a GPU; else "" */
  int64_t units;   /* cores; multiprocessors */
  int64_t memory_total_bytes;
  int64_t memory_free_bytes; /* now */
} GradloomDeviceInfo;

typedef struct GradloomDataOptions {
  size_t size;
  const GradloomSetting* columns; /* model input or target -> array or columns of the file: {"features", "CRIM..LSTAT"}; none: guessed */
  size_t num_columns;
  const GradloomSetting* transforms; /* input or target -> transform, in order, fitted on the training part: {"features", "standardize"} */
  size_t num_transforms;
  const char* eval_path;  /* evaluation data of the same form; null: none */
  const char* eval_split; /* a share to hold back for evaluation: "20%", "tail:20%"; null: none */
  int64_t seed;           /* of that split */
  const char* format;     /* of all files, where their names do not say it: csv, tsv, npz, npy, idx, tokens, images; null: by their names */
} GradloomDataOptions;

typedef struct GradloomBatchOptions {
  size_t size;
  int64_t batch; /* samples of a batch; the last one of an epoch has what is left */
  int64_t epoch; /* from 0 */
  int64_t seed;
  int32_t in_order; /* 1: as the file has them; 0: in an order that follows from seed and epoch */
  int32_t reserved;
} GradloomBatchOptions;

typedef struct GradloomEvaluation {
  const char* const* names; /* "loss", and the metrics; the arrays are there for the call */
  const double* values;
  size_t count;
  int64_t step, epoch;
  int32_t best; /* 1: better than all before */
  int32_t reserved;
} GradloomEvaluation;

typedef struct GradloomEpoch {
  int64_t epoch; /* from 1 */
  int64_t step;
  double train_loss; /* the mean over its samples */
  double lr, seconds, samples_per_second;
} GradloomEpoch;

/* Called on the thread that called Fit, between two steps; each may be null. What is not 0 stops the run after this step. The session may
 * be read and written in one, and checkpoints saved. */
typedef struct GradloomCallbacks {
  size_t size;
  void* user; /* handed to each */
  int32_t (*on_step)(void* user, const GradloomStepResult* result);
  int32_t (*on_evaluation)(void* user, const GradloomEvaluation* evaluation);
  int32_t (*on_epoch)(void* user, const GradloomEpoch* epoch);
} GradloomCallbacks;

typedef struct GradloomFitOptions {
  size_t size;
  int64_t epochs;             /* passes over the data, those included that the session's position says were made; 0: 1 */
  int64_t updates;            /* above 0: so many updates in all, however many epochs that is */
  int64_t batch;              /* 0: 32 */
  const char* evaluate_every; /* "1ep", "500"; null: "1ep" */
  const char* const* metrics; /* "accuracy(logits, label)"; output and target are named */
  size_t num_metrics;
  const char* watch; /* what tells the better model: "eval/loss:min"; null: the loss */
  int64_t patience;  /* above 0: stop after so many evaluations in a row that were not better */
} GradloomFitOptions;

typedef struct GradloomFitResult {
  size_t size;
  double train_loss; /* of the last epoch */
  double best;       /* the watched value; NaN where nothing was evaluated */
  int64_t best_step; /* -1 where nothing was evaluated */
  int64_t step;
  int32_t stopped; /* 0: done; 1: by a callback; 2: no better for `patience` evaluations */
  int32_t reserved;
} GradloomFitResult;

/* DLPack's DLManagedTensor (unversioned), for those who have its header. */
struct DLManagedTensor;

typedef struct GradloomApi {
  uint32_t version; /* GRADLOOM_API_VERSION of the table */
  uint32_t reserved;

  /* ---- Statuses, texts, types ------------------------------------------------------------------------------------------------------ */
  GradloomErrorCode (*GetErrorCode)(const GradloomStatus* status); /* GRADLOOM_OK for null */
  const char* (*GetErrorName)(const GradloomStatus* status);       /* "E-SHAPE"; "" for null, as the next three */
  const char* (*GetErrorMessage)(const GradloomStatus* status);    /* what */
  const char* (*GetErrorWhere)(const GradloomStatus* status);      /* file, ONNX node, shapes; may be "" */
  const char* (*GetErrorHelp)(const GradloomStatus* status);       /* what to do; may be "" */
  void (*ReleaseStatus)(GradloomStatus* status);
  const char* (*GetTextData)(const GradloomText* text); /* a zero byte follows; "" for null */
  size_t (*GetTextBytes)(const GradloomText* text);     /* without that zero */
  void (*ReleaseText)(GradloomText* text);
  const char* (*GetLibraryVersion)(void);           /* "0.1.0" */
  const char* (*GetDTypeName)(GradloomDType dtype); /* "float32"; "undefined" for what is none */
  size_t (*GetDTypeBytes)(GradloomDType dtype);     /* of an element; 0 for what is none */

  /* ---- Models and compiling --------------------------------------------------------------------------------------------------------- */
  /* `options` may be null. */
  GradloomStatus* (*LoadModel)(const char* path, const GradloomLoadOptions* options, GradloomModel** out);
  /* Copies the bytes of an ONNX file. */
  GradloomStatus* (*LoadModelFromBuffer)(const void* bytes, size_t num_bytes, const GradloomLoadOptions* options, GradloomModel** out);
  GradloomStatus* (*GetModelInputCount)(const GradloomModel* model, size_t* out);
  GradloomStatus* (*GetModelInputName)(const GradloomModel* model, size_t index, const char** out);
  void (*ReleaseModel)(GradloomModel* model);
  /* Every key of the configuration with its default: {"optimizer.lr": {"value": 0.001, ...}, ...}. */
  GradloomStatus* (*GetSettings)(GradloomText** out);
  /* The devices of this machine as one JSON object. */
  GradloomStatus* (*GetDevices)(GradloomText** out);
  GradloomStatus* (*Compile)(const GradloomModel* model, const GradloomCompileOptions* options, GradloomPlan** out);

  /* ---- Plans ------------------------------------------------------------------------------------------------------------------------ */
  /* A plan may come from anyone: it is proved sound before it is given out. */
  GradloomStatus* (*LoadPlan)(const char* path, GradloomPlan** out);
  GradloomStatus* (*LoadPlanFromBuffer)(const void* bytes, size_t num_bytes, GradloomPlan** out);
  GradloomStatus* (*SavePlan)(const GradloomPlan* plan, const char* path);
  void (*ReleasePlan)(GradloomPlan* plan);
  GradloomStatus* (*DescribePlan)(const GradloomPlan* plan, GradloomDescription what, GradloomText** out);
  GradloomStatus* (*GetPlanProperty)(const GradloomPlan* plan, const char* key, const char** out); /* null where it has none */
  GradloomStatus* (*GetPlanDeviceCount)(const GradloomPlan* plan, size_t* out);
  /* Inputs come in the order in which Step takes them; the extents are those of the first batch size. */
  GradloomStatus* (*GetInputCount)(const GradloomPlan* plan, GradloomEntry entry, size_t* out);
  GradloomStatus* (*GetInputInfo)(const GradloomPlan* plan, GradloomEntry entry, size_t index, GradloomTensorInfo* out);
  GradloomStatus* (*GetOutputCount)(const GradloomPlan* plan, GradloomEntry entry, size_t* out);
  GradloomStatus* (*GetOutputInfo)(const GradloomPlan* plan, GradloomEntry entry, size_t index, GradloomTensorInfo* out);

  /* ---- Sessions --------------------------------------------------------------------------------------------------------------------- */
  /* `options` may be null. `checkpoint` null: initial weights are the model's. One that holds weights alone replaces those it has. */
  GradloomStatus* (*CreateTrainingSession)(const GradloomPlan* plan, const GradloomSessionOptions* options,
                                           const GradloomCheckpoint* checkpoint, GradloomSession** out);
  /* Waits for a step that is under way. */
  void (*ReleaseTrainingSession)(GradloomSession* session);
  /* One batch of training: forward, backward and update as one program. `inputs` are borrowed, not copied. `names` null: inputs come in the
   * plan's order; with names, others than the plan's are left aside, so that a batch of a data set can be given to every function below.
   * The batch size is that of the inputs. `result` may be null. Where it fails for what is in the inputs (a label that is no class),
   * all that lives between steps is as before, on any number of CPU devices, and of GPUs where one process has them all: parameters,
   * optimizer state, running statistics, gradients that wait, loss scale, position. */
  GradloomStatus* (*Step)(GradloomSession* session, const char* const* names, const GradloomTensor* inputs, size_t num_inputs,
                          GradloomStepResult* result);
  /* The same on a thread of the session's. The inputs are borrowed until Wait returns; other calls on the session wait for it; one step may
   * be under way. */
  GradloomStatus* (*StepAsync)(GradloomSession* session, const char* const* names, const GradloomTensor* inputs, size_t num_inputs);
  /* Returns when the step has ended, with its status and result. */
  GradloomStatus* (*Wait)(GradloomSession* session, GradloomStepResult* result);
  /* Forward and backward: the gradients are added to those that wait. Any number of batches may come before the update. The plan needs
   * GRADLOOM_WITH_GRADIENTS. */
  GradloomStatus* (*TrainStep)(GradloomSession* session, const char* const* names, const GradloomTensor* inputs, size_t num_inputs,
                               GradloomStepResult* result);
  /* The update with the sum of the gradients that wait, which are zero after it. E-CONFIG where none wait. */
  GradloomStatus* (*OptimizerStep)(GradloomSession* session, GradloomStepResult* result);
  /* Sets the gradients that wait to zero. After an OptimizerStep they are, and this changes nothing. */
  GradloomStatus* (*LazyResetGrad)(GradloomSession* session);
  GradloomStatus* (*EvalStep)(GradloomSession* session, const char* const* names, const GradloomTensor* inputs, size_t num_inputs,
                              GradloomStepResult* result);
  GradloomStatus* (*Predict)(GradloomSession* session, const char* const* names, const GradloomTensor* inputs, size_t num_inputs);
  /* An output of the run before, "loss" among them. Borrows: data and shape are there until the session's next run. */
  GradloomStatus* (*GetOutput)(GradloomSession* session, const char* name, GradloomTensor* out);
  /* Copies it; `num_bytes` must be its size. */
  GradloomStatus* (*CopyOutput)(GradloomSession* session, const char* name, void* buffer, size_t num_bytes);
  /* Updates done and batches trained on. */
  GradloomStatus* (*GetPosition)(GradloomSession* session, int64_t* step, int64_t* batch);
  GradloomStatus* (*SetSeed)(GradloomSession* session, int64_t seed);
  GradloomStatus* (*GetDeviceMemory)(GradloomSession* session, size_t device, GradloomDeviceMemory* out);
  /* Gives back what only a running step needs; the next one takes it again. Outputs are gone. */
  GradloomStatus* (*ReleaseMemory)(GradloomSession* session);

  /* ---- The learning rate ------------------------------------------------------------------------------------------------------------ */
  /* From the next update on, in place of the plan's schedule; below 0: the schedule again. */
  GradloomStatus* (*SetLearningRate)(GradloomSession* session, double lr);
  GradloomStatus* (*GetLearningRate)(GradloomSession* session, double* out); /* of the next update */
  /* From initial_lr * step / warmup up to initial_lr, then down to 0 at total_steps, by updates from now on. Set at once, and again by each
   * SchedulerStep. The plan's own schedules (schedule.name) need neither. */
  GradloomStatus* (*RegisterLinearLRScheduler)(GradloomSession* session, int64_t warmup_steps, int64_t total_steps, double initial_lr);
  GradloomStatus* (*SchedulerStep)(GradloomSession* session);

  /* ---- Parameters and gradients: all calls copy, in row-major order ------------------------------------------------------------------ */
  /* State tensors: trained parameters first; without `trainable_only` the running statistics behind them. */
  GradloomStatus* (*GetParameterCount)(GradloomSession* session, int32_t trainable_only, size_t* out);
  GradloomStatus* (*GetParameterName)(GradloomSession* session, size_t index, const char** out);
  GradloomStatus* (*GetParameterTypeAndShape)(GradloomSession* session, const char* name, GradloomTensorInfo* out);
  GradloomStatus* (*GetParameter)(GradloomSession* session, const char* name, void* buffer, size_t num_bytes);
  GradloomStatus* (*UpdateParameter)(GradloomSession* session, const char* name, const GradloomTensor* value);
  /* Elements of all of them together, and all of them as one vector of float32 in the order of GetParameterName. E-TYPE where one has
   * another type. */
  GradloomStatus* (*GetParametersSize)(GradloomSession* session, int32_t trainable_only, size_t* out);
  GradloomStatus* (*CopyParametersToBuffer)(GradloomSession* session, int32_t trainable_only, float* buffer, size_t num_elements);
  GradloomStatus* (*CopyBufferToParameters)(GradloomSession* session, int32_t trainable_only, const float* buffer, size_t num_elements);
  /* The sum that waits for an update; needs GRADLOOM_WITH_GRADIENTS. */
  GradloomStatus* (*GetGradient)(GradloomSession* session, const char* parameter, void* buffer, size_t num_bytes);
  /* Where a state tensor, the gradient of a parameter, or an output of the run before lives. */
  GradloomStatus* (*GetLocation)(GradloomSession* session, GradloomTensorKind kind, const char* name, GradloomLocation* out);

  /* ---- Checkpoints, properties, export ---------------------------------------------------------------------------------------------- */
  /* What SaveCheckpoint wrote; a safetensors file of weights; the folder of a checkpoint, or of the checkpoints of a run (the newest). */
  GradloomStatus* (*LoadCheckpoint)(const char* path, GradloomCheckpoint** out);
  /* Copies the bytes of such a file. */
  GradloomStatus* (*LoadCheckpointFromBuffer)(const void* bytes, size_t num_bytes, GradloomCheckpoint** out);
  void (*ReleaseCheckpoint)(GradloomCheckpoint* checkpoint);
  /* One safetensors file that appears complete or not at all. With the optimizer's state a session goes on from it to the same bits;
   * without it the file has parameters and running statistics alone. */
  GradloomStatus* (*SaveCheckpoint)(GradloomSession* session, const char* path, int32_t include_optimizer_state);
  GradloomStatus* (*SaveCheckpointToBuffer)(GradloomSession* session, int32_t include_optimizer_state, GradloomText** out);
  /* Texts of the caller's that go with the checkpoints of a session. `out`: null where there is none; borrowed until it is added again. */
  GradloomStatus* (*AddProperty)(GradloomSession* session, const char* name, const char* value);
  GradloomStatus* (*GetProperty)(GradloomSession* session, const char* name, const char** out);
  /* The model's own file with the trained weights, for inference. `outputs`: which of the model's to keep, with what they need; none: all.
   */
  GradloomStatus* (*ExportModelForInferencing)(GradloomSession* session, const char* path, const char* const* outputs, size_t num_outputs);

  /* ---- Data ------------------------------------------------------------------------------------------------------------------------- */
  /* Reads .npz, .npy, IDX, tables (.csv, .tsv, .gz), tokens (.bin) or a folder of images into columns as the plan wants them; docs/data.md.
   * A path with *, ?, [ or { is a pattern of files that are read one after the other. `options` may be null; `eval` too, where nothing is
   * held back. */
  GradloomStatus* (*LoadDataset)(const char* path, const GradloomPlan* plan, const GradloomDataOptions* options, GradloomDataset** train,
                                 GradloomDataset** eval);
  /* Of tensors, which are copied: the first axis is the sample. */
  GradloomStatus* (*CreateDataset)(const char* const* names, const GradloomTensor* columns, size_t num_columns, GradloomDataset** out);
  GradloomStatus* (*GetDatasetRows)(const GradloomDataset* dataset, int64_t* out);
  void (*ReleaseDataset)(GradloomDataset* dataset);
  GradloomStatus* (*CreateBatches)(const GradloomDataset* dataset, const GradloomBatchOptions* options, GradloomBatches** out);
  GradloomStatus* (*GetBatchCount)(const GradloomBatches* batches, int64_t* out);
  /* Batch `index` by columns, to be handed to Step as it is. Borrows: all of it is there until the next GetBatch, which no other thread may
   * call meanwhile. */
  GradloomStatus* (*GetBatch)(GradloomBatches* batches, int64_t index, const char* const** names, const GradloomTensor** columns,
                              size_t* count);
  void (*ReleaseBatches)(GradloomBatches* batches);
  /* A whole training, which goes on from the session's position: epochs over `train`, evaluation over `eval` (null: none). `callbacks` and
   * `result` may be null. A loss that is not finite is E-DIVERGED. */
  GradloomStatus* (*Fit)(GradloomSession* session, const GradloomDataset* train, const GradloomDataset* eval,
                         const GradloomFitOptions* options, const GradloomCallbacks* callbacks, GradloomFitResult* result);

  /* ---- DLPack ----------------------------------------------------------------------------------------------------------------------- */
  /* Borrows the elements and the shape of a tensor in host memory (kDLCPU, kDLCUDAHost), or in that of a GPU (kDLCUDA), which must be
   * row-major. A GPU's is an input for sessions on that GPU alone: it is copied there, without the host, behind what the default stream of
   * the GPU has been given by the call that reads it. Elsewhere it is refused (E-DEVICE). */
  GradloomStatus* (*FromDLPack)(const struct DLManagedTensor* managed, GradloomTensor* out);
  /* A copy of the tensor that its `deleter` frees. */
  GradloomStatus* (*ToDLPack)(const GradloomTensor* tensor, struct DLManagedTensor** out);

  /* ---- Parameters in other processes ------------------------------------------------------------------------------------------------ */
  /* From now on, until the session ends or another name is given (null: none), other processes of this user on this host can attach the
   * session's parameters and running statistics under `name` (letters, digits, '.', '_', '-', at most 64) and see them change as it trains.
   * Sessions of one CPU device; the outputs of the run before stay valid. E-CONFIG where the name is taken. */
  GradloomStatus* (*ShareParameters)(GradloomSession* session, const char* name);
  /* The parameters that a session of this or another process shares: no copy, and read-only. They stay as long as the handle, whatever
   * becomes of the session; whether it still trains is not said. E-CONFIG where nobody shares under this name, E-DATA where what is shared
   * is no parameters. */
  GradloomStatus* (*AttachParameters)(const char* name, GradloomAttached** out);
  void (*ReleaseAttached)(GradloomAttached* attached);
  GradloomStatus* (*GetAttachedCount)(const GradloomAttached* attached, size_t* out);
  /* Borrows all of it as long as the handle. `data` is null where the elements lie in the order that kernels want: CopyAttached has them.
   * Reads while the session writes see each element before or after its update, and others as they come. */
  GradloomStatus* (*GetAttached)(const GradloomAttached* attached, size_t index, const char** name, GradloomTensor* out);
  /* A copy in row-major order; `num_bytes` must be its size. */
  GradloomStatus* (*CopyAttached)(const GradloomAttached* attached, size_t index, void* buffer, size_t num_bytes);

  /* ---- Later additions --------------------------------------------------------------------------------------------------------------- */
  /* A property of a checkpoint before a session is made of it; null where it has none. */
  GradloomStatus* (*GetCheckpointProperty)(const GradloomCheckpoint* checkpoint, const char* name, const char** out);
  /* A copy of a state tensor, of a gradient that waits or of an output of the run before, on the device where it lies (kDLCPU, kDLCUDA): it
   * is complete when the call returns, and its `deleter` frees it, whatever becomes of the session. From a GPU nothing goes through host
   * memory: E-DEVICE where several have parts of it, E-UNSUPPORTED where its elements are there in the order that kernels want, where data
   * have decided how many there are, and for gradients of a loss that is scaled. GetParameter, GetGradient and GetOutput bring those to the
   * host. */
  GradloomStatus* (*CopyToDLPack)(GradloomSession* session, GradloomTensorKind kind, const char* name, struct DLManagedTensor** out);
  /* The devices that Compile takes, from now on and in all of the process, where nothing that it is given names any ("cuda:0", "cpu:4");
   * "": those of the configuration's default again. And which these are; "" where none are set. */
  GradloomStatus* (*SetDefaultDevices)(const char* devices);
  GradloomStatus* (*GetDefaultDevices)(GradloomText** out);
  /* The devices of this machine: the CPU is device 0, and the GPUs come behind it. */
  GradloomStatus* (*GetDeviceCount)(size_t* out);
  GradloomStatus* (*GetDeviceInfo)(size_t index, GradloomDeviceInfo* out);
} GradloomApi;

#if defined(_WIN32) || !defined(__GNUC__)
#define GRADLOOM_EXPORT
#else
#define GRADLOOM_EXPORT __attribute__((visibility("default")))
#endif

/* The table of this version; null for a version that the library does not have. The table is constant and there as long as the library. */
GRADLOOM_EXPORT const GradloomApi* GradloomGetApi(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif /* GRADLOOM_GRADLOOM_C_H_ */
