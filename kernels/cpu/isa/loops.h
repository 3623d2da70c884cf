// The innermost loops, compiled once per instruction set from the same source. This header is all that both
// sides see: plain types, no standard library, so that no inline function of it is compiled for a machine
// that is not there.
#pragma once

namespace gradloom {

using Index = long;  // int64_t without its header
static_assert(sizeof(Index) == 8);

// d[i] = f(a[i], b[i], c[i]) for i < n; unused operands are null. d may be a, b or c.
struct PointwiseArgs {
  const float *a, *b, *c;
  float* d;
  Index n;
};
using PointwiseLoop = void (*)(const PointwiseArgs&);

// The last is log(sum(exp(x))), by way of the maximum.
enum class Reduction : int { kSum, kSumSquare, kSumAbs, kMax, kMin, kProd, kLogSumExp };

enum class SmallInteger : int { kUint8, kInt8, kUint16, kInt16 };
// y = x / scale rounded to even, plus zero, within what the integer holds; and x = (y - zero) scale. `zero` is one of the integers.
using QuantizeLoop = void (*)(const float* x, Index n, float scale, int zero, void* y);
using DequantizeLoop = void (*)(const void* x, Index n, float scale, int zero, float* y);

// c = alpha a b + beta bias, for small extents; or alpha (c + a b) + beta bias.
struct MatrixArgs {
  Index m, n, k;
  const float *a, *b;
  Index a_row, a_col, b_row, b_col;  // strides in elements
  const float* bias;                 // added to every row: element j at bias[j * bias_step]; or null
  Index bias_step;
  float* c;
  Index c_row;  // elements of a row are contiguous
  float alpha, beta;
  bool adds;
};

// A tile of sums of outer products, c[rows, `matrix_panel`], rows <= `panel_rows`, of which `columns`, a vector or two, are wanted: of runs
// of points a[i] and b[j], where a's points lie `a_step` apart and b's a panel. Added to c where `adds`.
struct OuterRun {
  Index a, b, points;  // where its first points lie
};
struct OuterArgs {
  Index rows, columns;
  const float* a;
  Index a_step;
  const float* b;
  const OuterRun* runs;
  Index count;
  float* c;
  bool adds;
};

// Winograd's convolutions (kernels/cpu/winograd.cc). Patches of 4 x 4 points become 16 numbers for each channel, each of a plane of its
// own; channels are in chunks of kWinogradChunk where they are rows of a product, in panels of `matrix_panel` where they are its columns.
inline constexpr Index kWinogradChunk = 64;
// The points of a patch of x in chunks that lie `step` apart, or of a tile of y's gradient in panels; of the planes part `part` of 1, 2
// or 4.
struct WinogradPatchArgs {
  const float* const* points;
  Index channels;
  float* to;
  Index plane, step;
  Index part, parts;
};
// Filters w[3 * 3 taps, rows, columns], a vector of columns next to each other, and their 16 planes.
struct WinogradFilterArgs {
  const float* w;
  Index tap_step, row_step, vector_step, rows, columns;
  float* to;
  Index plane, to_step;
};
// Back from the planes of a gradient.
struct WinogradFilterGradArgs {
  const float* from;
  Index plane, from_step, rows, columns;
  float* w;
  Index tap_step, row_step, vector_step;
};
// c[rows, panel] of a panel b[depth, panel] and a, whose rows lie a chunk apart and whose chunks of depth a_step. Added to c where `adds`.
// `columns` is a vector or two.
struct WinogradTileArgs {
  Index rows, columns, depth;
  const float* a;
  Index a_step;
  const float* b;
  float* c;
  bool adds;
};

// A window whose `taps` points (one at least) are rows of n elements: point t is x[points[t] * stride + i].
struct PoolArgs {
  const float* x;
  const int* points;
  Index taps, stride, n;
};

// Local response normalisation of a tile [channels, kResponsePoints]: a channel's window is `before` channels before it to `after` behind
// it, of those there are.
inline constexpr Index kResponsePoints = 64;
struct ResponseArgs {
  Index channels, before, after;
  float bias, factor, beta;  // factor: alpha / size
};

// One pass of a Fourier transform of kFourierLines lines of n elements next to each other: Stockham's, which leaves them in order. An
// element is its kFourierLines real parts and as many imaginary ones. n = done * parts * rest, of which earlier passes have seen to `done`:
// with x' and y' of [n] such elements,
//   y'[q + done (parts p + k)] = turn^(p k) sum over j < parts of x'[q + done (p + rest j)] root^(j k),
// turn = e^(sign 2 pi i / (parts rest)), root = e^(sign 2 pi i / parts).
inline constexpr Index kFourierLines = 8;
struct FourierPassArgs {
  Index parts, done, rest;
  double sign;          // -1 forwards, 1 backwards
  const double* turns;  // [rest, parts], each a real and an imaginary part
  const double* roots;  // [parts], likewise
  const double* x;
  double* y;  // not x
};

// Polynomials with real coefficients a[j], j < 2 M, modulo z^(2 M) + 1 (kernels/cpu/ring.h), those of as many lines as a vector has lanes
// next to each other: element j < M is the a[j] of all lines, then their a[j + M], which is a[j] + i a[j + M] modulo z^M - i. A pass takes
// it from its remainders modulo z^(parts span) - d^parts, a block each, to those modulo z^span - d root for each root of root^parts = 1.
struct RingPass {
  Index parts, blocks, span;  // 2, 3 or 4 parts; parts * blocks * span = M
  const float* turns;         // [blocks, parts - 1]: d, d^2, ..., each a real and an imaginary part
};
inline constexpr Index kRingTerms = 4;
// c[row] = the sum over terms of conj(v[term]) s[row], pointwise, or that is added, where `adds`: s is lane `term` of its elements, one
// number for all lanes of v. `v_step`, `s_row` and `c_row` are floats.
struct RingProductArgs {
  Index elements, terms, rows;  // at most kRingTerms terms
  const float* v;
  Index v_step;
  const float* s;
  Index s_row;
  float* c;
  Index c_row;
  bool adds;
};
// c[column] = the sum over rows of conj(v[row]) s[row], where s is lane `column` of its elements.
struct RingSumArgs {
  Index elements, columns, rows;  // at most kRingTerms columns
  const float* v;
  Index v_row;
  const float* s;
  Index s_row;
  float* c;
  Index c_step;
};

// The elements of a plane [height, width] that each of n points draws from, four or the nearest one, with their weights, at most
// kGridPoints together. Along an axis the place of a coordinate g is (g + 1) * half - before; outside [low, high] is a zero, or it is at
// the border and does not move, or it is reflected.
inline constexpr Index kGridPoints = 64;
struct GridAxis {
  Index extent;
  double half, before, low, high;
};
enum class GridPadding : int { kZeros, kBorder, kReflection };
struct GridArgs {
  const float* grid;  // [n, 2]: along the width, along the height
  Index n;
  GridAxis height, width;
  GridPadding padding;
  bool nearest;
  // [2 * 2, kGridPoints], that of the height first; or [kGridPoints].
  int* at;  // -1: a zero beyond the border
  float* weight;
  float* slope;  // [2, 2 * 2, kGridPoints]: of the weights, along the height and along the width; or null. The nearest one has none
};

// How many channels lie next to each other where there are so many: 4, 8 or 16.
constexpr Index GridLanes(Index channels) { return channels <= 4 ? 4 : channels <= 8 ? 8 : 16; }

// Gradients through n such points, or points of more taps and dimensions, of `channels` (4, 8 or 16) that lie next to each other.
struct GridGradientArgs {
  Index n, taps, dims, channels;
  // [taps, kGridPoints] and [dims, taps, kGridPoints], as above.
  const int* at;
  const float *weight, *slope;
  const float* dy;  // [n, channels]
  float* dx;        // [inputs, channels], is added to; or null
  const float* x;   // [inputs, channels]; null where dgrid is not wanted
  double* dgrid;    // [n, dims], the innermost dimension first: sums over these channels
};

// Rows of n elements that are normalised; bias may be null.
struct LayerNormArgs {
  Index n;
  const float *scale, *bias;
  float epsilon;
};

// An optimizer's step over n elements; `step` is its coefficients (kernels/scalar/optimizers.h, float). The
// next values may lie on the present ones.
struct UpdateArgs {
  const void* step;
  const float *gradient, *parameter;
  const float* states[3];
  float* next;
  float* next_states[3];
  float clip;  // multiplies the gradient
  Index n;
};
using UpdateFunction = void (*)(const UpdateArgs&);
enum class UpdateLoop : int { kSgd, kMomentum, kAdam, kAmsgrad, kRmsProp1, kRmsProp2, kRmsProp3, kAdagrad, kAdadelta, kAdamax, kLamb };

// Cells of recurrent operators: `n` hidden units of one sequence at one step. Blocks of a row of gates (in ONNX's order, after
// their activations) and of biases lie `hidden` apart; of `step`, the product of the state with R, `step_stride`. All pointers are
// at the first of the units.
struct LstmCell {
  Index n, hidden, step_stride;
  const float *step, *bias;
  const float* peephole;  // i, o, f; or null
  const float* c0;
  float* gates;  // i, o, f, c: the projection of X before; and behind them the cell state
  float *h1, *y;
};
// dh and dc: of the states after the step, then what of those before it does not go through R. dz: of the gates' arguments.
struct LstmGradCell {
  Index n, hidden;
  const float *gates, *peephole, *c0;
  const float *dy, *through;  // the parts of h's gradient by Y and through R
  float *dh, *dc, *dz;
};
// Biases z, r, h and, where `linear` (linear_before_reset), that of R's h; `gates` as many: the last is R h + bias.
struct GruCell {
  Index n, hidden, step_stride;
  bool linear;
  const float *step, *bias, *h0;
  float *gates, *h1, *y;
  float* reset;  // not linear: r * h0
};
struct GruGradCell {
  Index n, hidden;
  bool linear;
  const float *gates, *h0, *dy, *through;
  float *dh, *dz;  // dz: as many blocks as gates; the last is the gradient of R h + bias
  float* reset;
};
struct RnnCell {
  Index n;
  bool relu;  // instead of the hyperbolic tangent
  const float *projected, *step, *bias;
  float *h1, *y;
};
struct RnnGradCell {
  Index n;
  bool relu;
  const float *y, *dy, *through;
  float *dh, *dz;
};

struct Loops {
  const char* name;                // "avx512", "avx2", "baseline"
  const PointwiseLoop* pointwise;  // by PointwiseOp

