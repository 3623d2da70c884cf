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
     "train by this plan of the verb compile, which has the model in it, in place of compiling one"},
    {"model.shape",
     "--shape",
     kNamedCounts,
     kEverywhere,
     "",
     "NAME=N: extent of a symbolic dimension; INPUT[AXIS]=N: this number of the file is no batch",
     "",
     {},
     "shapes dims"},
    {"model.freeze", "--freeze", kTexts, kAll, "", "patterns of initializers that are not trained", "", {}, "frozen"},
    {"model.trainable", "--trainable", kTexts, kAll, "", "patterns of initializers to train against the analysis and --freeze"},
    {"model.mode", "--mode", kText, kAll, "train", "train restores batch statistics and dropout; graph trains the file as it is written",
     "train|graph"},
    {"model.outputs", "--outputs", kTexts, kAll, "", "outputs of the model that are computed, and so what they need; default: all"},
    {"model.loop_bound", "--loop-bound", kInteger, kAll, "256",
     "rounds of a loop without a number that are kept for its gradient; more are an error of the step", "", 1},
    {"model.detach",
     "--detach",
     kTexts,
     kAll,
     "",
     "VALUE gets no gradient, or VALUE@NODE as that node reads it, where the file does not say that the module detached it; patterns",
     "",
     {},
     "stop_gradient"},
    {"model.no_detach", "--no-detach", kSwitch, kAll, "false", "gradients through values that the file says are detached, too"},
    {"model.external_dir", "--external-dir", kPath, kAll, "",
     "where the tensors lie that the model keeps in other files; default: beside it"},
    {"model.allow_hardlinks", "--allow-hardlinks", kSwitch, kAll, "false",
     "read such files also where they have another name (a hard link)"},
    {"model.limit", "--limit", kNamedCounts, kAll, "",
     "NAME=N: what a model may ask for: nodes, node_inputs, name_bytes, attribute_elements, fold_bytes, "
     "fold_total_bytes, value_bytes, external_files"},
    {"model.init_weights",
     "--init-weights",
     kPath,
     kUseRun,
     "",
     "start from the weights of a safetensors file, or of a checkpoint's folder",
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
    {"data.eval", "--eval-data", kPath, kUseData, "", "evaluation data of the same form", "", {}, "val validation test val_data"},
    {"data.format",
     "--data-format",
     kText,
     kUseData | kUseEval,
     "auto",
     "what data are; auto: what their names say",
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
     "samples that a device has under way at once: --batch is made of so many, accumulated; 0: a device's whole share", "", 0,
     "microbatch micro_batch_size per_device_batch_size"},
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
     "INPUT='scale 1/255' | 'normalize MEAN STD' | standardize (measured on the training part); of images also resize, "
     "resize_crop, 'random_crop PAD', random_flip",
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
    {"loss.onnx", "--loss-onnx", kPath, kEverywhere, "", "one ONNX file as loss, by itself or added to those of loss.name"},

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
    {"optimizer.momentum", "--momentum", kNumber, kAll, "", "default: 0.9 of momentum and nesterov, none of sgd and rmsprop", "", 0},
    {"optimizer.weight_decay", "--weight-decay", kNumber, kAll, "0", "L2 in the gradient; decoupled for adamw and lamb", "", 0,
     "wd decay l2"},
    {"optimizer.beta1", "--beta1", kNumber, kAll, "0.9", "of adam, adamw, adamax and lamb", "", 0, "betas"},
    {"optimizer.beta2", "--beta2", kNumber, kAll, "0.999", "of adam, adamw, adamax and lamb", "", 0},
    {"optimizer.eps", "--eps", kNumber, kAll, "", "added to a divisor; default: the optimizer's own", "", 0, "epsilon"},
    {"optimizer.clip_norm", "--clip-norm", kNumber, kAll, "0", "bound on the global norm of the gradients; 0: none", "", 0,
     "clip grad_clip max_grad_norm"},

    {"schedule.name",
     "--schedule",
     kText,
     kAll,
     "constant",
     "of the learning rate",
     "constant|linear|cosine|step|one_cycle",
     {},
     "lr_schedule scheduler"},
    {"schedule.warmup", "--warmup", kText, kAll, "", "steps (500) or share (5%) of linear warm-up", "", {}, "warmup_steps"},
    {"schedule.min_lr", "--min-lr", kNumber, kAll, "", "where cosine ends; default: 0", "", 0, "lr_min eta_min"},
    {"schedule.gamma", "--gamma", kNumber, kAll, "", "factor of step; default: 0.1", "", 0},
    {"schedule.step_size", "--step-size", kInteger, kAll, "", "updates between the factors of step; default: a third of the run", "", 1},

    {"schedule.plateau_patience", "--plateau-patience", kInteger, kUseRun, "",
     "reduce the learning rate after more than so many evaluations without progress of what --best names", "", 0,
     "reduce_on_plateau reduce_lr_on_plateau"},
    {"schedule.plateau_factor", "--plateau-factor", kNumber, kUseRun, "0.1", "what the learning rate is then multiplied with", "", 0},
    {"schedule.plateau_threshold", "--plateau-threshold", kNumber, kUseRun, "0.0001",
     "what counts as progress, as a share of the best value", "", 0, "min_delta"},
    {"schedule.plateau_cooldown", "--plateau-cooldown", kInteger, kUseRun, "0", "evaluations after a reduction that are not counted", "", 0,
     "cooldown"},
    {"schedule.plateau_min_lr", "--plateau-min-lr", kNumber, kUseRun, "0", "the learning rate is not reduced below it", "", 0},

    {"train.epochs", "--epochs", kInteger, kUseRun, "10", "passes over the data", "", 1, "epoch num_epochs max_epochs", 1e9},
    {"train.steps", "--steps", kInteger, kUseRun | kUsePlan, "0", "updates in all; 0: as many as the epochs have", "", 0,
     "max_steps iterations", 1e12},
    {"train.early_stop", "--early-stop", kInteger, kUseRun, "0", "stop after so many evaluations that were not better; 0: never", "", 0,
     "patience early_stopping"},
    {"train.accumulate", "--accumulate", kInteger, kAll, "1", "batches per update", "", 1, "grad_accum gradient_accumulation_steps", 1e6},
    {"train.precision",
     "--precision",
     kText,
     kAll,
     "fp32",
     "of products and what lies between them: bf16 and fp16 keep parameters, states and loss in float32; tf32 is for GPUs",
     "fp32|tf32|bf16|fp16",
     {},
     "dtype amp mixed_precision fp16 bf16"},
    {"train.loss_scale",
     "--loss-scale",
     kText,
     kAll,
     "",
     "dynamic, off, or a number; default: dynamic for fp16, else off",
     "",
     {},
     "grad_scaler"},
    {"train.deterministic",
     "--deterministic",
     kSwitch,
     kUseRun,
     "false",
     "refuse what may give other bits the next time (hogwild, autotune, settings of GPU libraries in the environment); all else always "
     "gives the same",
     "",
     {},
     "use_deterministic_algorithms cudnn_deterministic"},
    {"train.chaos", "--chaos", kInteger, kUseRun, "", "delay every instruction at random, by this seed: no bit of the result may change",
     "", 0},
    {"train.seed", "--seed", kInteger, kUseRun, "1234", "of shuffling, splits and dropout", "", {}, "random_seed"},
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
     "how long the processes of a job may take to come",
     "",
     {},
     "rdzv_timeout join_timeout"},
    {"train.transport",
     "--transport",
     kText,
     kUseRun | kUseJob,
     "auto",
     "how the processes of a job reach each other: through shared memory within a host and over TCP, over TCP alone, or by MPI",
     "auto|tcp|mpi",
     {},
     "backend dist_backend"},
    {"train.sync",
     "--sync",
     kText,
     kUseRun,
     "allreduce",
     "how the processes of a job train one model: with the sum of their gradients, or without locks in one set of parameters in shared "
     "memory",
     "allreduce|hogwild",
     {},
     "async asynchronous hogwild lock_free"},
    {"train.on_nan",
     "--on-nan",
     kText,
     kUseRun,
     "stop",
     "what a loss that is NaN or infinite does: end the run, or leave the batch out (which costs a copy of all state a step)",
     "stop|skip",
     {},
     "nan"},
    {"train.dry_run", "--dry-run", kSwitch, kUseRun, "false", "compile and print the header, train nothing"},

    {"eval.metric",
     "--metric",
     kTexts,
     kUseRun | kUseEval,
     "",
     "measured on the evaluation data: accuracy, top5, f1, auroc, perplexity, mse, rmse, mae",
     "",
     {},
     "metrics"},
    {"eval.every",
     "--eval-every",
     kText,
     kUseRun,
     "1ep",
     "evaluate after each epoch (1ep), each 500 updates (500), or never",
     "",
     {},
     "eval_interval"},
    {"eval.best",
     "--best",
     kText,
     kUseRun,
     "",
     "what tells the best model: eval/accuracy:max; default: the first metric, or eval/loss:min; also checkpoint.best",
     "",
     {},
     "monitor"},

    {"checkpoint.every",
     "--save-every",
     kText,
     kUseRun,
     "1ep",
     "save after each epoch (1ep), each 500 updates (500), each 10min, or never but at the end",
     "",
     {},
     "save_every save_interval"},
    {"checkpoint.keep", "--keep", kInteger, kUseRun, "3", "how many checkpoints stay, besides the best", "", 1,
     "save_total_limit max_to_keep"},
    {"checkpoint.on_error", "--on-save-error", kText, kUseRun, "stop", "what a checkpoint that cannot be written does", "stop|continue"},

    {"devices.use",
     "--devices",
     kText,
     kEverywhere,
     "cpu",
     "cpu, cpu:4 for four devices that share each batch and the cores, cuda, cuda:all, cuda:0,2, cuda:1,else=cpu, or auto",
     "",
     {},
     "device gpu"},
    {"devices.target",
     "--target",
     kText,
     kAll,
     "",
     "sm_90: compile for such GPUs, whatever this machine has",
     "",
     {},
     "arch compute_capability"},
    {"devices.cuda_graph", "--cuda-graph", kText, kEverywhere, "on", "a step on GPUs is captured and launched as one piece of work",
     "on|off"},
    {"devices.pin_memory", "--pin-memory", kText, kEverywhere, "on", "inputs of GPUs pass through pinned host memory", "on|off"},
    {"devices.autotune",
     "--autotune",
     kText,
     kEverywhere,
     "off",
     "the algorithms of a GPU's libraries are measured when they are first needed, and kept",
     "on|off",
     {},
     "benchmark max_autotune"},
    {"devices.place",
     "--place",
     kTexts,
     kEverywhere,
     "",
     "PATTERN=cpu:1 puts nodes and weights of these names on a device of their own, further devices hold copies of the model; auto: as "
     "--memory-limit asks for; file: as the model's own annotations say, which holds where nothing else is said",
     "",
     {},
     "device_map pipeline"},
    {"devices.gather_to",
     "--gather-to",
     kText,
     kEverywhere,
     "",
     "cpu:0: this device gathers what all have made of their samples, and has the loss and the nodes that --place puts there",
     "",
     {},
     "output_device"},
    {"devices.sync_bn",
     "--sync-bn",
     kSwitch,
     kEverywhere,
     "false",
     "batch normalisation over the whole batch, not over each device's samples",
     "",
     {},
     "sync_batchnorm"},
    {"devices.memory_limit",
     "--memory-limit",
     kText,
     kAll,
     "",
     "refuse before the first step a plan that needs more, for example 6GiB",
     "",
     {},
     "max_memory"},
    {"devices.recompute",
     "--recompute",
     kText,
     kAll,
     "auto",
     "activations that are made again in the backward pass, to save memory: as --memory-limit asks for, none, or as many as help",
     "auto|none|full",
     {},
     "gradient_checkpointing activation_checkpointing remat"},
    {"devices.topology",
     "--topology",
     kPath,
     kAll,
     "",
     "a TOML file that describes the cluster which the plan is for: sizes of all-reduces and predicted times go by it",
     "",
     {},
     "cluster"},
    {"devices.threads", "--threads", kInteger, kEverywhere, "0", "threads of an operator; 0: all cores this process may use", "", 0,
     "num_threads workers", 1024},
    {"devices.streams", "--streams", kInteger, kEverywhere, "0",
     "streams of a device, which run independent chains at the same time and share its threads; 0: as the cost model says", "", 0, "", 16},

    {"run.name", "--name", kText, kUseRun, "", "of the run's folder; default: exp1, exp2 ..."},
    {"run.resume", "--resume", kText, kUseRun, "never",
     "auto: go on with the run of this --name if there is one; or the folder of a run or of one of its checkpoints"},
    {"run.out", "--out", kPath, kUseRun, "runs", "where runs go", "", {}, "output output_dir runs"},

    {"log.every", "--log-every", kInteger, kUseRun, "50", "steps between lines where there is no bar", "", 1, "log_interval"},
    {"log.tensorboard",
     "--tensorboard",
     kSwitch,
     kUseRun,
     "true",
     "write TensorBoard's event file into the run (--no-tensorboard: do not)",
     "",
     {},
     "tb"},
    {"log.progress", "--progress", kText, kUseRun, "auto", "how far the run is, on stderr", "auto|bar|plain|json|none"},
    {"log.trace", "--trace", kText, kUseRun, "", "write a Perfetto trace of some steps to this file (open it at ui.perfetto.dev)"},
    {"log.trace_format", "--trace-format", kText, kUseRun, "perfetto", "what the trace is: Perfetto's own, or JSON for chrome://tracing",
     "perfetto|chrome-json"},
    {"log.profile", "--profile", kText, kUseRun, "", "write what every launch took, as a file for: gradloom simulate RUN --profile FILE"},
    {"log.trace_steps", "--trace-steps", kText, kUseRun, "3:5", "the steps to trace, counted from 1: 3:5, or one of them"},
    {"log.format", "--log-format", kText, kUseRun, "text", "what the lines on stderr are: text, or a JSON object each", "text|json"},
    {"log.file", "--log-file", kPath, kUseRun, "", "append the lines of stderr to this file, too"},
    {"log.metrics_port", "--metrics-port", kInteger, kUseRun, "", "serve the run's numbers to Prometheus on this port; 0: one that is free",
     "", 0},
    {"log.metrics_address", "--metrics-address", kText, kUseRun, "127.0.0.1", "the address of this host to serve them on; 0.0.0.0: all"},
    {"log.report", "--report", kText, kUseRun, "", "json: one line on stdout at the end", "json"},
    {"log.report_every", "--report-every", kInteger, kUseRun, "0",
     "with --report json, a line on stdout each so many updates, too; 0: none", "", 0},

    {"job.rank", "--rank", kInteger, kUseJob, "",
     "which process of a job this is, counted from 0; each of these keys wins over what launchers say (torchrun, srun, mpirun ...)", "", 0,
     "global_rank"},
    {"job.world_size", "--world-size", kInteger, kUseJob, "", "processes of the job; 1: this one trains by itself", "", 1,
     "world num_processes"},
    {"job.local_rank", "--local-rank", kInteger, kUseJob, "", "which process of this host this is", "", 0},
    {"job.local_world_size", "--local-world-size", kInteger, kUseJob, "", "processes of the job on this host", "", 1},
    {"job.node_rank", "--node-rank", kInteger, kUseJob, "", "which host of the job this is", "", 0, "node_id"},
    {"job.nnodes", "--nnodes", kInteger, kUseJob, "", "hosts of the job", "", 1, "nodes num_nodes"},
    {"job.master_addr", "--master-addr", kText, kUseJob, "", "host of rank 0, where the processes meet", "", {}, "master_address"},
    {"job.master_port", "--master-port", kInteger, kUseJob, "", "port there; 29500 where nothing says another", "", 1},

    {"compiler.disable_pass", "--disable-pass", kTexts, kAll, "", "leave an optional compiler pass out"},
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

// learning-rate, Learning_Rate and learning_rate are the same to somebody who guesses.
std::string Folded(std::string_view text) {
  std::string folded;
  for (const char c : text) folded += c == '-' ? '_' : static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return folded;
}

// The key that has `word` as its short name or as an alias; one of this section before all others.
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
  // A second name, beside how often and how many are saved.
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
