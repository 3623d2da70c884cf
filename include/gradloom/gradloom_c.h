/* Gradloom from C: one table of functions, opaque handles, buffers that the caller owns.
 *
 *   const GradloomApi* api = GradloomGetApi(GRADLOOM_API_VERSION);
 *
 * docs/embedding.md has complete programs. These rules hold for every function of the table:
 *
 * Errors: a function that can fail returns a GradloomStatus*: null on success, else a description of the error, which the caller releases.
 * After an error, its output handles are null and other outputs are unchanged. No exception crosses the table. Null where a pointer is
 * required, an invalid constant, and a call at the wrong time give a status, never a crash. A handle must have come from the table and must
 * not have been released.
 *
 * Handles: the caller releases every handle that it gets, in any order. A handle keeps alive what it needs of other handles. Releasing null
 * does nothing.
 *
 * Strings are UTF-8 and end in a zero byte. Strings and arrays that a function returns are borrowed from the handle that was asked, and
 * valid as long as that handle unless stated otherwise. Strings and arrays that are passed to a function are copied unless stated
 * otherwise.
 *
 * The caller sets the field `size` of a struct to sizeof the struct, so that later versions can add fields. Zero in all other bytes means
 * the default for every field. An option that an older library does not have is an error (E-VERSION) unless it is zero.
 *
 * Threads: any thread may call any function, and several threads may use any handle at once. Calls on one session run one after the other.
 * What a session returns by reference (GetOutput) is valid until its next run, whichever thread starts that run.
 *
 * Versions: new functions are added at the end of the table, and new fields at the end of structs. What exists never changes.
 */
#ifndef GRADLOOM_GRADLOOM_C_H_
#define GRADLOOM_GRADLOOM_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GRADLOOM_API_VERSION 1

typedef struct GradloomStatus GradloomStatus;         /* an error */
typedef struct GradloomText GradloomText;             /* text or bytes, owned by the holder of the handle */
typedef struct GradloomModel GradloomModel;           /* an ONNX model in memory; constant */
typedef struct GradloomPlan GradloomPlan;             /* a verified plan; constant */
typedef struct GradloomCheckpoint GradloomCheckpoint; /* a checkpoint in memory; constant */
typedef struct GradloomSession GradloomSession;       /* a plan with its state, on its devices */
typedef struct GradloomDataset GradloomDataset;       /* a table of samples; constant */
typedef struct GradloomBatches GradloomBatches;       /* the batches of an epoch */
typedef struct GradloomAttached GradloomAttached;     /* parameters that a session shares; constant except for their elements */

/* The class of an error; docs/errors.md lists all. These numbers never change. */
typedef int32_t GradloomErrorCode;
enum {
  GRADLOOM_OK = 0,
  GRADLOOM_E_INTERNAL = 1, /* a bug in Gradloom */
  GRADLOOM_E_PARSE = 2,
  GRADLOOM_E_SCHEMA = 3,
  GRADLOOM_E_NAME = 4,
  GRADLOOM_E_GRAPH = 5,
  GRADLOOM_E_ARITY = 6,
  GRADLOOM_E_ATTR = 7,
  GRADLOOM_E_TYPE = 8,  /* also for a tensor of an unknown element type */
  GRADLOOM_E_SHAPE = 9, /* also for a tensor that is not of the element type and shape of the parameter that it is to replace */
  GRADLOOM_E_VALUE = 10,
  GRADLOOM_E_TENSOR = 11,
  GRADLOOM_E_PATH = 12,
  GRADLOOM_E_IO = 13,
  GRADLOOM_E_VERSION = 14,
  GRADLOOM_E_UNSUPPORTED = 15, /* also for what this build of the library lacks */
  GRADLOOM_E_LIMIT = 16,
  GRADLOOM_E_CONFIG = 17, /* also for null, other invalid constants, unknown names, indices out of range, and calls at the wrong time */
  GRADLOOM_E_DATA = 18,   /* also for inputs whose number, names, types or shapes are not those of the plan */
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
  GRADLOOM_BOOL = 9, /* one byte per element, 0 or 1 */
  GRADLOOM_FLOAT16 = 10,
  GRADLOOM_FLOAT64 = 11,
  GRADLOOM_UINT32 = 12,
  GRADLOOM_UINT64 = 13,
  GRADLOOM_BFLOAT16 = 16
};

/* A tensor in host memory that the table does not own: row-major elements, `data` aligned to the size of an element. An input is read and
 * never written, and must stay valid until the call returns (StepAsync: until Wait returns). */