  // Truth values, a byte each, to floats and back.
  void (*load_bool)(const unsigned char* from, float* to, Index n);
  void (*store_bool)(const float* from, unsigned char* to, Index n);
  // The same for 16-bit floats; stores round to nearest even.
  void (*load_float16)(const unsigned short* from, float* to, Index n);
  void (*store_float16)(const float* from, unsigned short* to, Index n);
  void (*load_bfloat16)(const unsigned short* from, float* to, Index n);
  void (*store_bfloat16)(const float* from, unsigned short* to, Index n);
  void (*fill)(float* to, float value, Index n);
  const QuantizeLoop* quantize;      // by SmallInteger
  const DequantizeLoop* dequantize;  // by SmallInteger

  // The reduction of n contiguous elements, in an order that depends on n alone; n >= 1.
  float (*const* reduce_row)(const float* x, Index n);
  // into[j] = f(into[j], x[j]) over rows of `columns` elements that lie `stride` apart.
  void (*const* reduce_columns)(const float* x, Index rows, Index stride, Index columns, float* into);

  // y = softmax or its logarithm of n contiguous elements; y may be x.
  void (*softmax_row)(const float* x, float* y, Index n);
  void (*log_softmax_row)(const float* x, float* y, Index n);
  // The same down `columns` columns of n elements that lie `stride` apart; `work` has 2 * columns floats.
  void (*softmax_columns)(const float* x, float* y, Index n, Index stride, Index columns, float* work);
  void (*log_softmax_columns)(const float* x, float* y, Index n, Index stride, Index columns, float* work);
  // g = scale p (g - sum(p g)): from the gradient of n probabilities that of what the softmax took.
  void (*softmax_grad_row)(const float* p, float* g, Index n, float scale);
  // y[j] = exp(x[j]) * factor.
  void (*exp_scaled)(const float* x, float* y, Index n, float factor);

