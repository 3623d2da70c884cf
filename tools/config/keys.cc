#include "tools/config/keys.h"

#include <algorithm>

#include "runtime/base/nearest.h"

namespace gradloom {
namespace {

using enum KeyType;

constexpr uint8_t kAll = kUseRecipe | kUseRun;
constexpr uint8_t kEverywhere = kAll | kUseEval;

constexpr Key kKeys[] = {
    {"model.path", "--model", kPath, kAll, "", "the ONNX file", "", {}, "model onnx"},
    {"model.plan", "--plan", kPath, kUseRun, "",
     "train with this plan from `gradloom compile`, which contains the model, instead of compiling"},
    {"model.shape",
     "--shape",
     kNamedCounts,
     kEverywhere,
     "",
     "NAME=N: extent of a symbolic dimension; INPUT[AXIS]=N: this extent in the file is not a batch",
     "",
     {},
     "shapes dims"},
    {"model.freeze", "--freeze", kTexts, kAll, "", "patterns of initializers that are not trained", "", {}, "frozen"},
    {"model.trainable", "--trainable", kTexts, kAll, "", "patterns of initializers to train, overriding the analysis and --freeze"},
    {"model.mode", "--mode", kText, kAll, "train", "train restores batch statistics and dropout; graph trains the file as it is written",
     "train|graph"},
    {"model.outputs", "--outputs", kTexts, kAll, "", "outputs of the model to compute, with what they need; default: all"},
    {"model.loop_bound", "--loop-bound", kInteger, kAll, "256",
     "most iterations in training of a loop that does not give their number; more are an error", "", 1},
    {"model.detach",
     "--detach",
     kTexts,
     kAll,
     "",
     "VALUE or VALUE@NODE (only as that node reads it): stop gradients there, if the file does not say that the module detached the value; "
     "patterns",
     "",
     {},
     "stop_gradient"},
    {"model.no_detach", "--no-detach", kSwitch, kAll, "false", "let gradients pass values that the file says are detached"},
    {"model.external_dir", "--external-dir", kPath, kAll, "", "folder of the model's external data; default: the model's folder"},
    {"model.allow_hardlinks", "--allow-hardlinks", kSwitch, kAll, "false", "read external data also from files with a second hard link"},
    {"model.limit", "--limit", kNamedCounts, kAll, "",
     "NAME=N: a limit on what a model may ask for: nodes, node_inputs, name_bytes, attribute_elements, fold_bytes, fold_total_bytes, "
     "value_bytes, external_files"},
    {"model.init_weights",
     "--init-weights",
     kPath,
     kUseRun,
     "",
     "start from the weights of a safetensors file or of a checkpoint's folder",
     "",
     {},
     "weights pretrained"},

    {"data.train",
     "--data",
     kPath,
     kUseData,
     "",
     "training data: a table (.csv, .tsv, .gz), .npz, .npy, IDX files, tokens (.bin), a folder of images, files by a pattern "
     "('train/*.csv'), or random:N",
     "",
     {},
     "train_data dataset path"},
    {"data.eval", "--eval-data", kPath, kUseData, "", "evaluation data, in the same formats", "", {}, "val validation test val_data"},
    {"data.format",
     "--data-format",
     kText,
     kUseData | kUseEval,
     "auto",
     "format of the data; auto: by their names",
     "auto|csv|tsv|npz|npy|idx|tokens|images",
     {},
     "type data_type"},
    {"data.eval_split",
     "--eval-split",
     kText,
     kUseData,
     "",
     "hold back a share for evaluation: 20%, or tail:20% for the last rows unshuffled",
     "",
     {},
     "split validation_split val_split"},
    {"data.batch", "--batch", kInteger, kEverywhere, "0", "global batch size; 0: the model's, or 32", "", 0, "batch_size bs"},
    {"data.micro_batch", "--micro-batch", kInteger, kAll, "0",
     "samples that a device processes at once; gradients are accumulated until --batch is done; 0: a device's whole share of the batch", "",
     0, "microbatch micro_batch_size per_device_batch_size"},
    {"data.map",
     "--map",
     kNamed,
     kUseData | kUseEval,
     "",
     "INPUT=COLUMNS: which columns (p0..p63, label, 0..12, -1) or array feed a model input or target",
     "",
     {},
     "columns"},
    {"data.transform",
     "--transform",
     kNamedLists,
     kUseData,
     "",
     "INPUT='scale 1/255' | 'normalize MEAN STD' | standardize (measured on the training part); for images also resize, resize_crop, "
     "'random_crop PAD', random_flip",
     "",
     {},
     "transforms augment"},

    {"loss.name",
     "--loss",
     kTerms,
     kEverywhere,
     "",
     "cross_entropy(OUTPUT, TARGET), mse, bce_with_logits ..., or an ONNX file (my_loss.onnx); several are summed",
     "",
     {},
     "criterion losses"},
    {"loss.onnx", "--loss-onnx", kPath, kEverywhere, "", "an ONNX file as loss, alone or added to those of loss.name"},

    {"optimizer.name",
     "--optimizer",
     kText,
     kAll,
     "adam",
     "the update rule",
     "sgd|momentum|nesterov|adam|adamw|rmsprop|adagrad|adadelta|adamax|lamb",
     {},
     "type optim"},
    {"optimizer.lr", "--lr", kNumber, kAll, "0.001", "learning rate", "", 0, "learning_rate eta lr0"},
    {"optimizer.momentum", "--momentum", kNumber, kAll, "", "momentum; default: 0.9 for momentum and nesterov, none for sgd and rmsprop",
     "", 0},
    {"optimizer.weight_decay", "--weight-decay", kNumber, kAll, "0", "weight decay, as L2 in the gradient; decoupled for adamw and lamb",
     "", 0, "wd decay l2"},
    {"optimizer.beta1", "--beta1", kNumber, kAll, "0.9", "for adam, adamw, adamax and lamb", "", 0, "betas"},
    {"optimizer.beta2", "--beta2", kNumber, kAll, "0.999", "for adam, adamw, adamax and lamb", "", 0},
    {"optimizer.eps", "--eps", kNumber, kAll, "", "epsilon added to a divisor; default: the optimizer's own", "", 0, "epsilon"},
    {"optimizer.clip_norm", "--clip-norm", kNumber, kAll, "0", "bound on the global norm of the gradients; 0: none", "", 0,
     "clip grad_clip max_grad_norm"},

    {"schedule.name",
     "--schedule",
     kText,
     kAll,
     "constant",
     "schedule of the learning rate",
     "constant|linear|cosine|step|one_cycle",
     {},
     "lr_schedule scheduler"},
    {"schedule.warmup",
     "--warmup",
     kText,
     kAll,
     "",
     "length of a linear warm-up, in steps (500) or as a share of the run (5%)",
     "",
     {},
     "warmup_steps"},
    {"schedule.min_lr", "--min-lr", kNumber, kAll, "", "final learning rate of cosine; default: 0", "", 0, "lr_min eta_min"},
    {"schedule.gamma", "--gamma", kNumber, kAll, "", "factor of the schedule step; default: 0.1", "", 0},
    {"schedule.step_size", "--step-size", kInteger, kAll, "",
     "updates between reductions of the schedule step; default: a third of the run", "", 1},

    {"schedule.plateau_patience", "--plateau-patience", kInteger, kUseRun, "",
     "reduce the learning rate after more than this many evaluations without progress of the value of --best", "", 0,
     "reduce_on_plateau reduce_lr_on_plateau"},
    {"schedule.plateau_factor", "--plateau-factor", kNumber, kUseRun, "0.1", "factor of a reduction on a plateau", "", 0},
    {"schedule.plateau_threshold", "--plateau-threshold", kNumber, kUseRun, "0.0001",
     "least progress that counts, as a share of the best value", "", 0, "min_delta"},
    {"schedule.plateau_cooldown", "--plateau-cooldown", kInteger, kUseRun, "0", "evaluations after a reduction that do not count", "", 0,
     "cooldown"},
    {"schedule.plateau_min_lr", "--plateau-min-lr", kNumber, kUseRun, "0", "least learning rate of a reduction on a plateau", "", 0},

    {"train.epochs", "--epochs", kInteger, kUseRun, "10", "passes over the data", "", 1, "epoch num_epochs max_epochs", 1e9},
    {"train.steps", "--steps", kInteger, kUseRun | kUsePlan, "0", "total number of updates; 0: as many as the epochs have", "", 0,
     "max_steps iterations", 1e12},
    {"train.early_stop", "--early-stop", kInteger, kUseRun, "0", "stop after this many evaluations in a row without improvement; 0: never",
     "", 0, "patience early_stopping"},
    {"train.accumulate", "--accumulate", kInteger, kAll, "1", "batches per update", "", 1, "grad_accum gradient_accumulation_steps", 1e6},
    {"train.precision",
     "--precision",
     kText,
     kAll,
     "fp32",
     "precision of products and of values between them; bf16 and fp16 keep parameters, states and loss in float32; tf32 is for GPUs",
     "fp32|tf32|bf16|fp16",
     {},
     "dtype amp mixed_precision fp16 bf16"},
    {"train.loss_scale",
     "--loss-scale",
     kText,
     kAll,
     "",
     "loss scale: dynamic, off, or a number; default: dynamic for fp16, otherwise off",
     "",
     {},
     "grad_scaler"},
    {"train.deterministic",
     "--deterministic",
     kSwitch,
     kUseRun,
     "false",
     "refuse options that are not reproducible (hogwild, autotune, any order of sums, settings of GPU libraries in the "
     "environment); all others are always deterministic",
     "",
     {},
     "use_deterministic_algorithms cudnn_deterministic"},
    {"train.chaos", "--chaos", kInteger, kUseRun, "", "delay every instruction at random, with this seed; no bit of the result may change",
     "", 0},
    {"train.seed", "--seed", kInteger, kUseRun, "1234", "seed of shuffling, splits and dropout", "", {}, "random_seed"},
    {"train.collective_timeout",
     "--collective-timeout",
     kText,
     kUseRun | kUseJob,
     "60s",
     "how long the processes of a job wait for one of them before they end: 60s, 10min",
     "",
     {},
     "nccl_timeout ddp_timeout"},
    {"train.connect_timeout",
     "--connect-timeout",
     kText,
     kUseRun | kUseJob,
     "5min",
     "how long the processes of a job may take to connect",
     "",
     {},
     "rdzv_timeout join_timeout"},
    {"train.transport",
     "--transport",
     kText,
     kUseRun | kUseJob,
     "auto",
     "how the processes of a job communicate: auto (shared memory within a host, otherwise TCP), TCP only, or MPI",
     "auto|tcp|mpi",
     {},
     "backend dist_backend"},
    {"train.sync",
     "--sync",
     kText,
     kUseRun,
     "allreduce",
     "how the processes of a job train one model: with summed gradients, or without locks on one set of parameters in shared memory",
     "allreduce|hogwild",
     {},
     "async asynchronous hogwild lock_free"},
    {"train.on_nan",
     "--on-nan",
     kText,
     kUseRun,
     "stop",
     "what to do if a loss is NaN or infinite: end the run, or skip the batch (which costs a copy of all state per step)",
     "stop|skip",
     {},
     "nan"},
    {"train.dry_run", "--dry-run", kSwitch, kUseRun, "false", "compile and print the header, but do not train"},

    {"eval.metric",
     "--metric",
     kTexts,
     kUseRun | kUseEval,
     "",
     "metrics on the evaluation data: accuracy, top5, f1, auroc, perplexity, mse, rmse, mae",
     "",
     {},
     "metrics"},
    {"eval.every",
     "--eval-every",
     kText,
     kUseRun,
     "1ep",
     "evaluate after each epoch (1ep), every 500 updates (500), or never",
     "",
     {},
     "eval_interval"},
    {"eval.best",
     "--best",
     kText,
     kUseRun,
     "",
     "value that selects the best model: eval/accuracy:max; default: the first metric, or eval/loss:min; also checkpoint.best",
     "",
     {},
     "monitor"},

    {"checkpoint.every",
     "--save-every",
     kText,
     kUseRun,
     "1ep",
     "save after each epoch (1ep), every 500 updates (500), every 10min, or never except at the end",
     "",
     {},
     "save_every save_interval"},
    {"checkpoint.keep", "--keep", kInteger, kUseRun, "3", "how many checkpoints to keep besides the best", "", 1,
     "save_total_limit max_to_keep"},
    {"checkpoint.on_error", "--on-save-error", kText, kUseRun, "stop", "what to do if a checkpoint cannot be written", "stop|continue"},

    {"devices.use",
     "--devices",
     kText,
     kEverywhere,
     "cpu",
     "cpu; cpu:4 for four devices that share each batch and the cores; cuda; cuda:all; cuda:0,2; cuda:1,else=cpu; or auto",
     "",
     {},
     "device gpu"},
    {"devices.target",
     "--target",
     kText,
     kAll,
     "",
     "sm_90: compile for such GPUs, whatever GPUs this machine has",
     "",
     {},
     "arch compute_capability"},
    {"devices.cuda_graph", "--cuda-graph", kText, kEverywhere, "on", "capture a step on GPUs and launch it as one graph", "on|off"},
    {"devices.pin_memory", "--pin-memory", kText, kEverywhere, "on", "copy inputs of GPUs through pinned host memory", "on|off"},
    {"devices.autotune",
     "--autotune",
     kText,
     kEverywhere,
     "off",
     "measure the algorithms of a GPU's libraries when they are first needed, and keep the choice",
     "on|off",
     {},
     "benchmark max_autotune"},
    {"devices.sum_order", "--sum-order", kText, kEverywhere, "fixed",
     "any: GPUs may sum gradients of convolutions and attention in an order that differs from run to run, which can be faster",
     "fixed|any"},
    {"devices.place",
     "--place",
     kTexts,
     kEverywhere,
     "",
     "PATTERN=cpu:1: put nodes and weights of these names on that device of each copy of the model; auto: cut the model to fit "
     "--memory-limit; file: use the model's own annotations, which is the default if it has any",
     "",
     {},
     "device_map pipeline"},
    {"devices.gather_to",
     "--gather-to",
     kText,
     kEverywhere,
     "",
     "cpu:0: this device gathers the outputs of all devices and computes the loss and the nodes that --place puts there; none: refuse "
     "a model that relates samples, for which the first device would gather them",
     "",
     {},
     "output_device"},
    {"devices.sync_bn",
     "--sync-bn",
     kSwitch,
     kEverywhere,
     "false",
     "batch normalization over the whole batch, not over each device's samples",
     "",
     {},
     "sync_batchnorm"},
    {"devices.memory_limit",
     "--memory-limit",
     kText,
     kAll,
     "",
     "memory per device, for example 6GiB; a plan that needs more recomputes activations, or is refused before the first step",
     "",
     {},
     "max_memory"},
    {"devices.recompute",
     "--recompute",
     kText,
     kAll,
     "auto",
     "recompute activations in the backward pass to save memory: to fit --memory-limit, never, or as many as help",
     "auto|none|full",
     {},
     "gradient_checkpointing activation_checkpointing remat"},
    {"devices.topology",
     "--topology",
     kPath,
     kAll,
     "",
     "a TOML file that describes the cluster for which to plan: decides sizes of all-reduces and predicted times",
     "",
     {},
     "cluster"},
    {"devices.threads", "--threads", kInteger, kEverywhere, "0", "threads of an operator; 0: all cores that this process may use", "", 0,
     "num_threads workers", 1024},
    {"devices.streams", "--streams", kInteger, kEverywhere, "0",
     "streams of a device, which run independent chains concurrently and share its threads; 0: the cost model decides", "", 0, "", 16},

    {"run.name", "--name", kText, kUseRun, "", "name of the run's folder; default: exp1, exp2 ..."},
    {"run.resume", "--resume", kText, kUseRun, "never",
     "auto: resume the run of this --name if there is one; or the folder of a run or of one of its checkpoints"},
    {"run.out", "--out", kPath, kUseRun, "runs", "folder of all runs", "", {}, "output output_dir runs"},

    {"log.every", "--log-every", kInteger, kUseRun, "50", "steps between lines if there is no progress bar", "", 1, "log_interval"},
    {"log.tensorboard",
     "--tensorboard",
     kSwitch,
     kUseRun,
     "true",
     "write TensorBoard's event file into the run's folder (--no-tensorboard: do not)",
     "",
     {},
     "tb"},
    {"log.progress", "--progress", kText, kUseRun, "auto", "form of the progress on stderr", "auto|bar|plain|json|none"},
    {"log.trace", "--trace", kText, kUseRun, "", "write a Perfetto trace of some steps to this file (open it at ui.perfetto.dev)"},
    {"log.trace_format", "--trace-format", kText, kUseRun, "perfetto", "format of the trace: Perfetto's own, or JSON for chrome://tracing",
     "perfetto|chrome-json"},
    {"log.profile", "--profile", kText, kUseRun, "",
     "write the time of every launch to this file, for: gradloom simulate RUN --profile FILE"},
    {"log.trace_steps", "--trace-steps", kText, kUseRun, "3:5", "the steps to trace, counted from 1: 3:5, or a single step"},
    {"log.format", "--log-format", kText, kUseRun, "text", "format of the lines on stderr: text, or a JSON object each", "text|json"},
    {"log.file", "--log-file", kPath, kUseRun, "", "also append the lines of stderr to this file"},
    {"log.metrics_port", "--metrics-port", kInteger, kUseRun, "", "serve metrics to Prometheus on this port; 0: a free port", "", 0},
    {"log.metrics_address", "--metrics-address", kText, kUseRun, "127.0.0.1", "address of this host to serve metrics on; 0.0.0.0: all"},
    {"log.report", "--report", kText, kUseRun, "", "json: one line on stdout at the end", "json"},
    {"log.report_every", "--report-every", kInteger, kUseRun, "0",
     "with --report json, also a line on stdout every this many updates; 0: none", "", 0},

    {"job.rank", "--rank", kInteger, kUseJob, "",
     "rank of this process in the job, from 0; each of these keys overrides what launchers say (torchrun, srun, mpirun ...)", "", 0,
     "global_rank"},
    {"job.world_size", "--world-size", kInteger, kUseJob, "", "number of processes in the job; 1: this process trains alone", "", 1,
     "world num_processes"},
    {"job.local_rank", "--local-rank", kInteger, kUseJob, "", "rank of this process on its host", "", 0},
    {"job.local_world_size", "--local-world-size", kInteger, kUseJob, "", "number of the job's processes on this host", "", 1},
    {"job.node_rank", "--node-rank", kInteger, kUseJob, "", "number of this host in the job", "", 0, "node_id"},
    {"job.nnodes", "--nnodes", kInteger, kUseJob, "", "number of hosts in the job", "", 1, "nodes num_nodes"},
    {"job.master_addr", "--master-addr", kText, kUseJob, "", "host of rank 0, where the processes meet", "", {}, "master_address"},
    {"job.master_port", "--master-port", kInteger, kUseJob, "", "port on that host; default: 29500", "", 1},

    {"compiler.disable_pass", "--disable-pass", kTexts, kAll, "", "leave out an optional compiler pass"},
    {"compiler.dump_after", "--dump-after", kText, kAll, "", "print the graph after a compiler pass, or after 'all'"},
    {"compiler.stop_after", "--stop-after", kText, kAll, "", "run no compiler pass after this one"},
    {"compiler.time_passes", "--time-passes", kSwitch, kAll, "false", "print the time of each compiler pass"},
};

std::vector<std::string> Pieces(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) pieces.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pieces;
}

// Folds learning-rate, Learning_Rate and learning_rate, which users mix up.
std::string Folded(std::string_view text) {
  std::string folded;
  for (const char c : text) folded += c == '-' ? '_' : static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return folded;
}

// The key with `word` as its short name or alias; keys of this section are preferred.
const Key* FindWord(std::string_view word, std::string_view section) {
  const Key* found = nullptr;
  for (const Key& key : kKeys) {
    const std::vector<std::string> aliases = Pieces(key.aliases, ' ');
    if (key.short_name() != word && std::find(aliases.begin(), aliases.end(), word) == aliases.end()) continue;
    if (key.section() == section) return &key;
    if (found == nullptr) found = &key;
  }
  return found;
}

}  // namespace

