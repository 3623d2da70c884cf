// The MANIFEST of a checkpoint: what its files must be, and where the run was. docs/checkpoints.md has the
// bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/session/plan_identity.h"

namespace gradloom {

// Where the run is in its data. With the seed it says which rows come next: ShuffledRows(rows, seed, epoch),
// from row batch * batch_size on.
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
  uint64_t hash = 0;  // XXH3-64 of all of them
  bool operator==(const CheckpointFile&) const = default;
};

struct Manifest {
  static constexpr uint32_t kFormatVersion = 1;

  std::string version;   // of the library that wrote it
  int64_t sequence = 0;  // of the saves of a run: later ones have larger numbers, also after a run went back
  PlanIdentity plan;
  int64_t seed = 0;
  int64_t step = 0;                 // updates done
  int64_t batch = 0;                // batches seen, those being accumulated included
  double fixed_learning_rate = -1;  // Session's
  double loss_scale = 1;
  int64_t world_size = 1;  // files: of processes that held state which those before them had not
  DataCursor cursor;
  std::map<std::string, std::string> callbacks;  // the state of each, as it writes it
  std::vector<CheckpointFile> files;
};

std::string EncodeManifest(const Manifest& manifest);

// The inverse, for bytes from anyone. Throws Error(kCheckpoint) with `where` for bytes that are damaged, that
// another format version wrote, or that claim what cannot be: negative counts, a cursor beyond the data, a
// file outside of the folder.
Manifest DecodeManifest(std::string_view bytes, const std::string& where);

// "rank-0.safetensors"
std::string RankFileName(int64_t rank);

}  // namespace gradloom
