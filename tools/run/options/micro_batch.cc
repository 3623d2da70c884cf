#include "tools/run/options/micro_batch.h"

#include <string>

#include "runtime/base/error.h"
#include "tools/run/options/node_placement.h"

namespace gradloom {

void ApplyMicroBatch(Configuration& configuration) {
  const int64_t micro = configuration.Integer("data.micro_batch");
  if (micro == 0) return;
  const std::string place = Escaped(configuration.origin("data.micro_batch").place, 4096);
  const int64_t batch = configuration.Integer("data.batch"), given = configuration.Integer("train.accumulate");
  const int64_t samples = micro * CopiesOf(configuration);
  if (batch == 0) {
    throw Error(
        ErrorCode::kConfig, "--micro-batch divides the global batch, but --batch is not set", place,
        "for example --batch " + std::to_string(4 * samples) + " --micro-batch " + std::to_string(micro) + ", which accumulates 4 batches");
  }
  if (batch < samples) {
    const int64_t fits = batch / CopiesOf(configuration);
    throw Error(ErrorCode::kConfig,
                "the devices process " + std::to_string(samples) + " samples at once, more than a batch of " + std::to_string(batch), place,
                "use " + (fits > 0 ? "--micro-batch " + std::to_string(fits) + " or less, or " : std::string()) + "--batch " +
                    std::to_string(samples));
  }
  if (batch % samples != 0) {
    const int64_t near = (batch + samples - 1) / samples * samples;
    throw Error(ErrorCode::kConfig,
                "a batch of " + std::to_string(batch) + " is not a multiple of " + std::to_string(samples) +
                    ", the number of samples that the devices process at once",
                place, "use --batch " + std::to_string(near) + ", which is " + std::to_string(near / samples) + " times that number");
  }
  if (given > 1 && given != batch / samples) {
    throw Error(
        ErrorCode::kConfig,
        "--micro-batch makes " + std::to_string(batch / samples) + " batches per update, but --accumulate is " + std::to_string(given),
        place, "omit one of them");
  }
  configuration.Reset("data.micro_batch");
  configuration.Decide("data.batch", std::to_string(samples), place);
  configuration.Decide("train.accumulate", std::to_string(batch / samples), place);
  configuration.Decide("train.accumulate_by", "samples", place);
}

}  // namespace gradloom