  // The sums of (x - mean)^2 and of g (x - mean).
  double (*sum_squared_distance)(const float* x, Index n, float mean);
  double (*sum_product_centred)(const float* g, const float* x, Index n, float mean);
  // y = (x - mean) scale + shift; y may be x.
  void (*shift_scale_shift)(const float* x, float* y, Index n, float mean, float scale, float shift);
  // dx = slope (g - mean_g - (x - mean) along); dx may be g or x.
  void (*norm_gradient)(const float* g, const float* x, float* dx, Index n, float slope, float mean_g, float mean, float along);
  // The four above for `columns` channels that lie next to each other: `rows` rows of them without a gap, each channel
  // with numbers of its own. The first two overwrite; rows are few enough for one float sum.
  void (*column_moments)(const float* x, Index rows, Index columns, float* mean, float* squares);
  void (*column_products)(const float* g, const float* x, Index rows, Index columns, const float* mean, float* sum, float* product);
  void (*shift_scale_shift_columns)(const float* x, float* y, Index rows, Index columns, const float* mean, const float* scale,
                                    const float* shift);
  void (*norm_gradient_columns)(const float* g, const float* x, float* dx, Index rows, Index columns, const float* slope,
                                const float* mean_g, const float* mean, const float* along);
  // dx = slope g - (x - mean) along - shift; dx may be g or x. And for rows of channels, as above.
  void (*group_gradient)(const float* g, const float* x, float* dx, Index n, float slope, float mean, float along, float shift);
  void (*group_gradient_columns)(const float* g, const float* x, float* dx, Index rows, Index columns, const float* slope,
                                 const float* mean, const float* along, const float* shift);
  // y = x scale / root mean square; y may be x. args has no bias.
  void (*rms_norm_row)(const LayerNormArgs& args, const float* x, float* y);
  // Adds to dscale; dx may be g or x.
  void (*rms_norm_grad_row)(const LayerNormArgs& args, const float* g, const float* x, float* dx, float* dscale);
  // mean and inv_std may be null; y may be x.
  void (*layer_norm_row)(const LayerNormArgs& args, const float* x, float* y, float* mean, float* inv_std);
  // Adds to dscale and dbias; dx may be g or x.
  void (*layer_norm_grad_row)(const LayerNormArgs& args, const float* g, const float* x, float* dx, float* dscale, float* dbias);

