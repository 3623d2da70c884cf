#include "kernels/cpu/convolution/convolution_weights.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/catalog/convolution.h"
#include "kernels/catalog/pointwise.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/convolution/convolution_desc.h"
#include "kernels/cpu/convolution/weight_gradients.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kSumsPerThread = 1 << 14, kSumsAtOnce = 1024;

// A range of images; or a range of rows along the first spatial axis of one image, with the rows of x under their windows.
struct Part {
  KernelCall call;
  int64_t x = 0, y = 0;  // offsets of its first elements
  size_t kind = 0;       // index among the distinct calls
};

bool EqualCalls(const KernelCall& a, const KernelCall& b) {
  return a.inputs[0].shape == b.inputs[0].shape && a.inputs[1].shape == b.inputs[1].shape &&
         a.attributes.Ints("pads") == b.attributes.Ints("pads");
}

int64_t PartsFor(const KernelCall& call) {
  const Shape &x = call.inputs[0].shape, &y = call.inputs[1].shape, &w = call.outputs[0].shape;
  return PartsOfWeightGradient(ProductsOfWeightGradient(call), x.elements() + y.elements(), w.elements());
}

Part Images(const KernelCall& call, int64_t begin, int64_t end) {
  Part part = {.call = call};
  int64_t* const first[] = {&part.x, &part.y};
  for (size_t i = 0; i < 2; ++i) {
    Shape& shape = part.call.inputs[i].shape;
    *first[i] = shape.elements() / shape[0] * begin;
    shape[0] = end - begin;
  }
  return part;
}

// Rows [begin, end) of y of `image`, a part with one image; nullopt if their windows cover only padding.
std::optional<Part> Rows(const Part& image, Windows windows, int64_t begin, int64_t end) {
  Part part = image;
  Shape &x = part.call.inputs[0].shape, &y = part.call.inputs[1].shape;
  const int64_t x_row = x.elements() / x[2], y_row = y.elements() / y[2];
  const int64_t from = begin * windows.strides[0] - windows.pads_begin[0];
  const int64_t to = (end - 1) * windows.strides[0] - windows.pads_begin[0] + (windows.kernel[0] - 1) * windows.dilations[0] + 1;
  const int64_t first = std::max<int64_t>(from, 0), last = std::min(to, x[2]);
  if (first >= last) return std::nullopt;
  windows.pads_begin[0] = first - from, windows.pads_end[0] = to - last;
  part.x += first * x_row, part.y += begin * y_row;
  x[2] = last - first, y[2] = end - begin;
  const int64_t group = part.call.attributes.Int("group", 1);
  part.call.attributes = windows.ToAttributes();
  part.call.attributes.set("group", group);
  return part;
}

std::vector<Part> Divide(const KernelCall& call, bool channels_last) {
  const int64_t images = call.inputs[0].shape[0], rows = call.inputs[1].shape[2], wanted = PartsFor(call);
  const int64_t groups = std::min(images, wanted);
  std::vector<Part> by_images, by_rows;
  for (int64_t i = 0; i < groups; ++i) by_images.push_back(Images(call, images * i / groups, images * (i + 1) / groups));
  // The rows of an image are contiguous only channels-last.
  const int64_t of_each = channels_last && groups == images ? std::min(wanted / images, rows) : 1;
  if (of_each == 1) return by_images;
  const Windows windows = WindowsOfConvolution(call);
  for (const Part& image : by_images) {
    for (int64_t i = 0; i < of_each; ++i) {
      std::optional<Part> part = Rows(image, windows, rows * i / of_each, rows * (i + 1) / of_each);
      if (!part) return by_images;
      by_rows.push_back(std::move(*part));
    }
  }
  return by_rows;
}

struct Plan {
  std::vector<Part> parts;
  std::vector<PreparedConvolution> kinds;
  int64_t sums_bytes, pad_bytes = 0;  // of the sums of a part, and of the scratchpad of a thread
  int64_t stored;                     // number of sums that are stored besides the output
  int threads;

