// The MANIFEST of a checkpoint: its files, and the position of the run. docs/checkpoints.md describes the format.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/plan_identity.h"

namespace gradloom {

// The position of the run in its data. Together with the seed it determines the next rows: ShuffledRows(rows, seed, epoch), from row batch
// * batch_size on.
struct DataCursor {
  int64_t epoch = 0;       // from 0
  int64_t batch = 0;       // batches of this epoch that have been trained
  int64_t batch_size = 0;  // of a full batch
  int64_t rows = 0;        // of the training data
  bool operator==(const DataCursor&) const = default;
};

struct CheckpointFile {
  std::string name;  // within the checkpoint's folder
  int64_t bytes = 0;
  uint64_t hash = 0;  // XXH3-64 of the file
  bool operator==(const CheckpointFile&) const = default;
};

struct Manifest {
  static constexpr uint32_t kFormatVersion = 1;

  std::string version;   // of the library that wrote it
  int64_t sequence = 0;  // number of the save in its run: later saves have larger numbers, even after the run went back
  PlanIdentity plan;
  int64_t seed = 0;
  int64_t step = 0;                 // updates done
  int64_t batch = 0;                // batches done, including those being accumulated
  double fixed_learning_rate = -1;  // Session's
  double loss_scale = 1;
  int64_t world_size = 1;  // number of files: of processes that hold state which those before them lack
  DataCursor cursor;
  std::map<std::string, std::string> callbacks;  // the state of each, in its own form
  std::vector<CheckpointFile> files;
};

std::string EncodeManifest(const Manifest& manifest);

// The inverse, for untrusted bytes. Throws Error(kCheckpoint) with `where` for bytes that are damaged, of another format version, or with
// impossible content: negative counts, a cursor beyond the data, a file outside the folder.
Manifest DecodeManifest(std::string_view bytes, const std::string& where);

// "rank-0.safetensors"
std::string RankFileName(int64_t rank);

}  // namespace gradloom