typedef struct GradloomTensor {
  void* data;
  const int64_t* shape; /* `rank` extents; may be null where rank is 0 */
  int32_t rank;
  GradloomDType dtype;
} GradloomTensor;

/* The type and shape of a tensor. */
typedef struct GradloomTensorInfo {
  size_t size;
  const char* name;
  const int64_t* shape;
  int32_t rank;
  GradloomDType dtype;
  int32_t batch_axis; /* the axis of the samples, perhaps with several positions of each; -1: none */
  int32_t reserved;
} GradloomTensorInfo;

/* Which kind of a plan's entries. */
typedef int32_t GradloomEntry;
enum {
  GRADLOOM_TRAIN = 0,  /* a training step: inputs are the model's and the targets of the loss */
  GRADLOOM_EVAL = 1,   /* loss and outputs without training */
  GRADLOOM_PREDICT = 2 /* outputs alone; no targets */
};

/* A key of the configuration and its value, as in `--set KEY=VALUE`: {"optimizer.lr", "1e-3"}. */
typedef struct GradloomSetting {
  const char* key;
  const char* value;
} GradloomSetting;

typedef struct GradloomLoadOptions {
  size_t size;
  const char* name;         /* of a model from a buffer, for messages; null: "model". Ending in .onnxtxt: the bytes are ONNX's text form */
  const char* external_dir; /* folder of external data; null: the folder of the file; for a buffer, no external data */
} GradloomLoadOptions;

/* What a plan contains besides the fused training step. Each is a bit. */
enum {
  GRADLOOM_WITH_EVAL = 1,         /* EvalStep */
  GRADLOOM_WITH_PREDICT = 2,      /* Predict */
  GRADLOOM_WITH_GRADIENTS = 4,    /* TrainStep, OptimizerStep and GetGradient; takes memory for an accumulated gradient of each parameter */
  GRADLOOM_WITH_OUTPUTS = 8,      /* training steps return the model's outputs, too */
  GRADLOOM_WITH_NOTHING_ELSE = 16 /* by itself: training steps only; ignored together with others */
};

typedef struct GradloomCompileOptions {
  size_t size;
  const char* config_path;         /* a TOML file of the configuration; null: none */
  const GradloomSetting* settings; /* these override the file; GetSettings lists all keys with their defaults */
  size_t num_settings;
  /* Batch sizes that the plan is compiled for at once; none: `data.batch`, or else the size in the model's file, or 32. A session compiles
   * other sizes when they first occur, if its plan was compiled in this process. */
  const int64_t* batches;
  size_t num_batches;
  uint32_t with; /* bits of GRADLOOM_WITH_; 0: GRADLOOM_WITH_EVAL | GRADLOOM_WITH_PREDICT */
  uint32_t reserved;
  const char* config_text; /* the text of such a file, read after config_path; null: none */
  /* Inputs of the model, or targets, of which training steps (Step, TrainStep) also return the gradient of their batch's loss, as the
   * output "grad/NAME" in the shape of the input. */
  const char* const* input_gradients;
  size_t num_input_gradients;
} GradloomCompileOptions;

/* What DescribePlan describes. */
typedef int32_t GradloomDescription;
enum {
  GRADLOOM_PLAN_TEXT = 0,        /* the whole plan, as `gradloom inspect` prints it */
  GRADLOOM_PLAN_MEMORY_JSON = 1, /* bytes by kind and by program, as `gradloom inspect --json` */
  GRADLOOM_PLAN_NOTES = 2        /* what the compiler guessed and warned of, one per line; empty for a plan from a file */
};

typedef struct GradloomSessionOptions {
  size_t size;
  int64_t seed;            /* of everything random; a checkpoint with a position uses its own */
  const int32_t* ordinals; /* CUDA devices by rank; null: 0, 1, 2 ... */
  size_t num_ordinals;
  int32_t any_plan; /* 1: also accept a checkpoint of a plan with other options (same model and state); the session continues, but not to
                       the same bits */
  int32_t reserved;
  int32_t check_numerics; /* 1: look at the numbers of every instruction, for GetNonFiniteOrigin and the texts of E-DIVERGED; steps give
                             the same bits, but are far slower */
  int32_t reserved_2;
} GradloomSessionOptions;

typedef struct GradloomStepResult {
  size_t size;
  double loss;      /* of this batch, before the update */
  double lr;        /* of this update */
  double grad_norm; /* before clipping; -1 if the plan does not compute it */
  int64_t step;     /* updates done so far */
  int64_t batch;    /* batches trained on so far */
  int32_t updated;  /* 0 while gradients are being accumulated */
  int32_t reserved;
} GradloomStepResult;