  // bases = bias + factor * (the sum of x^2 over the window), powers = bases^-beta.
  void (*local_response)(const ResponseArgs& args, const float* x, float* bases, float* powers);
  // From the gradient of x * powers that of x.
  void (*local_response_grad)(const ResponseArgs& args, const float* dy, const float* x, const float* bases, const float* powers,
                              float* dx);

  void (*fourier_pass)(const FourierPassArgs& args);

  Index ring_lines;  // lanes of a vector
  // In place: the values at the roots of z^M = i, in an order of their own; and back, times `scale`, 1 / M for what was there before.
  void (*ring_forward)(const RingPass* passes, Index count, float* data);
  void (*ring_backward)(const RingPass* passes, Index count, float scale, float* data);
  void (*ring_products)(const RingProductArgs& args);
  void (*ring_sums)(const RingSumArgs& args);

  // Whether none of them is a zero beyond the border; and y[p] = the sum of four weights times x. `inside`: what the first said.
  bool (*grid_points)(const GridArgs& args);
  void (*grid_samples)(const int* at, const float* weight, const float* x, Index n, bool inside, float* y);
  void (*grid_gradients)(const GridGradientArgs& args);

  const UpdateFunction* updates;  // by UpdateLoop

  // A product of small matrices; `pack` has MatrixPackFloats(k, n) floats.
  void (*matrix)(const MatrixArgs& args, float* pack);
  // The same in two parts, for a b that is used many times: panels of `matrix_panel` columns, each k * matrix_panel floats.
  Index matrix_panel;
  void (*pack_matrix)(const MatrixArgs& args, float* pack);
  void (*multiply_packed)(const MatrixArgs& args, const float* pack);