std::string_view Key::section() const { return std::string_view(name).substr(0, std::string_view(name).find('.')); }
std::string_view Key::short_name() const { return std::string_view(name).substr(std::string_view(name).find('.') + 1); }

std::span<const Key> Keys() { return kKeys; }

const Key* FindKey(std::string_view name) {
  // A second name, next to the other keys of checkpoints.
  if (name == "checkpoint.best") name = "eval.best";
  const auto found = std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& key) { return name == key.name; });
  return found == std::end(kKeys) ? nullptr : found;
}

const Key* FindFlag(std::string_view flag) {
  const auto found = std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& key) { return flag == key.flag; });
  return found == std::end(kKeys) ? nullptr : found;
}

std::vector<std::string> WordsOf(const Key& key) { return Pieces(key.words, '|'); }

std::string NearKey(std::string_view name) {
  const size_t dot = name.find('.');
  const std::string section = Folded(name.substr(0, dot == std::string_view::npos ? 0 : dot));
  const std::string word = Folded(name.substr(dot == std::string_view::npos ? 0 : dot + 1));
  if (const Key* key = FindWord(word, section)) return key->name;
  std::vector<std::string> names;
  for (const Key& key : kKeys) names.emplace_back(dot == std::string_view::npos ? key.section() : key.name);
  return Nearest(Folded(name), names);
}

std::string NearFlag(std::string_view flag, const std::vector<std::string>& flags) {
  const size_t first = std::min(flag.find_first_not_of('-'), flag.size());
  const Key* key = FindWord(Folded(flag.substr(first)), "");
  if (key != nullptr && std::find(flags.begin(), flags.end(), key->flag) != flags.end()) return key->flag;
  return Nearest(flag, flags);
}

}  // namespace gradloom
