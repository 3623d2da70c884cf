// How sums over many elements are divided into pieces for parallel blocks, for the row, which states the scratch memory, and the kernel,
// which uses it.
#pragma once

#include <cstdint>

#include "kernels/catalog/kernel.h"
#include "kernels/catalog/physical.h"
#include "runtime/base/checked.h"

namespace gradloom::cuda {

// [images, slices, points]: a slice is a channel with its points in all images. Its elements are summed in parts.
struct Slices {
  int64_t images, slices, points;

  // The channels of [N, C, ...], row-major or channels-last. Channels-last, each point is an image of its own.
  static Slices OfChannels(const OperandType& operand) {
    const Shape& shape = operand.shape;
    const int64_t points = Product(shape, 2, shape.rank());
    return SameMemoryOrder(operand.layout, {}, shape) ? Slices{shape[0], shape[1], points} : Slices{shape[0] * points, shape[1], 1};
  }

  constexpr int64_t count() const { return images * points; }  // elements of a slice
  constexpr int64_t elements() const { return count() * slices; }
  constexpr int64_t planes() const { return images * slices; }

  // [rows, channels]: neighbors in memory belong to different slices. A thread keeps some neighboring channels and walks over rows.
  constexpr bool is_rows() const { return points == 1 && images > 1; }

  // The channels of a block of threads, in equal tiles of at most kTile.
  static constexpr int64_t kTile = 256;
  constexpr int64_t tile() const {
    const int64_t least = CeilDiv(slices, CeilDiv(slices, kTile));
    return least == slices ? slices : CeilDiv(least, 8) * 8;  // vectors of up to 8 channels are not divided
  }
  constexpr int64_t tiles() const { return slices == 0 ? 0 : CeilDiv(slices, tile()); }

  // Parts of rows: enough blocks for a large GPU, unless a block gets too few elements to be worth its sums' way through memory, or so many
  // that the sums of its threads lose digits. The number is fixed so that the sums do not depend on the GPU.
  constexpr int64_t rows_of_part() const {
    constexpr int64_t kBlocks = 1056, kFewElements = 1 << 15, kManyElements = 1 << 17;
    const int64_t wanted = CeilDiv(images, CeilDiv(kBlocks, tiles())), few = CeilDiv(kFewElements, tile());
    const int64_t many = CeilDiv(kManyElements, tile()), rows = wanted > few ? wanted : few;
    return rows < many ? rows : many;
  }

  // Elements of a part. If points are few, neighbors in memory belong to other slices: then parts are short, so that neighboring threads
  // take neighboring slices.
  constexpr int64_t part() const {
    if (slices == 0) return 1;
    if (is_rows()) return rows_of_part();
    return images > 1 && points < 8 ? 64 : 8192;
  }
  constexpr int64_t parts() const { return CeilDiv(count(), part()); }
  constexpr int64_t work() const { return part() < count() ? part() : count(); }

  // Two doubles for each part of each slice.
  constexpr int64_t records() const { return 2 * parts() * slices; }
};

// [rows, columns] to be summed over the rows, first within chunks of rows.
struct Columns {
  int64_t rows, columns;

  // Enough for the threads of a large GPU, each with at least 16 rows.
  constexpr int64_t chunks() const {
    const int64_t wanted = (int64_t{1} << 18) / (columns > 0 ? columns : 1), most = CeilDiv(rows, 16);
    const int64_t chunks = wanted < most ? wanted : most;
    return chunks > 1 ? chunks : 1;
  }
  constexpr int64_t partials() const { return chunks() * columns; }
};

// [rows, columns] processed by blocks in runs of rows, with two sums per column of a run in shared memory: the gradient of a row
// normalization, which then reads its operands only once. Rows with fewer columns give a block's threads too little work.
struct RowRuns {
  int64_t rows, columns;

  explicit constexpr RowRuns(const Columns& shape) : rows(shape.rows), columns(shape.columns) {}

  static constexpr int64_t kMinColumns = 512;
  static constexpr int kFewBytes = 8192, kMaxBytes = 32768;  // of shared memory

  // Shared memory for sums of `number` bytes.
  constexpr int64_t bytes(int64_t number) const { return 2 * number * columns; }
  constexpr bool serve(int64_t number) const { return columns >= kMinColumns && bytes(number) <= kMaxBytes; }