  explicit Plan(const KernelCall& call) {
    const bool last = IsChannelsLast(call);
    PreparedConvolution whole = PrepareConvolution(call, last);
    parts = Divide(call, last);
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto known = std::find_if(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(i),
                                      [&](const Part& before) { return EqualCalls(before.call, parts[i].call); });
      parts[i].kind = known->kind;
      if (known != parts.begin() + static_cast<ptrdiff_t>(i)) continue;
      parts[i].kind = kinds.size();
      kinds.push_back(PrepareConvolution(parts[i].call, last));
      // All parts must have their sums in the same layout. This was so in all known cases; otherwise the call is not divided.
      if (kinds.back().weights != whole.weights) {
        parts = {Part{.call = call}};
        kinds = {std::move(whole)};
        break;
      }
    }
    for (const PreparedConvolution& kind : kinds) pad_bytes = std::max(pad_bytes, AlignUp(kind.scratch_bytes, kAlignmentBytes));
    sums_bytes = AlignUp(static_cast<int64_t>(kinds.front().weights.get_size()), kAlignmentBytes);
    const auto count = static_cast<int64_t>(parts.size());
    stored = count - (call.outputs[0].dtype == DType::kFloat32 ? 1 : 0);
    threads = static_cast<int>(std::clamp<int64_t>(call.threads, 1, count));
  }

  int64_t scratch_bytes() const { return stored * sums_bytes + threads * pad_bytes; }
};

// Each part is computed by one thread, and the sums of the parts are added in order.
class ConvolutionWeights : public Kernel {
 public:
  explicit ConvolutionWeights(const KernelCall& call) : plan_(call), dtype_(call.outputs[0].dtype), loops_(BestLoops()) {
    for (int thread = 0; thread < plan_.threads; ++thread) {
      for (const PreparedConvolution& kind : plan_.kinds) primitives_.emplace_back(kind.make, kind.arguments, 1);
    }
    elements_ = static_cast<int64_t>(plan_.kinds.front().weights.get_size() / sizeof(float));
    for (size_t i = 0; i < 2; ++i) element_bytes_[i] = DTypeBytes(call.inputs[i].dtype);
    threads_ = ThreadsFor(elements_ * plan_.stored, kSumsPerThread, call.threads);
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    auto* const memory = static_cast<std::byte*>(scratch);
    const auto parts = static_cast<int64_t>(plan_.parts.size());
    const auto sums = [&](int64_t part) -> void* {
      const int64_t place = part - (parts - plan_.stored);
      return place < 0 ? outputs[0] : memory + place * plan_.sums_bytes;
    };
    ParallelTasks(parts, plan_.threads, [&](int64_t i, int thread) {
      const Part& part = plan_.parts[static_cast<size_t>(i)];
      OneDnnPrimitive& primitive = primitives_[static_cast<size_t>(thread) * plan_.kinds.size() + part.kind];
      primitive.Run({static_cast<const std::byte*>(inputs[0]) + part.x * element_bytes_[0],
                     static_cast<const std::byte*>(inputs[1]) + part.y * element_bytes_[1], sums(i),
                     memory + plan_.stored * plan_.sums_bytes + thread * plan_.pad_bytes});
    });
    if (plan_.stored == 0) return;
    ParallelRanges(elements_, kSumsAtOnce, threads_, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kSumsAtOnce) {
        const int64_t n = std::min(kSumsAtOnce, end - at);
        float* const to = static_cast<float*>(sums(0)) + at;
        for (int64_t i = 1; i < parts; ++i) {
          const float* const from = static_cast<const float*>(sums(i)) + at;
          loops_.pointwise[static_cast<size_t>(PointwiseOp::kAdd)]({to, from, to, to, n});
        }
        if (dtype_ != DType::kFloat32) StoreFloats(loops_, dtype_, to, n, outputs[0], at);
      }
    });
  }

 private:
  Plan plan_;
  const DType dtype_;
  const Loops& loops_;
  std::vector<OneDnnPrimitive> primitives_;  // of each thread and kind
  int64_t elements_, element_bytes_[2];
  int threads_;
};

}  // namespace

std::unique_ptr<Kernel> MakeConvolutionWeights(const KernelCall& call) { return std::make_unique<ConvolutionWeights>(call); }

int64_t ConvolutionWeightsScratch(const KernelCall& call) { return Plan(call).scratch_bytes(); }

}  // namespace gradloom
