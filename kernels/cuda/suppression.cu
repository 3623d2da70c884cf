// NonMaxSuppression: for each image and class, selects boxes by descending score that do not overlap a selected one. A block per image and
// class goes from one selected box to the next; after each, its threads drop their overlapping boxes.
#include "kernels/cuda/counted.cuh"
#include "kernels/cuda/extents.cuh"
#include "kernels/cuda/index.cuh"
#include "kernels/cuda/merge_sort.cuh"

namespace gradloom::cuda {
namespace {

using cuda_rows::SuppressionSizes;

// The corners of a box, in double as in the reference.
struct Corners {
  double y0, x0, y1, x1;

  GRADLOOM_DEVICE double area() const { return (y1 - y0) * (x1 - x0); }
};

GRADLOOM_DEVICE Corners CornersOf(const float* box, bool centered) {
  const double a = box[0], b = box[1], c = box[2], d = box[3];
  if (centered) return {b - d / 2, a - c / 2, b + d / 2, a + c / 2};
  // As std::min and std::max do for NaN.
  return {c < a ? c : a, d < b ? d : b, a < c ? c : a, b < d ? d : b};
}

GRADLOOM_DEVICE double Overlap(const Corners& a, const Corners& b) {
  const double height = (b.y1 < a.y1 ? b.y1 : a.y1) - (a.y0 < b.y0 ? b.y0 : a.y0),
               width = (b.x1 < a.x1 ? b.x1 : a.x1) - (a.x0 < b.x0 ? b.x0 : a.x0);
  if (height <= 0 || width <= 0) return 0;
  const double common = height * width, all = a.area() + b.area() - common;
  return all > 0 ? common / all : 0;
}

// Descending scores. NaN comes last, so that this is a strict weak ordering.
struct ByScore {
  const float* scores;
  GRADLOOM_DEVICE bool operator()(int64_t a, int64_t b) const {
    const float p = scores[a], q = scores[b];
    return p > q || (p == p && q != q);
  }
};

struct Smallest {
  template <typename T>
  GRADLOOM_DEVICE T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

struct Suppression {
  SuppressionSizes sizes;
  bool centered;
  const float *boxes = nullptr, *scores = nullptr;
  const int64_t* max_outputs = nullptr;                              // per row; null: none
  const float *iou_threshold = nullptr, *score_threshold = nullptr;  // null: 0, and no score threshold
};

// `order` has the numbers of the scores, sorted within each row. Writes the selected boxes of each row to `selected`, and their number to
// `counts`.
void Choose(const Suppression& s, const int64_t* order, uint8_t* dropped, int64_t* selected, int64_t* counts, cudaStream_t stream) {
  ForEachRow(
      s.sizes.rows(), stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t row) {
        const int64_t n = s.sizes.boxes, begin = row * n, max_outputs = s.max_outputs == nullptr ? 0 : *s.max_outputs;
        const float* const boxes = s.boxes + Divide(row, s.sizes.classes).quotient * n * 4;
        const double allowed = s.iou_threshold == nullptr ? 0 : static_cast<double>(*s.iou_threshold);
        // Each thread looks only at its own places.
        int64_t next = n;
        for (int64_t k = block.thread(); k < n; k += block.threads()) {
          const bool out = s.score_threshold != nullptr && !(s.scores[order[begin + k]] > *s.score_threshold);
          dropped[begin + k] = out ? 1 : 0;
          if (!out && next == n) next = k;
        }
        next = block.Reduce(next, Smallest());
        int64_t count = 0;
        while (next < n && count < max_outputs) {
          const int64_t place = next, box = order[begin + place] - begin;
          const Corners taken = CornersOf(boxes + box * 4, s.centered);
          if (block.thread() == 0) selected[begin + count] = box;
          ++count;
          next = n;
          for (int64_t k = block.thread(); k < n; k += block.threads()) {
            if (k <= place || dropped[begin + k] != 0) continue;
            const bool out = Overlap(CornersOf(boxes + (order[begin + k] - begin) * 4, s.centered), taken) > allowed;
            if (out) dropped[begin + k] = 1;
            if (!out && next == n) next = k;
          }
          next = block.Reduce(next, Smallest());
        }
        if (block.thread() == 0) counts[row] = count;
      });
}

// The offset of each row among all selected boxes. Reports their number if it exceeds the bound.
void FindBegins(const SuppressionSizes& sizes, int64_t* begins, int64_t* count, const IndexFault& fault, cudaStream_t stream) {
  const int64_t rows = sizes.rows(), bound = sizes.bound;
  ForEachRow(
      1, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t) {
        const int64_t all = ExclusiveScanInPlace(block, rows, begins);
        if (block.thread() != 0) return;
        if (all > bound) Report(fault.fault, fault.site, kCapacityExceeded, all, bound);
        *count = all < bound ? all : bound;
      });
}

// Writes (image, class, box) of the selected boxes, in the order of rows.
void WriteSelected(const SuppressionSizes& sizes, const int64_t* selected, const int64_t* begins, const int64_t* counts, int64_t* out,
                   cudaStream_t stream) {
  ForEachElement(
      sizes.scores(), stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient row = Divide(i, sizes.boxes), image = Divide(row.quotient, sizes.classes);
        const int64_t at = begins[row.quotient] + row.rest;
        if (row.rest >= counts[row.quotient] || at >= sizes.bound) return;
        out[at * 3] = image.quotient;
        out[at * 3 + 1] = image.rest;
        out[at * 3 + 2] = selected[i];
      });
}