  // As many as a large GPU runs concurrently: five on each of 132 multiprocessors, limited by registers. The number is fixed so that the
  // sums do not depend on the GPU.
  constexpr int64_t runs() const {
    const int64_t most = CeilDiv(rows, 4);
    return most < 640 ? most : 640;
  }
  constexpr int64_t partials() const { return runs() * columns; }
};

// [rows, columns] changed in place and summed over the rows: a block processes a run of rows of some columns.
struct ColumnRuns {
  int64_t rows, columns;

  // Enough for about eight blocks on each of 132 multiprocessors, if a block has 256 columns. The number is fixed so that the sums do not
  // depend on the GPU.
  constexpr int64_t runs() const {
    const int64_t wanted = CeilDiv(1056, CeilDiv(columns, 256)), most = CeilDiv(rows, 16);
    return wanted < most ? wanted : most;
  }
  constexpr int64_t partials() const { return runs() * columns; }
};

// [rows, columns] of float32, with each row in the registers of a warp, or of a block if it is long.
struct HeldRows {
  int64_t rows, columns;

  explicit constexpr HeldRows(const Columns& shape) : rows(shape.rows), columns(shape.columns) {}

  // A thread holds up to kMaxVectors vectors of kVector elements. In shorter rows than kMinColumns, a warp's threads have too little work.
  static constexpr int64_t kVector = 4, kMaxVectors = 8, kMinColumns = 64, kWarpColumns = 32 * kVector * kMaxVectors,
                           kMaxColumns = 8 * kWarpColumns;

  constexpr bool serve() const { return columns % kVector == 0 && columns >= kMinColumns && columns <= kMaxColumns; }
  constexpr bool by_warp() const { return columns <= kWarpColumns; }

  // Blocks that process several rows each: as many as a large GPU runs concurrently, two on each of 132 multiprocessors. The number is
  // fixed so that sums over the rows do not depend on the GPU.
  constexpr int64_t runs() const {
    const int64_t most = CeilDiv(rows, by_warp() ? 16 : 4);
    return most < 264 ? most : 264;
  }
  constexpr int64_t partials() const { return runs() * columns; }
};

// Whether the operands of a normalization in float32 allow that: neither scale nor bias, if there is one, repeats along a row.
inline bool HoldsRows(const OperandType& x, const Columns& rows, const OperandType& scale, const OperandType& bias) {
  const auto fits = [&](const OperandType& operand) {
    return !operand.present() || (operand.dtype == DType::kFloat32 && operand.shape.elements() == rows.columns);
  };
  return x.dtype == DType::kFloat32 && HeldRows(rows).serve() && fits(scale) && fits(bias);
}

// Rows over the dimensions from attribute `axis` on.
inline Columns NormalizedRows(const KernelCall& call, const Shape& shape) {
  const int axis = NormalAxis(call.attributes.Int("axis", -1), shape.rank()).value_or(0);
  return {Product(shape, 0, axis), Product(shape, axis, shape.rank())};
}

// [N, C, ...] with its channels normalized in groups of consecutive channels.
struct ChannelGroups {
  int64_t images, channels, groups, points;

  explicit ChannelGroups(const KernelCall& call) {
    const Shape& x = call.inputs[call.op == "GroupNormGrad" ? 1 : 0].shape;
    images = x[0];
    channels = x[1];
    groups = call.op == "InstanceNormalization" ? channels : call.attributes.Int("num_groups", 1);
    points = Product(x, 2, x.rank());
  }

  constexpr int64_t per_group() const { return groups == 0 ? 0 : channels / groups; }
  constexpr int64_t size() const { return per_group() * points; }  // of a group
  constexpr Slices of_groups() const { return {1, images * groups, size()}; }
  constexpr Slices of_channels() const { return {1, images * channels, points}; }

  // Doubles of scratch memory: three per group, then the records of the parts.
  constexpr int64_t forward_numbers() const { return 3 * images * groups + of_groups().records(); }
  // The same, with two more per group and two per channel of each image before the records.
  constexpr int64_t backward_numbers() const {
    const int64_t by_group = of_groups().records(), by_channel = of_channels().records();
    return images * (5 * groups + 2 * channels) + (by_group > by_channel ? by_group : by_channel);
  }
};

}  // namespace gradloom::cuda
