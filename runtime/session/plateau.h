// A learning rate that goes down when the run makes no progress: torch.optim.lr_scheduler.ReduceLROnPlateau.
#pragma once

#include <cstdint>
#include <string>

namespace gradloom {

struct PlateauOptions {
  bool larger = false;  // whether a larger value is better
  double factor = 0.1;
  int64_t patience = 10;    // evaluations without progress that are let pass
  double threshold = 1e-4;  // what counts as progress: a share of the best value, or with `absolute` a difference
  bool absolute = false;
  int64_t cooldown = 0;  // evaluations after a reduction that are not counted
  double min_lr = 0;
  double eps = 1e-8;  // smaller reductions are not made
};

// Throws Error(kConfig) where factor is not within (0, 1).
class Plateau {
 public:
  Plateau(const PlateauOptions& options, double lr);

  // Takes the value of an evaluation; the learning rate from here on. NaN is no progress.
  double Step(double value);

  double lr() const { return lr_; }

  // What has to be kept to go on to the same bits, as one line of text.
  std::string state() const;
  // Throws Error(kCheckpoint) for a text that is none.
  void set_state(const std::string& text);

 private:
  bool IsBetter(double value) const;

  PlateauOptions options_;
  double lr_;
  double best_ = 0;
  bool has_best_ = false;
  int64_t bad_ = 0;      // evaluations without progress in a row
  int64_t cooling_ = 0;  // evaluations that are not counted from here on
};

}  // namespace gradloom
