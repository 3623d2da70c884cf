// The batches of an epoch, one after the other.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/data/dataset.h"

namespace gradloom {

// The random key for the rows of an epoch.
PhiloxKey RowDraw(uint64_t seed, uint64_t epoch);

// The rows [first, last) that are read of a batch of this number of rows; at least one.
using ReadRows = std::function<std::pair<int64_t, int64_t>(int64_t rows)>;

// The number of threads that make the rows of this data on a machine with so many cores: one for each core if rows are slow to make. They
// share the cores with those that compute, which wait for each other many times in a step. So it takes them less of it if all cores make
// rows for a short time than if a few do for a long time.
int RowThreads(const Dataset& data, int cores);

struct BatchesOptions {
  PhiloxKey draw{};  // random key for the rows of this epoch
  // Threads that make rows ahead of their use, if rows come from a source (0: RowThreads), and how many batches they may be ahead.
  int workers = 0;
  int ahead = 3;
  // The rows that this process reads, if other processes read the others; empty: all. Applies to rows from a source; the other rows are
  // then undefined.
  ReadRows reads;
  int kept = 1;  // number of batches that stay valid: only the last one requested, or also the one before it
  // The axes of a batch along which its rows lie, by column, where that is not the first one (FeedAxes).
  std::map<std::string, int> axes = {};
  int cores = 0;  // the cores that this process may use, for RowThreads; 0: all (NumCores)
};

// Rows in memory are copied when a batch is requested; rows of a source are made ahead by threads. Throws Error(kResource) if there is no
// memory for the batches that are kept and made ahead.
class Batches {
 public:
  // `order`: the rows of the epoch. The last batch has the rest. Both must outlive this object.
  Batches(const Dataset& data, std::span<const int64_t> order, int64_t batch, const BatchesOptions& options = {});
  ~Batches();
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  int64_t count() const;              // batches of the epoch
  int64_t size(int64_t index) const;  // rows of one

  // Batch `index`, valid until `kept` further calls. Requests in order are fast; a jump discards the batches made ahead. If the threads
  // could not read a row, the error is thrown here, for its batch.
  std::map<std::string, TensorView, std::less<>> Get(int64_t index);

 private:
  class Loader;  // the threads

  int AxisOf(const std::string& name, const Shape& column) const;

  const Dataset& data_;
  std::span<const int64_t> order_;
  int64_t batch_;
  const std::map<std::string, int> axes_;
  std::vector<std::map<std::string, Tensor>> buffers_;  // `kept` buffers of full batches, used in turn
  size_t turn_ = 0;
  std::unique_ptr<Loader> loader_;  // null if all rows are in memory
};

}  // namespace gradloom
