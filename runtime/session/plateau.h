// Reduces the learning rate when the run makes no progress, like torch.optim.lr_scheduler.ReduceLROnPlateau.
#pragma once

#include <cstdint>
#include <string>

namespace gradloom {

struct PlateauOptions {
  bool larger = false;  // whether a larger value is better
  double factor = 0.1;
  int64_t patience = 10;    // evaluations without progress that are tolerated
  double threshold = 1e-4;  // least progress that counts, as a share of the best value
  int64_t cooldown = 0;     // evaluations after a reduction that do not count
  double min_lr = 0;
};

// Throws Error(kConfig) if factor is not within (0, 1).
class Plateau {
 public:
  Plateau(const PlateauOptions& options, double lr);

  // Takes the value of an evaluation, and returns the new learning rate. NaN is not progress.
  double Step(double value);

  double lr() const { return lr_; }
  void set_lr(double lr) { lr_ = lr; }

  // Begins to compare anew, as for values of another kind. The learning rate stays.
  void ForgetValues();

  // The state to save for continuing to the same bits, as one line of text.
  std::string state() const;
  // Throws Error(kCheckpoint) for an invalid text.
  void set_state(const std::string& text);

 private:
  bool IsBetter(double value) const;

  PlateauOptions options_;
  double lr_;
  double best_ = 0;
  bool has_best_ = false;
  int64_t bad_ = 0;      // evaluations without progress in a row
  int64_t cooling_ = 0;  // remaining evaluations that do not count
};

}  // namespace gradloom
