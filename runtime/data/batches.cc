#include "runtime/data/batches.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/host_memory.h"
#include "runtime/base/run_on_threads.h"

namespace gradloom {
namespace {

// The random stream of rows that are made for training, separate from all others.
constexpr uint64_t kRowStream = 0x726F7773;

// Small rows are taken in groups of this many bytes, because taking a row costs more than making it.
constexpr int64_t kBytesAtOnce = 4096;

// The shape of a column with the rows of this shape.
Shape ColumnShape(const Shape& row, int64_t rows) {
  Shape shape{rows};
  for (int64_t extent : row) shape.push_back(extent);
  return shape;
}

// Throws if there is no memory for batches of this size in all.
void RequireBatches(int64_t bytes) { RequireHostMemory(bytes, "the data of the batches", "", "use a smaller --batch"); }

}  // namespace

int RowThreads(const Dataset& data, int cores) {
  constexpr int kFew = 2, kMost = 16;
  const bool slow = std::ranges::any_of(data.lazy_columns(), [](const auto& column) { return column.second.source->is_slow(); });
  return slow ? std::clamp(cores, kFew, kMost) : kFew;
}

PhiloxKey RowDraw(uint64_t seed, uint64_t epoch) { return NodeKey(seed, epoch, kRowStream); }

// A ring of batches: the one in use and those in preparation. Threads take rows in order, so that all of them work on the batch that is
// needed next.
class Batches::Loader {
 public:
  Loader(const Batches& batches, const BatchesOptions& options)
      : batches_(batches),
        draw_(options.draw),
        reads_(options.reads),
        keeps_(options.kept),
        slots_(static_cast<size_t>(std::max(options.ahead, 1) + options.kept)) {
    const int64_t rows = std::min(batches.batch_, static_cast<int64_t>(batches.order_.size()));
    int64_t row_bytes = 1;
    for (const auto& [name, column] : batches.data_.lazy_columns())
      row_bytes += column.source->row_shape().elements() * DTypeBytes(column.source->dtype());
    rows_at_once_ = std::max<int64_t>(kBytesAtOnce / row_bytes, 1);
    RequireBatches(std::ssize(slots_) * rows * row_bytes);
    for (Slot& slot : slots_) {
      for (const auto& [name, column] : batches.data_.lazy_columns()) {
        slot.columns.emplace(name, Tensor(column.source->dtype(), ColumnShape(column.source->row_shape(), rows)));
      }
    }
    StartThreads(options.workers > 0 ? options.workers : RowThreads(batches.data_, options.cores > 0 ? options.cores : NumCores()));
  }

  ~Loader() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // Waits for a batch, which stays valid for as many further calls as batches are kept.
  const std::map<std::string, Tensor>& Get(int64_t index) {
    std::unique_lock lock(mutex_);
    if (index != current_ && index != current_ + 1) {
      // Out of order: waits for the rows in progress, then starts again at `index`.
      next_batch_ = batches_.count();
      done_.wait(lock, [&] { return busy_ == 0; });
      for (Slot& slot : slots_) slot.made = 0, slot.failure = nullptr;
      next_batch_ = index;
      next_row_ = 0;
      first_ = index;
    } else if (index == current_ + 1 && current_ >= 0) {
      const int64_t used = index - keeps_;
      if (used >= first_) SlotOf(used).made = 0, SlotOf(used).failure = nullptr;
    }
    current_ = index;
    work_.notify_all();
    Slot& slot = SlotOf(index);
    const auto [first, last] = ReadOf(index);
    done_.wait(lock, [&, rows = last - first] { return slot.made == rows; });
    if (slot.failure != nullptr) std::rethrow_exception(slot.failure);
    return slot.columns;
  }

 private:
  struct Slot {
    std::map<std::string, Tensor> columns;
    int64_t made = 0;  // rows, including failed ones
    std::exception_ptr failure;
    int64_t failed_row = 0;
  };

  // Fewer, but at least one, if the system has no more. Only this thread could end them if the constructor threw.
  void StartThreads(int wanted) {
    threads_.reserve(static_cast<size_t>(wanted));
    try {
      while (static_cast<int>(threads_.size()) < wanted) threads_.emplace_back([this] { Work(); });
    } catch (const std::exception& error) {  // no thread, or no memory for one
      if (!threads_.empty()) return;
      throw Error(ErrorCode::kResource, std::string("cannot start a thread that reads rows: ") + error.what(), "",
                  "check the process's limits with ulimit -a");
    }
  }

  Slot& SlotOf(int64_t batch) { return slots_[static_cast<size_t>(batch % static_cast<int64_t>(slots_.size()))]; }

  std::pair<int64_t, int64_t> ReadOf(int64_t batch) const {
    const int64_t rows = batches_.size(batch);
    return reads_ ? reads_(rows) : std::pair<int64_t, int64_t>(0, rows);
  }

