// Output of the command: formatted numbers, error blocks, and a progress line that suits the terminal or the log.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tools/screen/log.h"

namespace gradloom {

// 206922 -> "206,922".
std::string WithCommas(int64_t value);

// 3250586 -> "3.10 MiB".
std::string Bytes(int64_t bytes);

// 74.25 -> "1:14"; below a minute "14.3s", below a tenth of a second "2.41ms".
std::string Duration(double seconds);

// A short form with significant digits: 0.2134, 1.0e-03, 12410.
std::string Short(double value);

// The current time in UTC: 2026-11-21T02:40:11Z.
std::string Timestamp();

// The lines of a table with aligned columns: the first left-aligned, the others right-aligned.
std::string Table(const std::vector<std::vector<std::string>>& rows);

// Prints a block for each error to stderr, at most a hundred, followed by the exit line; the exit code is that of the first error.
void PrintErrors(const std::vector<Error>& errors);

// {"errors": [{"code", "message", "where", "help"}], "exit_code": N} on one line. Invalid UTF-8 is replaced.
std::string ErrorsAsJson(const std::vector<Error>& errors);

// Whether there is a multiple of `every` in (last, step]; if `last` is -1, whether `step` is one.
inline bool PassesMultiple(int64_t last, int64_t step, int64_t every) { return last < 0 ? step % every == 0 : step / every > last / every; }

enum class ProgressMode { kAuto, kBar, kPlain, kJson, kNone };

// Shows the progress of a training run: one redrawn line on a terminal, or one line per `log_every` steps in a log.
class Progress {
 public:
  struct State {
    int64_t step = 0, total_steps = 0;
    double epoch = 0;
    int64_t epochs = 0;
    double loss = 0;
    // The terms of a loss that has several: "loss/box", and their values in the same order, or none.
    std::span<const std::string> term_names;
    std::span<const double> terms;
    double lr = 0, grad_norm = -1;  // -1: there is none
    double samples_per_s = 0;
    std::string metrics;  // of the last evaluation: "acc 0.936"
  };

  // kAuto means kBar if stderr is a terminal that can redraw a line, otherwise kPlain, and kNone if stderr is quiet. The log gets plain
  // lines in any case.
  Progress(ProgressMode mode, int64_t log_every, Log& log);
  ~Progress();

  void Update(const State& state);

  // Shows the results of an evaluation as a line; the bar, where a terminal shows it, has them by State::metrics. `values`: by name.
  void Evaluated(int64_t step, double epoch, const std::map<std::string, double>& values, bool best);

  // Clears the line of a bar, so that something else can be printed.
  void Clear();

 private:
  void Draw(const State& state);
  std::string PlainLine(const State& state) const;
  // Estimated from this process's steps: those before a resume took another one's time.
  double SecondsLeft(const State& state) const;

  ProgressMode mode_;
  int64_t log_every_;
  Log& log_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point drawn_;
  bool on_line_ = false;
  int64_t first_ = -1;  // the first step that this process reported
  int64_t shown_ = -1;  // the last step that was reported; steps may be skipped
};

}  // namespace gradloom
