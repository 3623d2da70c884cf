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
#include "runtime/session/dataset.h"

namespace gradloom {

// The key of what is random about the rows of an epoch.
PhiloxKey RowDraw(uint64_t seed, uint64_t epoch);

// Of a batch of so many rows those that are read, [first, last), at least one.
using ReadRows = std::function<std::pair<int64_t, int64_t>(int64_t rows)>;

struct BatchesOptions {
  PhiloxKey draw{};  // of what is random about a row in this epoch
  // Threads that make rows ahead of their use, where there are such rows, and how many batches they may be ahead.
  int workers = 2;
  int ahead = 3;
  // Where other processes read the others; empty: all. It concerns rows that a source makes; what the others are then is not said.
  ReadRows reads;
  int kept = 1;  // batches that stay as they are: the one asked for last, or the one before it too
};

// Rows in memory are copied when a batch is asked for; rows of a source are made ahead by threads of its own.
class Batches {
 public:
  // `order`: the rows of the epoch. The last batch has what is left. Both must outlive this object.
  Batches(const Dataset& data, std::span<const int64_t> order, int64_t batch, const BatchesOptions& options = {});
  ~Batches();
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  int64_t count() const;              // batches of the epoch
  int64_t size(int64_t index) const;  // rows of one

  // Batch `index`, valid until as many calls later as are kept. In order it is quick; a jump makes what lies ahead anew. What the
  // threads could not read is thrown here, for the batch that it belongs to.
  std::map<std::string, TensorView, std::less<>> Get(int64_t index);

 private:
  class Maker;  // the threads

  const Dataset& data_;
  std::span<const int64_t> order_;
  int64_t batch_;
  std::vector<std::map<std::string, Tensor>> buffers_;  // of full batches, as many as are kept, used in turn
  size_t turn_ = 0;
  std::unique_ptr<Maker> maker_;  // null where all rows are in memory
};

}  // namespace gradloom