/* Where a tensor lives. */
typedef struct GradloomLocation {
  size_t size;
  char device[32];     /* the first device that has it: "cpu", "cpu:1", "cuda:0" */
  int32_t num_devices; /* number of devices with a copy; 0: several devices have parts of it */
  int32_t row_major;   /* 1: its elements are in the order of GetParameter; 0: in the layout of its kernels */
  const void* address; /* on that device, valid as long as the session; null if it has no fixed address */
  int64_t bytes;       /* on that device, including padding */
} GradloomLocation;

/* A kind of tensor. */
typedef int32_t GradloomTensorKind;
enum { GRADLOOM_STATE = 0, GRADLOOM_GRADIENT = 1, GRADLOOM_OUTPUT = 2 };

typedef struct GradloomDeviceMemory {
  size_t size;
  char device[32];
  int64_t allocated_bytes; /* kept between steps: state, constants */
  int64_t cached_bytes;    /* memory of steps; ReleaseMemory frees it */
  int64_t free_bytes;      /* free on the device, for any program */
} GradloomDeviceMemory;

/* A device. GetDevices gives more details, as text. */
typedef struct GradloomDeviceInfo {
  size_t size;
  char device[32]; /* as Compile and locations name it: "cpu", "cuda:0" */
  char name[128];  /* the vendor's name for it */
  char isa[32];    /* decides which kernels are chosen: "avx512", "sm_90" */
  char uuid[64];   /* of a GPU; else "" */
  int64_t units;   /* cores, or multiprocessors */
  int64_t memory_total_bytes;
  int64_t memory_free_bytes; /* now */
} GradloomDeviceInfo;

typedef struct GradloomDataOptions {
  size_t size;
  const GradloomSetting* columns; /* model input or target -> array or columns of the file: {"features", "CRIM..LSTAT"}; none: guessed */
  size_t num_columns;
  const GradloomSetting* transforms; /* input or target -> transform, in order, fitted on the training part: {"features", "standardize"} */
  size_t num_transforms;
  const char* eval_path;  /* evaluation data of the same format; null: none */
  const char* eval_split; /* a share to hold back for evaluation: "20%", "tail:20%"; null: none */
  int64_t seed;           /* of that split */
  const char* format;     /* of all files: csv, tsv, npz, npy, idx, tokens, images; null: by their names */
} GradloomDataOptions;

typedef struct GradloomBatchOptions {
  size_t size;
  int64_t batch; /* samples per batch, 0: 32; the last one of an epoch has the rest */
  int64_t epoch; /* from 0 */
  int64_t seed;
  int32_t in_order; /* 1: in the order of the file; 0: in an order that depends on seed and epoch */
  int32_t reserved;
  const GradloomPlan* plan; /* lays samples along the axes where this plan has them; null: the plan that the data set was read for */
} GradloomBatchOptions;

typedef struct GradloomEvaluation {
  const char* const* names; /* "loss", its terms if there are several ("loss/box"), and the metrics; valid during the call, as values are */
  const double* values;
  size_t count;
  int64_t step, epoch;
  int32_t best; /* 1: better than all before */
  int32_t reserved;
} GradloomEvaluation;

typedef struct GradloomEpoch {
  int64_t epoch; /* from 1 */
  int64_t step;
  double train_loss; /* mean over its samples */
  double lr, seconds, samples_per_second;
} GradloomEpoch;

/* Called on the thread that called Fit, between two steps; each may be null. A result other than 0 stops the run after this step. A
 * callback may read and write the session, and save checkpoints. Calls of other threads on the session wait until Fit ends, except StopFit.
 * A C++ exception of a callback ends the run as an error (E-CONFIG). */
typedef struct GradloomCallbacks {
  size_t size;
  void* user; /* passed to each */
  int32_t (*on_step)(void* user, const GradloomStepResult* result);
  int32_t (*on_evaluation)(void* user, const GradloomEvaluation* evaluation);
  int32_t (*on_epoch)(void* user, const GradloomEpoch* epoch);
} GradloomCallbacks;