  bool HasWork() const {
    const int64_t first = std::max<int64_t>(current_, 0);
    return next_batch_ < batches_.count() && next_batch_ < first + static_cast<int64_t>(slots_.size()) - (keeps_ - 1);
  }

  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      work_.wait(lock, [&] { return closing_ || HasWork(); });
      if (closing_) return;
      const auto [first, last] = ReadOf(next_batch_);
      const int64_t batch = next_batch_, row = first + next_row_;
      const int64_t rows = std::min(rows_at_once_, last - row);
      next_row_ += rows;
      if (next_row_ == last - first) ++next_batch_, next_row_ = 0;
      Slot& slot = SlotOf(batch);
      ++busy_;
      lock.unlock();
      std::exception_ptr failure;
      int64_t made = row;
      try {
        for (; made < row + rows; ++made) Make(slot, batch, made);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      // The first of several wrong rows is reported, whichever thread is faster.
      if (failure != nullptr && (slot.failure == nullptr || made < slot.failed_row)) slot.failure = failure, slot.failed_row = made;
      slot.made += rows;
      --busy_;
      done_.notify_all();
    }
  }

  void Make(Slot& slot, int64_t batch, int64_t row) {
    const int64_t sample = batches_.order_[static_cast<size_t>(batch * batches_.batch_ + row)];
    for (const auto& [name, column] : batches_.data_.lazy_columns()) {
      Tensor& to = slot.columns.at(name);
      const int axis = batches_.AxisOf(name, to.shape());
      const int64_t bytes = column.source->row_shape().elements() * DTypeBytes(to.dtype());
      if (axis == 0) {
        column.source->Read(column.rows[static_cast<size_t>(sample)], draw_, static_cast<std::byte*>(to.data()) + row * bytes);
        continue;
      }
      std::vector<std::byte> made(static_cast<size_t>(bytes));
      column.source->Read(column.rows[static_cast<size_t>(sample)], draw_, made.data());
      const int64_t block = Product(to.shape(), axis + 1, to.shape().rank()) * DTypeBytes(to.dtype());
      PlaceRow(made.data(), bytes, block, row, batches_.size(batch), to.data());
    }
  }

  const Batches& batches_;
  const PhiloxKey draw_;
  const ReadRows reads_;
  const int64_t keeps_;
  int64_t rows_at_once_ = 1;  // number of rows that a thread takes at a time
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable work_, done_;
  int64_t current_ = -1;                   // the batch that was requested last
  int64_t first_ = 0;                      // the first batch of the current sequence
  int64_t next_batch_ = 0, next_row_ = 0;  // the next row to make, and its batch
  int busy_ = 0;                           // threads that are making rows
  bool closing_ = false;
  std::vector<std::thread> threads_;  // last member: they use all of the above
};

Batches::Batches(const Dataset& data, std::span<const int64_t> order, int64_t batch, const BatchesOptions& options)
    : data_(data),
      order_(order),
      batch_(std::min(batch, std::max<int64_t>(std::ssize(order), 1))),
      axes_(options.axes),
      buffers_(static_cast<size_t>(options.kept)) {
  GRADLOOM_CHECK(batch > 0);
  int64_t row_bytes = 0;
  for (const auto& [name, column] : data.columns()) row_bytes += WithRows(column.shape(), 1).elements() * DTypeBytes(column.dtype());
  RequireBatches(std::ssize(buffers_) * batch_ * row_bytes);
  for (const auto& [name, column] : data.columns()) {
    for (auto& buffers : buffers_) {
      buffers.emplace(name, Tensor(column.dtype(), WithRows(column.shape(), std::min(batch, static_cast<int64_t>(order.size())))));
    }
  }
  if (!data.lazy_columns().empty() && !order.empty()) loader_ = std::make_unique<Loader>(*this, options);
}

Batches::~Batches() = default;

int64_t Batches::count() const { return (static_cast<int64_t>(order_.size()) + batch_ - 1) / batch_; }

int64_t Batches::size(int64_t index) const { return std::min(batch_, static_cast<int64_t>(order_.size()) - index * batch_); }

// A column of too few dimensions is left as it is: the session says what it expects.
int Batches::AxisOf(const std::string& name, const Shape& column) const {
  const auto found = axes_.find(name);
  return found == axes_.end() || found->second >= column.rank() ? 0 : found->second;
}

std::map<std::string, TensorView, std::less<>> Batches::Get(int64_t index) {
  GRADLOOM_CHECK(index >= 0 && index < count());
  const auto rows = order_.subspan(static_cast<size_t>(index * batch_), static_cast<size_t>(size(index)));
  std::map<std::string, TensorView, std::less<>> feeds;
  turn_ = (turn_ + 1) % buffers_.size();
  const auto add = [&](const std::string& name, const Tensor& tensor, int axis) {
    const Shape shape = WithAxisMoved(WithRows(tensor.shape(), size(index)), 0, axis);
    feeds.emplace(name, TensorView{tensor.dtype(), shape, tensor.data()});
  };
  for (auto& [name, buffer] : buffers_[turn_]) {
    const int axis = AxisOf(name, buffer.shape());
    GatherRows(data_.column(name), rows, axis, buffer.data());
    add(name, buffer, axis);
  }
  if (loader_ == nullptr) return feeds;
  for (const auto& [name, tensor] : loader_->Get(index)) add(name, tensor, AxisOf(name, tensor.shape()));
  return feeds;
}

}  // namespace gradloom