// Fills the rest of the output with copies of the first selected box.
void PadSelected(int64_t bound, const int64_t* count, int64_t* out, cudaStream_t stream) {
  ForEachElement(
      3 * bound, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        if (i >= 3 * *count) out[i] = *count > 0 ? out[Divide(i, 3).rest] : 0;
      });
}

}  // namespace

std::unique_ptr<Kernel> MakeNonMaxSuppression(const KernelCall& call, const KernelSite& site) {
  const SuppressionSizes sizes(call);
  const bool centered = call.attributes.Int("center_point_box", 0) != 0;
  const OperandCounts operands(call);
  // A scalar input may also be given as an empty tensor.
  const auto given = [&](size_t i) { return Has(call.inputs, i) && call.inputs[i].shape.elements() > 0; };
  const bool has_most = given(2), has_overlap = given(3), has_least = given(4);
  return MakeKernel([=, fault = IndexFault(site)](const Launch& l) {
    const Suppression s{sizes,
                        centered,
                        l.In<float>(0),
                        l.In<float>(1),
                        has_most ? l.In<int64_t>(2) : nullptr,
                        has_overlap ? l.In<float>(3) : nullptr,
                        has_least ? l.In<float>(4) : nullptr};
    auto* const memory = static_cast<int64_t*>(l.scratch);
    int64_t *const first = memory, *const second = first + sizes.scores(), *const counts = second + sizes.scores();
    int64_t *const begins = counts + sizes.rows(), *const count = begins + sizes.rows();
    const int64_t* const order = MergeSort(sizes.scores(), sizes.boxes, first, second, l.stream, ByScore{s.scores});
    int64_t* const selected = order == first ? second : first;
    Choose(s, order, reinterpret_cast<uint8_t*>(count + 1), selected, counts, l.stream);
    if (sizes.rows() > 0)
      GRADLOOM_CUDA(cudaMemcpyAsync(begins, counts, static_cast<size_t>(sizes.rows()) * 8, cudaMemcpyDeviceToDevice, l.stream));
    FindBegins(sizes, begins, count, fault, l.stream);
    if (int64_t* const out = operands.Out<int64_t>(l, 0)) {
      WriteSelected(sizes, selected, begins, counts, out, l.stream);
      PadSelected(sizes.bound, count, out, l.stream);
    }
    if (int64_t* const out = operands.Out<int64_t>(l, 1)) GRADLOOM_CUDA(cudaMemcpyAsync(out, count, 8, cudaMemcpyDeviceToDevice, l.stream));
  });
}

}  // namespace gradloom::cuda