typedef struct GradloomFitOptions {
  size_t size;
  int64_t epochs;             /* passes over the data, including those that the session's position says are done; 0: 1 */
  int64_t updates;            /* above 0: total number of updates, whatever the number of epochs */
  int64_t batch;              /* 0: 32 */
  const char* evaluate_every; /* "1ep", "500"; null: "1ep" */
  const char* const* metrics; /* "accuracy(logits, label)", with output and target; they, watch and patience need evaluation data */
  size_t num_metrics;
  const char* watch; /* the value that selects the best model: "eval/loss:min"; null: the loss */
  int64_t patience;  /* above 0: stop after this many evaluations in a row without improvement */
  /* Above 0: the factor by which the learning rate is multiplied when the watched value makes no progress, as by PyTorch's
   * ReduceLROnPlateau; below 1. Needs evaluation data and a plan without a schedule. */
  double plateau_factor;
  int64_t plateau_patience; /* evaluations without progress that are tolerated */
  double plateau_threshold; /* least progress that counts, as a share of the best value */
  int64_t plateau_cooldown; /* evaluations after a reduction that do not count */
  double plateau_min_lr;    /* the learning rate is not reduced further */
  int32_t skip_non_finite;  /* not 0: leave out batches whose loss is NaN or infinite (costs a copy of all state per step); 0: E-DIVERGED */
  int32_t in_order;         /* 1: each epoch in the order of the data; 0: in an order that depends on the session's seed and the epoch */
} GradloomFitOptions;

typedef struct GradloomFitResult {
  size_t size;
  double train_loss; /* of the last epoch */
  double best;       /* the watched value; NaN if nothing was evaluated */
  int64_t best_step; /* -1 if nothing was evaluated */
  int64_t step;
  int32_t stopped; /* 0: finished; 1: by a callback or StopFit; 2: no improvement for `patience` evaluations */
  int32_t reserved;
} GradloomFitResult;

/* DLPack's DLManagedTensor (unversioned), declared here so that its header is not needed. */
struct DLManagedTensor;

