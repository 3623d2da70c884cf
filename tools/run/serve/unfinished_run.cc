#include "tools/run/serve/unfinished_run.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "tools/config/configuration.h"
#include "tools/screen/screen.h"

namespace gradloom {

std::string UnfinishedNote(const RunFolder& run, const Checkpoint& checkpoint) {
  Configuration configuration;
  configuration.ReadFile(run.ConfigPath());
  const Manifest& manifest = checkpoint.manifest();
  const DataCursor& cursor = manifest.cursor;
  std::string at = "step " + std::to_string(manifest.step);
  if (const int64_t steps = configuration.Integer("train.steps"); steps > 0) {
    at += " of " + std::to_string(steps);
  } else {
    const int64_t per_epoch = (cursor.rows + cursor.batch_size - 1) / std::max<int64_t>(cursor.batch_size, 1);
    const double epochs =
        static_cast<double>(cursor.epoch) + static_cast<double>(cursor.batch) / static_cast<double>(std::max<int64_t>(per_epoch, 1));
    at += ", after " + Short(std::floor(epochs * 100) / 100) + " of " + std::to_string(configuration.Integer("train.epochs")) + " epochs";
  }
  return "weights " + Escaped(checkpoint.folder(), 4096) + ": the run is unfinished, at " + at;
}

}  // namespace gradloom