  Index panel_rows;  // of a tile of a product with a panel, at most
  void (*add_outer_products)(const OuterArgs& args);

  // Channels are whole vectors everywhere here.
  void (*winograd_patch)(const WinogradPatchArgs& args);
  void (*winograd_pair)(const WinogradPatchArgs& args);
  void (*winograd_filter)(const WinogradFilterArgs& args);
  // 2 x 2 points of y; null where there is none.
  void (*winograd_output)(const float* from, Index plane, Index columns, const float* bias, float* const* points);
  void (*winograd_filter_gradient)(const WinogradFilterGradArgs& args);
  void (*winograd_products)(const WinogradTileArgs& args);

  // The largest of a window, or which point it is: the first of equal ones; a NaN is the largest.
  void (*largest)(const PoolArgs& args, float* value);
  void (*largest_place)(const PoolArgs& args, int* place);
  // to[i] = g[i] where place[i] is first + own[i], else 0.
  void (*pick_places)(const int* place, const int* own, int first, const float* g, Index n, float* to);
  // to[i] += g[i] where place[i] is `own`.
  void (*add_picked)(const int* place, int own, const float* g, Index n, float* to);
  // to[i] += the sum over points p of a[p * a_step + i] * b[p * b_step + i].
  void (*add_products)(const float* a, Index a_step, const float* b, Index b_step, Index points, Index n, float* to);
  // to[groups, times, width]: groups of `width` elements that lie `from_step` apart, each so many times.
  void (*repeat_groups)(const float* from, Index from_step, Index width, Index groups, Index times, float* to);

  void (*lstm)(const LstmCell& cell);
  void (*lstm_grad)(const LstmGradCell& cell);
  void (*rnn)(const RnnCell& cell);
  void (*rnn_grad)(const RnnGradCell& cell);
  // Where not linear, the second of each follows the product with R's h.
  void (*gru_gates)(const GruCell& cell);
  void (*gru_candidate)(const GruCell& cell);
  void (*gru_grad_gates)(const GruGradCell& cell);
  void (*gru_grad_reset)(const GruGradCell& cell);

  // The words of Philox4x32-10 (runtime/base/philox.h) of `blocks` counters from `first` on, four each: words[4 * blocks], and behind them
  // what is left of a vector of blocks, up to kRandomSlack words.
  void (*random_words)(unsigned long first, unsigned key0, unsigned key1, Index blocks, unsigned* words);
  // Of a word's uniform number u in [0, 1): y = x scale where u >= ratio, else 0 (y may be x); y = low + range u; and of each two
  // words two independent normal numbers.
  void (*dropout)(const float* x, const unsigned* words, Index n, float ratio, float scale, float* y);
  void (*uniform_numbers)(const unsigned* words, Index n, float low, float range, float* y);
  void (*normal_numbers)(const unsigned* words, Index pairs, float mean, float scale, float* y);

  // to[i, j] = from[j, i] over rows * columns elements of `to`.
  void (*transpose)(const float* from, Index from_stride, float* to, Index to_stride, Index rows, Index columns);
};

inline constexpr Index kRandomSlack = 60;

// Floats of packing for MatrixArgs of these extents.
constexpr Index MatrixPackFloats(Index k, Index n) { return k * ((n + 31) / 32 * 32); }

// The loops of the best instruction set that this machine has, or that ONEDNN_MAX_CPU_ISA in the environment allows.
const Loops& BestLoops();

// The same by name, or null where this machine lacks it.
const Loops* LoopsByName(const char* name);

}  // namespace gradloom