typedef struct GradloomApi {
  uint32_t version; /* GRADLOOM_API_VERSION of the table */
  uint32_t reserved;

  /* ---- Statuses, texts, types ------------------------------------------------------------------------------------------------------ */
  GradloomErrorCode (*GetErrorCode)(const GradloomStatus* status); /* GRADLOOM_OK for null */
  const char* (*GetErrorName)(const GradloomStatus* status);       /* "E-SHAPE"; "" for null, like the next three */
  const char* (*GetErrorMessage)(const GradloomStatus* status);    /* what */
  const char* (*GetErrorWhere)(const GradloomStatus* status);      /* file, ONNX node, shapes; may be "" */
  const char* (*GetErrorHelp)(const GradloomStatus* status);       /* what to do about it; may be "" */
  void (*ReleaseStatus)(GradloomStatus* status);
  const char* (*GetTextData)(const GradloomText* text); /* a zero byte follows; "" for null */
  size_t (*GetTextBytes)(const GradloomText* text);     /* without that zero */
  void (*ReleaseText)(GradloomText* text);
  const char* (*GetLibraryVersion)(void);           /* "0.1.0" */
  const char* (*GetDTypeName)(GradloomDType dtype); /* "float32"; "undefined" for an invalid type */
  size_t (*GetDTypeBytes)(GradloomDType dtype);     /* of one element; 0 for an invalid type */

  /* ---- Models and compiling --------------------------------------------------------------------------------------------------------- */
  /* `options` may be null. A file whose name ends in .onnxtxt is in ONNX's text form. */
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
  /* A plan may come from an untrusted source: it is proved sound before it is returned. The library without a compiler does not compare
   * operands with what their operator takes: give it only plans of trusted sources. */
  GradloomStatus* (*LoadPlan)(const char* path, GradloomPlan** out);
  GradloomStatus* (*LoadPlanFromBuffer)(const void* bytes, size_t num_bytes, GradloomPlan** out);
  /* Writes a file for LoadPlan, complete or not at all. E-RESOURCE if it cannot be written. */
  GradloomStatus* (*SavePlan)(const GradloomPlan* plan, const char* path);
  void (*ReleasePlan)(GradloomPlan* plan);
  GradloomStatus* (*DescribePlan)(const GradloomPlan* plan, GradloomDescription what, GradloomText** out);
  GradloomStatus* (*GetPlanProperty)(const GradloomPlan* plan, const char* key, const char** out); /* null if there is none */
  GradloomStatus* (*GetPlanDeviceCount)(const GradloomPlan* plan, size_t* out);
  /* Inputs are in the order in which Step takes them. Extents are those of the first batch size. */
  GradloomStatus* (*GetInputCount)(const GradloomPlan* plan, GradloomEntry entry, size_t* out);
  GradloomStatus* (*GetInputInfo)(const GradloomPlan* plan, GradloomEntry entry, size_t index, GradloomTensorInfo* out);
  GradloomStatus* (*GetOutputCount)(const GradloomPlan* plan, GradloomEntry entry, size_t* out);
  GradloomStatus* (*GetOutputInfo)(const GradloomPlan* plan, GradloomEntry entry, size_t index, GradloomTensorInfo* out);

  /* ---- Sessions --------------------------------------------------------------------------------------------------------------------- */
  /* `options` may be null. If `checkpoint` is null, the initial weights are the model's. A checkpoint with weights alone replaces the
   * weights that it has; E-CHECKPOINT if it has other values of weights that the plan does not train. */
  GradloomStatus* (*CreateTrainingSession)(const GradloomPlan* plan, const GradloomSessionOptions* options,
                                           const GradloomCheckpoint* checkpoint, GradloomSession** out);
  /* Waits for a running step, and for calls of other threads; none may begin now. Does nothing in a callback of Fit, and in a child of the
   * process that made the session (fork), where every other call is refused. */
  void (*ReleaseTrainingSession)(GradloomSession* session);
  /* Trains on one batch: forward, backward and update as one program. `inputs` are borrowed, not copied. With `names` null, inputs are in
   * the plan's order. With names, inputs that the plan does not have are ignored, so that a batch of a data set can be passed to every
   * function below. The batch size is that of the inputs. `result` may be null. If the step fails because of its inputs (such as an invalid
   * label), all state between steps is unchanged, on any number of CPU devices, and on GPUs if one process has them all: parameters,
   * optimizer state, running statistics, accumulated gradients, loss scale, position. */
  GradloomStatus* (*Step)(GradloomSession* session, const char* const* names, const GradloomTensor* inputs, size_t num_inputs,
                          GradloomStepResult* result);
  /* The same on a thread of the session. The inputs are borrowed until Wait returns. Other calls on the session wait for it. Only one step
   * may be running. */
  GradloomStatus* (*StepAsync)(GradloomSession* session, const char* const* names, const GradloomTensor* inputs, size_t num_inputs);
  /* Waits for the step, and returns its status and result. */
  GradloomStatus* (*Wait)(GradloomSession* session, GradloomStepResult* result);
  /* Forward and backward: adds the gradients to the accumulated ones. Any number of batches may precede the update. The plan needs
   * GRADLOOM_WITH_GRADIENTS. */
  GradloomStatus* (*TrainStep)(GradloomSession* session, const char* const* names, const GradloomTensor* inputs, size_t num_inputs,
                               GradloomStepResult* result);
  /* Updates with the accumulated gradients, and sets them to zero. E-CONFIG if there are none. */
  GradloomStatus* (*OptimizerStep)(GradloomSession* session, GradloomStepResult* result);
  /* Sets the accumulated gradients to zero. Does nothing after an OptimizerStep, which has done so. */
  GradloomStatus* (*LazyResetGrad)(GradloomSession* session);
  /* The loss and the outputs of one batch without training, with moving averages of parameters if the plan has them. Inputs as for Step.
   * The plan needs GRADLOOM_WITH_EVAL. Nothing between steps changes: of `result`, which may be null, `loss` is that of this batch, `lr`
   * that of the next update, `step` and `batch` are the session's position, `grad_norm` is -1 and `updated` 0. */
  GradloomStatus* (*EvalStep)(GradloomSession* session, const char* const* names, const GradloomTensor* inputs, size_t num_inputs,
                              GradloomStepResult* result);
  /* The outputs of one batch, for GetOutput; no targets. Otherwise like EvalStep. The plan needs GRADLOOM_WITH_PREDICT. */
  GradloomStatus* (*Predict)(GradloomSession* session, const char* const* names, const GradloomTensor* inputs, size_t num_inputs);
  /* An output of the last run, including "loss". Borrowed: data and shape are valid until the session's next run. */
  GradloomStatus* (*GetOutput)(GradloomSession* session, const char* name, GradloomTensor* out);
  /* Copies it; `num_bytes` must be its size. */
  GradloomStatus* (*CopyOutput)(GradloomSession* session, const char* name, void* buffer, size_t num_bytes);
  /* Number of updates done and of batches trained on. */
  GradloomStatus* (*GetPosition)(GradloomSession* session, int64_t* step, int64_t* batch);
  /* The seed of everything random from the next run on; checkpoints have it. */
  GradloomStatus* (*SetSeed)(GradloomSession* session, int64_t seed);
  /* The memory that the session holds on device `device` of the plan, counted from 0 (GetPlanDeviceCount). E-CONFIG if there is no such
   * device. */
  GradloomStatus* (*GetDeviceMemory)(GradloomSession* session, size_t device, GradloomDeviceMemory* out);
  /* Frees memory that only a running step needs; the next step allocates it again. Outputs become invalid. */
  GradloomStatus* (*ReleaseMemory)(GradloomSession* session);

  /* ---- The learning rate ------------------------------------------------------------------------------------------------------------ */
  /* From the next update on, replaces the plan's schedule; below 0: back to the schedule. */
  GradloomStatus* (*SetLearningRate)(GradloomSession* session, double lr);
  GradloomStatus* (*GetLearningRate)(GradloomSession* session, double* out); /* of the next update */
  /* From initial_lr * step / warmup up to initial_lr, then down to 0 at total_steps, counted in updates from now on. Sets the rate at once,
   * and again at each SchedulerStep. The plan's own schedules (schedule.name) need neither function. */
  GradloomStatus* (*RegisterLinearLRScheduler)(GradloomSession* session, int64_t warmup_steps, int64_t total_steps, double initial_lr);
  GradloomStatus* (*SchedulerStep)(GradloomSession* session);

  /* ---- Parameters and gradients: all calls copy, in row-major order ------------------------------------------------------------------ */
  /* State tensors: trained parameters first; without `trainable_only` the running statistics follow. Moving averages of parameters
   * (optimizer.ema) are not listed. By name, "NAME/average", they can be read and set. Setting a parameter sets its average, too, before
   * the first update only; later, evaluations, predictions and exports do not show it. */
  GradloomStatus* (*GetParameterCount)(GradloomSession* session, int32_t trainable_only, size_t* out);
  GradloomStatus* (*GetParameterName)(GradloomSession* session, size_t index, const char** out);
  /* By name, in the shape of the model's file; E-CONFIG for a name that is not there. `batch_axis` is -1. Name and shape are borrowed,
   * valid as long as the session. */
  GradloomStatus* (*GetParameterTypeAndShape)(GradloomSession* session, const char* name, GradloomTensorInfo* out);
  /* Copies a state tensor into the caller's buffer, in its own element type; E-CONFIG if `num_bytes` is not its size. */
  GradloomStatus* (*GetParameter)(GradloomSession* session, const char* name, void* buffer, size_t num_bytes);
  /* Replaces it by a copy of the value, which must have its element type and shape (E-SHAPE). The optimizer's state stays. */
  GradloomStatus* (*UpdateParameter)(GradloomSession* session, const char* name, const GradloomTensor* value);
  /* The number of elements of all parameters, and all of them as one vector of float32 in the order of GetParameterName. E-TYPE if one has
   * another type. */
  GradloomStatus* (*GetParametersSize)(GradloomSession* session, int32_t trainable_only, size_t* out);
  GradloomStatus* (*CopyParametersToBuffer)(GradloomSession* session, int32_t trainable_only, float* buffer, size_t num_elements);
  GradloomStatus* (*CopyBufferToParameters)(GradloomSession* session, int32_t trainable_only, const float* buffer, size_t num_elements);
  /* The accumulated gradient; needs GRADLOOM_WITH_GRADIENTS. */
  GradloomStatus* (*GetGradient)(GradloomSession* session, const char* parameter, void* buffer, size_t num_bytes);
  /* Where a state tensor, the gradient of a parameter, or an output of the last run lives. */
  GradloomStatus* (*GetLocation)(GradloomSession* session, GradloomTensorKind kind, const char* name, GradloomLocation* out);

  /* ---- Checkpoints, properties, export ---------------------------------------------------------------------------------------------- */
  /* Loads a file that SaveCheckpoint wrote, a safetensors file of weights, the index of several (model.safetensors.index.json; they must
   * stay unchanged), the folder of a checkpoint, or the folder of a run or of its checkpoints (the newest that can be loaded, also if the
   * run is complete; GetSkippedCheckpoints tells of the others). */
  GradloomStatus* (*LoadCheckpoint)(const char* path, GradloomCheckpoint** out);
  /* Copies the bytes of such a file. */
  GradloomStatus* (*LoadCheckpointFromBuffer)(const void* bytes, size_t num_bytes, GradloomCheckpoint** out);
  void (*ReleaseCheckpoint)(GradloomCheckpoint* checkpoint);
  /* Writes one safetensors file, complete or not at all. With the optimizer's state, a session continues from it to the same bits. Without
   * it the file has only parameters and running statistics. If several devices accumulate gradients (train.accumulate), a save with the
   * optimizer's state between two batches of an update first adds up what the devices have. The session goes on with that sum, as one does
   * that loads the file, and its later results may differ in their last bits from those without the save. A save after an update changes
   * nothing. */
  GradloomStatus* (*SaveCheckpoint)(GradloomSession* session, const char* path, int32_t include_optimizer_state);
  GradloomStatus* (*SaveCheckpointToBuffer)(GradloomSession* session, int32_t include_optimizer_state, GradloomText** out);
  /* Texts of the caller that are stored in the checkpoints of a session. `out`: null if there is none; borrowed until the property is added
   * again. */
  GradloomStatus* (*AddProperty)(GradloomSession* session, const char* name, const char* value);
  GradloomStatus* (*GetProperty)(GradloomSession* session, const char* name, const char** out);
  /* The model's own file with the trained weights, for inference. `outputs`: the outputs to keep, with what they need; none: all.
   */
  GradloomStatus* (*ExportModelForInferencing)(GradloomSession* session, const char* path, const char* const* outputs, size_t num_outputs);

  /* ---- Data ------------------------------------------------------------------------------------------------------------------------- */
  /* Reads .npz, .npy, IDX, tables (.csv, .tsv, .gz), tokens (.bin) or a folder of images into columns for the plan's inputs; docs/data.md.
   * A path with *, ?, [ or { is a pattern of files that are read one after the other. `options` may be null; so may `eval` if nothing is
   * held back. */
  GradloomStatus* (*LoadDataset)(const char* path, const GradloomPlan* plan, const GradloomDataOptions* options, GradloomDataset** train,
                                 GradloomDataset** eval);
  /* Makes a data set of tensors, which are copied; the first axis is the sample. Its batches have the samples there as well, unless their
   * options name a plan. */
  GradloomStatus* (*CreateDataset)(const char* const* names, const GradloomTensor* columns, size_t num_columns, GradloomDataset** out);
  GradloomStatus* (*GetDatasetRows)(const GradloomDataset* dataset, int64_t* out);
  void (*ReleaseDataset)(GradloomDataset* dataset);
  /* `options` may be null. */
  GradloomStatus* (*CreateBatches)(const GradloomDataset* dataset, const GradloomBatchOptions* options, GradloomBatches** out);
  /* The number of batches in the epoch. */
  GradloomStatus* (*GetBatchCount)(const GradloomBatches* batches, int64_t* out);
  /* Batch `index` by columns, ready for Step with the plan of the batches (GradloomBatchOptions). Borrowed: valid until the next GetBatch,
   * which no other thread may call meanwhile. */
  GradloomStatus* (*GetBatch)(GradloomBatches* batches, int64_t index, const char* const** names, const GradloomTensor** columns,
                              size_t* count);
  /* Does nothing in a child of the process that made them (fork) if their rows are read by threads (images), where GetBatch is refused. */
  void (*ReleaseBatches)(GradloomBatches* batches);
  /* A whole training run, which starts at the session's position: epochs over `train`, evaluation over `eval` (null: none). `callbacks` and
   * `result` may be null. A loss that is not finite is E-DIVERGED. */
  GradloomStatus* (*Fit)(GradloomSession* session, const GradloomDataset* train, const GradloomDataset* eval,
                         const GradloomFitOptions* options, const GradloomCallbacks* callbacks, GradloomFitResult* result);

  /* ---- DLPack ----------------------------------------------------------------------------------------------------------------------- */
  /* Borrows the elements and the shape of a row-major tensor in host memory (kDLCPU, kDLCUDAHost) or on a GPU (kDLCUDA). A GPU tensor is an
   * input only for sessions on that GPU, which copy it there without the host, after the work that the GPU's default stream has before the
   * call that reads it. Other sessions refuse it (E-DEVICE). */
  GradloomStatus* (*FromDLPack)(const struct DLManagedTensor* managed, GradloomTensor* out);
  /* A copy of the tensor; its `deleter` frees it. */
  GradloomStatus* (*ToDLPack)(const GradloomTensor* tensor, struct DLManagedTensor** out);

  /* ---- Parameters in other processes ------------------------------------------------------------------------------------------------ */
  /* From now on, until the session ends or gets another name (null: none), other processes of this user on this host can attach the
   * session's parameters and running statistics under `name` (letters, digits, '.', '_', '-', at most 64) and see them change as it trains.
   * For sessions of one CPU device; the outputs of the last run stay valid. E-CONFIG if the name is taken. */
  GradloomStatus* (*ShareParameters)(GradloomSession* session, const char* name);
  /* The parameters that a session of this or another process shares: not copied, and read-only. They stay valid as long as the handle, even
   * after the session has ended; the handle does not tell whether the session still trains. E-CONFIG if nobody shares under this name,
   * E-DATA if what is shared is not parameters. */
  GradloomStatus* (*AttachParameters)(const char* name, GradloomAttached** out);
  void (*ReleaseAttached)(GradloomAttached* attached);
  GradloomStatus* (*GetAttachedCount)(const GradloomAttached* attached, size_t* out);
  /* Borrowed, valid as long as the handle. `data` is null if the elements are in a kernel's layout; CopyAttached reads those. A read while
   * the session writes sees each element before or after its update, independently of the others. */
  GradloomStatus* (*GetAttached)(const GradloomAttached* attached, size_t index, const char** name, GradloomTensor* out);
  /* A copy in row-major order; `num_bytes` must be its size. */
  GradloomStatus* (*CopyAttached)(const GradloomAttached* attached, size_t index, void* buffer, size_t num_bytes);

  /* ---- Later additions --------------------------------------------------------------------------------------------------------------- */
  /* A property of a checkpoint that is not yet in a session; null if there is none. */
  GradloomStatus* (*GetCheckpointProperty)(const GradloomCheckpoint* checkpoint, const char* name, const char** out);
  /* A copy of a state tensor, an accumulated gradient or an output of the last run, on the device where it lies (kDLCPU, kDLCUDA). It is
   * complete when the call returns. Its `deleter` frees it, even after the session has ended. From a GPU nothing goes through host memory:
   * E-DEVICE if several devices have parts of it, and E-UNSUPPORTED if its elements are in a kernel's layout, if data decides how many
   * there are, and for gradients of a scaled loss. GetParameter, GetGradient and GetOutput bring those to the host. */
  GradloomStatus* (*CopyToDLPack)(GradloomSession* session, GradloomTensorKind kind, const char* name, struct DLManagedTensor** out);
  /* Sets the devices that Compile uses in this process from now on if its options name none ("cuda:0", "cpu:4"); "": the configuration's
   * default again. GetDefaultDevices returns them; "" if none are set. */
  GradloomStatus* (*SetDefaultDevices)(const char* devices);
  GradloomStatus* (*GetDefaultDevices)(GradloomText** out);
  /* The devices of this machine: device 0 is the CPU, and the GPUs follow. */
  GradloomStatus* (*GetDeviceCount)(size_t* out);
  GradloomStatus* (*GetDeviceInfo)(size_t index, GradloomDeviceInfo* out);
  /* Where the NaN or infinity of the last step's loss came from or, if the loss is finite, that of a parameter, optimizer state or
   * accumulated gradient: "Log '/log' in the forward pass of step 3: 'y' float32[4] has 1 infinity of 4 elements, the first at [2]; of its
   * inputs, 'x' is from 0 to 1". "" if all are finite, or if it was made when nobody looked. E-CONFIG for a session without check_numerics.
   */
  GradloomStatus* (*GetNonFiniteOrigin)(GradloomSession* session, GradloomText** out);
  /* What LoadCheckpoint of a folder of checkpoints skipped because it could not be loaded, newer than the checkpoint or of unknown age: a
   * line for each, "FOLDER: reason". "" if there was nothing to skip. */
  GradloomStatus* (*GetSkippedCheckpoints)(const GradloomCheckpoint* checkpoint, GradloomText** out);
  /* For other threads while Fit runs on the session: ends the run as a callback would, and also between two batches of an evaluation, which
   * then has no result. If that follows an epoch, on_epoch is called for it. Returns at once. Does nothing if no Fit runs. */
  GradloomStatus* (*StopFit)(GradloomSession* session);
  /* Replaces the accumulated gradient of a parameter by a copy, in the type and shape of the parameter: clipped, summed over machines,
   * computed by other means. The next OptimizerStep updates with it, even if no TrainStep came before; gradients that were neither set nor
   * accumulated are zero. Needs GRADLOOM_WITH_GRADIENTS. Not for callbacks of Fit. */
  GradloomStatus* (*SetGradient)(GradloomSession* session, const char* parameter, const GradloomTensor* value);
  /* What reading the data set guessed and warned of, one per line, as `gradloom train` prints it: the columns that were chosen, the names
   * of classes, NaN, arrays whose rows stay in their file. Those of LoadDataset's evaluation data are the same. "" if there is nothing. */
  GradloomStatus* (*GetDatasetNotes)(const GradloomDataset* dataset, GradloomText** out);
} GradloomApi;

#if defined(_WIN32) || !defined(__GNUC__)
#define GRADLOOM_EXPORT
#else
#define GRADLOOM_EXPORT __attribute__((visibility("default")))
#endif

/* The table of this version; null if the library does not have it. The table is constant and valid as long as the library is loaded. */
GRADLOOM_EXPORT const GradloomApi* GradloomGetApi(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif /* GRADLOOM_GRADLOOM_C_H_ */
