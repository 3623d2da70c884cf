// The innermost loops, compiled from the same source once per instruction set. This header is all that callers and loops share. It uses
// only plain types and no standard library, so no inline function of the library is compiled for an instruction set that the machine may
// lack.
#pragma once

namespace gradloom {

using Index = long;  // int64_t, without including its header
static_assert(sizeof(Index) == 8);

// d[i] = f(a[i], b[i], c[i]) for i < n; unused operands are null. d may be a, b or c.
struct PointwiseArgs {
  const float *a, *b, *c;
  float* d;
  Index n;
};
using PointwiseLoop = void (*)(const PointwiseArgs&);

// kLogSumExp is log(sum(exp(x))), computed relative to the maximum.
enum class Reduction : int { kSum, kSumSquare, kSumAbs, kMax, kMin, kProd, kLogSumExp };

enum class SmallInteger : int { kUint8, kInt8, kUint16, kInt16 };
// Quantization: y = x / scale, rounded to even, plus zero, clamped to the integer type; and back: x = (y - zero) scale. `zero` is in the
// range of the type.
using QuantizeLoop = void (*)(const float* x, Index n, float scale, int zero, void* y);
using DequantizeLoop = void (*)(const void* x, Index n, float scale, int zero, float* y);

// c = alpha a b + beta bias, or with `adds`, alpha (c + a b) + beta bias; for small matrices.
struct MatrixArgs {
  Index m, n, k;
  const float *a, *b;
  Index a_row, a_col, b_row, b_col;  // strides in elements
  const float* bias;                 // added to every row: element j is bias[j * bias_step]; or null
  Index bias_step;
  float* c;
  Index c_row;  // the elements of a row are contiguous
  float alpha, beta;
  bool adds;
};

// The most rows of a with which a b whose columns are contiguous is multiplied faster in place than after packing it.
inline constexpr Index kFewRows = 8;

// A product of bfloat16 matrices with float32 sums: c = a b, or with `adds`, c += a b. m is a multiple of 16; n and k are multiples of
// kPairColumns. b consists of panels of kPairColumns columns. Row p of a panel holds the pairs b[2 p, j], b[2 p + 1, j], one after the
// other in 32 bits each.
inline constexpr Index kPairColumns = 32;
struct PairArgs {
  Index m, n, k;
  const unsigned short* a;
  Index a_row;  // the elements of a row are contiguous
  const unsigned* b;
  Index b_panel;  // pairs from one panel to the next
  float* c;
  Index c_row;
  bool adds;
};
using PairProduct = void (*)(const PairArgs&);

// A tile c[rows, matrix_panel] of sums of outer products, with rows <= panel_rows. Only `columns` columns are needed, which are one vector
// or two. The sums run over runs of points of a and b: points are `a_step` elements apart in a, and matrix_panel in b. With `adds`, c is
// accumulated.
struct OuterRun {
  Index a, b, points;  // the offsets of its first points in a and b, and its length
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

// Winograd convolution (kernels/cpu/convolution/winograd.cc). A patch of 4 x 4 points becomes 16 numbers per channel, each in a plane of
// its own. Channels are stored in chunks of kWinogradChunk where they are the rows of a product, and in panels of matrix_panel where they
// are its columns.
inline constexpr Index kWinogradChunk = 64;
// The points of a patch of x, whose chunks are `step` apart, or of a tile of the gradient of y, whose panels are. Computes part `part` of
// the planes, which are divided into 1, 2 or 4 parts.
struct WinogradPatchArgs {
  const float* const* points;
  Index channels;
  float* to;
  Index plane, step;
  Index part, parts;
};
// Filters w[3 * 3 taps, rows, columns], with the columns of a vector contiguous, and their 16 planes.
struct WinogradFilterArgs {
  const float* w;
  Index tap_step, row_step, vector_step, rows, columns;
  float* to;
  Index plane, to_step;
};
// The inverse, from the planes of a gradient to the gradient of the filters.
struct WinogradFilterGradArgs {
  const float* from;
  Index plane, from_step, rows, columns;
  float* w;
  Index tap_step, row_step, vector_step;
};
// c[rows, panel] = a b for a panel b[depth, panel]. The rows of a are a chunk apart, and its chunks of depth a_step. With `adds`, c is
// accumulated. `columns` is one vector or two.
struct WinogradTileArgs {
  Index rows, columns, depth;
  const float* a;
  Index a_step;
  const float* b;
  float* c;
  bool adds;
};

// y[p * y_step + c] = bias[c] + the sum over t < count of x[p * x_step + taps[t].x + c] * w[taps[t].w + c] for each of `points` points and
// each of `channels` channels.
struct DepthwiseTap {
  Index x, w;  // offsets in elements
};
struct DepthwiseArgs {
  const float* x;
  Index x_step;
  const float* w;
  const DepthwiseTap* taps;
  Index count;
  const float* bias;  // or null
  float* y;
  Index y_step, points, channels;
};

// The gradient of a row of windows with a filter for each channel: to[t * channels + c] += the sum, over the points p of taps[t] in order,
// of x[taps[t].x + p * x_step + c] * y[p * y_step + c]. Points are those of y.
struct DepthwiseGradTap {
  Index x;  // may be negative if the tap has no point 0
  Index begin, end;
};
struct DepthwiseGradArgs {
  const float* x;
  Index x_step;
  const float* y;
  Index y_step, channels;
  const DepthwiseGradTap* taps;
  Index count;
  float* to;
};

// The same for groups of `channels` channels of x and as many of y, which are 4 or 8 and divide a vector: over several rows, for each
// channel k of a group, to[(t * channels + k) * lanes + l] += the sum of x[taps[t].x + p * x_step + k + l / channels * channels] *
// y[p * y_step + l] for each lane l.
struct GroupedGradRow {
  Index x, y;  // offsets in elements
};
struct GroupedGradArgs {
  const float* x;
  Index x_step;
  const float* y;
  Index y_step, channels;
  const DepthwiseGradTap* taps;
  Index count;
  const GroupedGradRow* rows;
  Index row_count;
  float* to;
};

// A pooling window with `taps` >= 1 points, each a row of n elements: element i of point t is x[points[t] * stride + i].
struct PoolArgs {
  const float* x;
  const int* points;
  Index taps, stride, n;
};

// Local response normalization of a tile [channels, kResponsePoints]. The window of a channel extends from `before` channels before it to
// `after` channels after it, clipped to the tile.
inline constexpr Index kResponsePoints = 64;
struct ResponseArgs {
  Index channels, before, after;
  float bias, factor, beta;  // factor: alpha / size
};

// One pass of a Fourier transform of kFourierLines interleaved lines of n elements, by Stockham's algorithm, which leaves the result in
// natural order. An element is stored as kFourierLines real parts followed by as many imaginary parts. n = done * radix * rest; earlier
// passes have processed the factors in `done`. With x' and y' as arrays of n elements,
//   y'[q + done (radix p + k)] = twiddle^(p k) sum over j < radix of x'[q + done (p + rest j)] root^(j k),
// twiddle = e^(sign 2 pi i / (radix rest)), root = e^(sign 2 pi i / radix).
inline constexpr Index kFourierLines = 8;
inline constexpr Index kLargestFourierRadix = 64;
struct FourierPassArgs {
  Index radix, done, rest;  // radix: 2, 4, or odd and at most kLargestFourierRadix
  double sign;              // -1: forward, 1: inverse
  const double* twiddles;   // [rest, radix], real and imaginary part of each
  const double* roots;      // [radix], likewise
  const double* x;
  double* y;  // must not be x
};

// The last pass of a transform of 2 `half` real numbers x as one of `half` complex ones, x[2 t] + i x[2 t + 1], and the first pass of its
// inverse, both in place. A spectrum has half + 1 elements. The complex transform z = E + i O consists of those of the even and the odd
// numbers, which it contains since both are mirrored: E[k] + i O[k] = z[k], conj(E[k]) + i conj(O[k]) = z[half - k]. The spectrum is E[k] +
// twiddle[k] O[k].
struct FourierHalvesArgs {
  Index half;
  const double* twiddles;  // [half / 2 + 1] e^(-2 pi i k / (2 half)), real and imaginary part of each
  double* elements;        // [half + 1] as in FourierPassArgs
};

// Polynomials with real coefficients a[j], j < 2 M, modulo z^(2 M) + 1 (kernels/cpu/ring.h), interleaved for as many lines as a vector has
// lanes: element j < M holds a[j] of all lines, then a[j + M], that is, a[j] + i a[j + M] modulo z^M - i. Each pass has `blocks` blocks. It
// maps a block's remainder modulo z^(radix span) - d^radix to the remainders modulo z^span - d root, for each root with root^radix = 1.
struct RingPass {
  Index radix, blocks, span;  // radix is 2, 3 or 4; radix * blocks * span = M
  const float* twiddles;      // [blocks, radix - 1]: d, d^2, ..., real and imaginary part of each
};
inline constexpr Index kRingTerms = 4;
// c[row] = the pointwise sum over terms of conj(v[term]) s[row], where only lane `term` of s is used, as a scalar for all lanes of v. With
// `adds`, c is accumulated. `v_step`, `s_row` and `c_row` count floats.
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
// c[column] = the pointwise sum over rows of conj(v[row]) s[row], where only lane `column` of s is used.
struct RingSumArgs {
  Index elements, columns, rows;  // at most kRingTerms columns
  const float* v;
  Index v_row;
  const float* s;
  Index s_row;
  float* c;
  Index c_step;
};

// The elements of a plane [height, width] that each of n <= kGridPoints grid points reads, four or with `nearest` one, with their weights.
// A coordinate g is at position (g + 1) * half - before along an axis. Positions outside [low, high] read zeros, are clamped to the border
// with a derivative of 0, or are reflected.
inline constexpr Index kGridPoints = 64;
struct GridAxis {
  Index extent;
  double half, before, low, high;
};
enum class GridPadding : int { kZeros, kBorder, kReflection };
struct GridArgs {
  const float* grid;  // [n, 2]: coordinate along the width, then along the height
  Index n;
  GridAxis height, width;
  GridPadding padding;
  bool nearest;
  // [2 * 2, kGridPoints], the height varies slowest; [kGridPoints] if nearest.
  int* at;  // -1: in the zero padding
  float* weight;
  float* slope;  // [2, 2 * 2, kGridPoints]: derivatives of the weights along height and width; or null. Unused if nearest
};

// The number of channels to interleave: 4, 8 or 16.
constexpr Index GridLanes(Index channels) { return channels <= 4 ? 4 : channels <= 8 ? 8 : 16; }

// Gradients for n such points, or for points with other numbers of taps and dimensions, of `channels` (4, 8 or 16) interleaved channels.
struct GridGradientArgs {
  Index n, taps, dims, channels;
  // [taps, kGridPoints] and [dims, taps, kGridPoints], as above.
  const int* at;
  const float *weight, *slope;
  const float* dy;  // [n, channels]
  float* dx;        // [inputs, channels], accumulated; or null
  const float* x;   // [inputs, channels]; null if dgrid is not wanted
  double* dgrid;    // [n, dims], innermost dimension first: sums over these channels
};

// Rows of n elements to normalize; bias may be null.
struct LayerNormArgs {
  Index n;
  const float *scale, *bias;
  float epsilon;
};

// An optimizer update of n elements. `step` points to its coefficients (kernels/scalar/optimizers.h, T = float). The next values may
// overwrite the current ones.
struct UpdateArgs {
  const void* step;
  const float *gradient, *parameter;
  const float* states[3];
  float* next;
  float* next_states[3];
  float clip;  // factor of the gradient
  Index n;
};
using UpdateFunction = void (*)(const UpdateArgs&);
enum class UpdateLoop : int {
  kSgd,
  kMomentum,
  kAdam,
  kAmsgrad,
  kNAdam,
  kRAdam,
  kLion,
  kRmsProp1,
  kRmsProp2,
  kRmsProp3,
  kAdagrad,
  kAdadelta,
  kAdamax,
  kLamb,
  kMovingAverage
};

// The cells of the recurrent operators, for `n` hidden units of one sequence at one step. A row of gates (in ONNX's order, activations
// applied) and a row of biases consist of blocks `hidden` apart; `step`, the product of the state with R, has blocks `step_stride` apart.
// All pointers are to the first of these units.
struct LstmCell {
  Index n, hidden, step_stride;
  const float *step, *bias;
  const float* peephole;  // i, o, f; or null
  const float* c0;
  float* gates;  // i, o, f, c: on entry the projection of X; followed by the cell state
  float *h1, *y;
};
// On entry, dh and dc are the gradients of the states after the step, on exit of those before it, without the part of dh through R. dz: the
// gradients of the gates' pre-activations.
struct LstmGradCell {
  Index n, hidden;
  const float *gates, *peephole, *c0;
  const float *dy, *dh_recurrent;  // the parts of the gradient of h from Y and through R
  float *dh, *dc, *dz;
};
// Biases z, r, h and, if `linear` (linear_before_reset), R's bias of h. `gates` has the same blocks; the last one is the recurrent product
// of h plus its bias.
struct GruCell {
  Index n, hidden, step_stride;
  bool linear;
  const float *step, *bias, *h0;
  float *gates, *h1, *y;
  float* reset;  // r * h0, if not linear
};
struct GruGradCell {
  Index n, hidden;
  bool linear;
  const float *gates, *h0, *dy, *dh_recurrent;
  float *dh, *dz;  // dz has as many blocks as gates; the last is the gradient of the recurrent product of h plus its bias
  float* reset;
};
struct RnnCell {
  Index n;
  bool relu;  // instead of tanh
  const float *projected, *step, *bias;
  float *h1, *y;
};
struct RnnGradCell {
  Index n;
  bool relu;
  const float *y, *dy, *dh_recurrent;
  float *dh, *dz;
};

struct Loops {
  const char* name;                // "avx512", "avx2", "baseline"
  const PointwiseLoop* pointwise;  // by PointwiseOp

  // Booleans, one byte each, to floats and back.
  void (*load_bool)(const unsigned char* from, float* to, Index n);
  void (*store_bool)(const float* from, unsigned char* to, Index n);
  // 16-bit floats to floats and back; stores round to nearest even.
  void (*load_float16)(const unsigned short* from, float* to, Index n);
  void (*store_float16)(const float* from, unsigned short* to, Index n);
  void (*load_bfloat16)(const unsigned short* from, float* to, Index n);
  void (*store_bfloat16)(const float* from, unsigned short* to, Index n);
  void (*fill)(float* to, float value, Index n);
  const QuantizeLoop* quantize;      // by SmallInteger
  const DequantizeLoop* dequantize;  // by SmallInteger

  // The reduction of n >= 1 contiguous elements, in an order that depends only on n.
  float (*const* reduce_row)(const float* x, Index n);
  // into[j] = f(into[j], x[j]) over `rows` rows of `columns` elements, `stride` apart.
  void (*const* reduce_columns)(const float* x, Index rows, Index stride, Index columns, float* into);

  // y = softmax or log-softmax of n contiguous elements; y may be x.
  void (*softmax_row)(const float* x, float* y, Index n);
  void (*log_softmax_row)(const float* x, float* y, Index n);
  // The same for `columns` columns of n elements that are `stride` apart; `work` has 2 * columns floats.
  void (*softmax_columns)(const float* x, float* y, Index n, Index stride, Index columns, float* work);
  void (*log_softmax_columns)(const float* x, float* y, Index n, Index stride, Index columns, float* work);
  // g = scale p (g - sum(p g)): from the gradient of softmax's output p to the gradient of its input, times `scale`.
  void (*softmax_grad_row)(const float* p, float* g, Index n, float scale);
  // y[j] = exp(x[j]) * factor for x[j] <= 0; 0 where exp(x[j]) is subnormal.
  void (*exp_scaled)(const float* x, float* y, Index n, float factor);

  // The sums of (x - mean)^2 and of g (x - mean).
  double (*sum_squared_distance)(const float* x, Index n, float mean);
  double (*sum_product_centered)(const float* g, const float* x, Index n, float mean);
  // y = (x - mean) scale + shift; y may be x.
  void (*shift_scale_shift)(const float* x, float* y, Index n, float mean, float scale, float shift);
  // dx = grad_scale (g - mean_g - (x - mean) proj_scale); dx may be g or x.
  void (*norm_gradient)(const float* g, const float* x, float* dx, Index n, float grad_scale, float mean_g, float mean, float proj_scale);
  // The four functions above for `columns` interleaved channels, in `rows` contiguous rows; each channel has its own parameters. The first
  // two overwrite their results; `rows` must be small enough for a plain float sum.
  void (*column_moments)(const float* x, Index rows, Index columns, float* mean, float* squares);
  void (*column_products)(const float* g, const float* x, Index rows, Index columns, const float* mean, float* sum, float* product);
  void (*shift_scale_shift_columns)(const float* x, float* y, Index rows, Index columns, const float* mean, const float* scale,
                                    const float* shift);
  void (*norm_gradient_columns)(const float* g, const float* x, float* dx, Index rows, Index columns, const float* grad_scale,
                                const float* mean_g, const float* mean, const float* proj_scale);
  // dx = grad_scale g - (x - mean) proj_scale - shift; dx may be g or x. Also for interleaved channels, as above.
  void (*group_gradient)(const float* g, const float* x, float* dx, Index n, float grad_scale, float mean, float proj_scale, float shift);
  void (*group_gradient_columns)(const float* g, const float* x, float* dx, Index rows, Index columns, const float* grad_scale,
                                 const float* mean, const float* proj_scale, const float* shift);
  // y = x scale / root mean square; y may be x. args.bias is null.
  void (*rms_norm_row)(const LayerNormArgs& args, const float* x, float* y);
  // Accumulates dscale; dx may be g or x.
  void (*rms_norm_grad_row)(const LayerNormArgs& args, const float* g, const float* x, float* dx, float* dscale);
  // mean and inv_std may be null; y may be x.
  void (*layer_norm_row)(const LayerNormArgs& args, const float* x, float* y, float* mean, float* inv_std);
  // Accumulates dscale and dbias; dx may be g or x.
  void (*layer_norm_grad_row)(const LayerNormArgs& args, const float* g, const float* x, float* dx, float* dscale, float* dbias);

  // bases = bias + factor * (sum of x^2 over the window); powers = bases^-beta.
  void (*local_response)(const ResponseArgs& args, const float* x, float* bases, float* powers);
  // Computes the gradient of x from dy, the gradient of x * powers.
  void (*local_response_grad)(const ResponseArgs& args, const float* dy, const float* x, const float* bases, const float* powers,
                              float* dx);

  void (*fourier_pass)(const FourierPassArgs& args);
  void (*fourier_join_halves)(const FourierHalvesArgs& args);   // from z to the spectrum
  void (*fourier_split_halves)(const FourierHalvesArgs& args);  // from the spectrum to 2 z

  Index ring_lines;  // the number of lanes of a vector
  // Both in place. Forward computes the values at the roots of z^M = i, in an unspecified order. Backward inverts it and multiplies by
  // `scale`: the forward input is restored with scale = 1 / M.
  void (*ring_forward)(const RingPass* passes, Index count, float* data);
  void (*ring_backward)(const RingPass* passes, Index count, float scale, float* data);
  void (*ring_products)(const RingProductArgs& args);
  void (*ring_sums)(const RingSumArgs& args);

  // grid_points returns whether no point reads padding; pass the result as `inside` to grid_samples, which computes y[p] = the sum of four
  // weights times elements of x.
  bool (*grid_points)(const GridArgs& args);
  void (*grid_samples)(const int* at, const float* weight, const float* x, Index n, bool inside, float* y);
  void (*grid_gradients)(const GridGradientArgs& args);

  const UpdateFunction* updates;  // by UpdateLoop

  // A product of small matrices; `pack` has MatrixPackFloats(k, n) floats.
  void (*matrix)(const MatrixArgs& args, float* pack);
  // The same in two parts, for a b that is reused: panels of `matrix_panel` columns, each of k * matrix_panel floats.
  Index matrix_panel;
  void (*pack_matrix)(const MatrixArgs& args, float* pack);
  void (*multiply_packed)(const MatrixArgs& args, const float* pack);
  // The columns [begin, end) of a product with b as it is: of at most kFewRows rows if b's columns are contiguous (b_row = 1), or of one
  // row if its rows are (b_col = 1). a_col is 1, and there is no `adds`.
  void (*multiply_few_rows)(const MatrixArgs& args, Index begin, Index end);

  // The pairs of two rows of bfloat16: to[i] = first[i] | second[i] << 16; the same for floats, which are rounded to nearest even.
  void (*pair_rows)(const unsigned short* first, const unsigned short* second, unsigned* to, Index n);
  void (*round_pairs)(const float* first, const float* second, unsigned* to, Index n);
  PairProduct multiply_pairs;  // by float32 arithmetic; see PairProductByName

  Index panel_rows;  // the largest number of rows in a tile of a product with a panel
  void (*add_outer_products)(const OuterArgs& args);

  // The number of channels is a multiple of the vector length here.
  void (*winograd_patch)(const WinogradPatchArgs& args);
  void (*winograd_pair)(const WinogradPatchArgs& args);
  void (*winograd_filter)(const WinogradFilterArgs& args);
  // Computes 2 x 2 points of y; null pointers stand for points outside.
  void (*winograd_output)(const float* from, Index plane, Index columns, const float* bias, float* const* points);
  void (*winograd_filter_gradient)(const WinogradFilterGradArgs& args);
  void (*winograd_products)(const WinogradTileArgs& args);

  // The maximum of a window, or the index of its point: the first one on ties; NaN counts as the maximum.
  void (*largest)(const PoolArgs& args, float* value);
  void (*argmax)(const PoolArgs& args, int* index);
  // to[i] = g[i] if index[i] is first + own[i], else 0.
  void (*select_by_index)(const int* index, const int* own, int first, const float* g, Index n, float* to);
  // to[i] += g[i] if index[i] is `own`.
  void (*add_selected)(const int* index, int own, const float* g, Index n, float* to);
  // Points of a convolution with a filter for each channel. y overlaps none of the others.
  void (*convolve_depthwise)(const DepthwiseArgs& args);
  void (*depthwise_gradient)(const DepthwiseGradArgs& args);
  void (*grouped_gradient)(const GroupedGradArgs& args);  // not with the baseline instruction set
  // Writes to[groups, times, width]: groups of `width` elements that are `from_step` apart, each repeated `times` times.
  void (*repeat_groups)(const float* from, Index from_step, Index width, Index groups, Index times, float* to);

  void (*lstm)(const LstmCell& cell);
  void (*lstm_grad)(const LstmGradCell& cell);
  void (*rnn)(const RnnCell& cell);
  void (*rnn_grad)(const RnnGradCell& cell);
  // Unless linear, the second of each pair runs after the product with R's block of h.
  void (*gru_gates)(const GruCell& cell);
  void (*gru_candidate)(const GruCell& cell);
  void (*gru_grad_gates)(const GruGradCell& cell);
  void (*gru_grad_reset)(const GruGradCell& cell);

  // The words of Philox4x32-10 (runtime/base/philox.h) for `blocks` counters from `first` on, four words each: words[4 * blocks]. Whole
  // vectors of blocks are written, so up to kRandomSlack more words may be overwritten.
  void (*random_words)(unsigned long first, unsigned key0, unsigned key1, Index blocks, unsigned* words);
  // With u in [0, 1), a word as a uniform number: y = x scale if u >= ratio, else 0 (y may be x); y = low + range u; and two independent
  // normal numbers from every two words.
  void (*dropout)(const float* x, const unsigned* words, Index n, float ratio, float scale, float* y);
  void (*uniform_numbers)(const unsigned* words, Index n, float low, float range, float* y);
  void (*normal_numbers)(const unsigned* words, Index pairs, float mean, float scale, float* y);

  // to[i, j] = from[j, i] over rows * columns elements of `to`.
  void (*transpose)(const float* from, Index from_stride, float* to, Index to_stride, Index rows, Index columns);
};

inline constexpr Index kRandomSlack = 60;

// The size of MatrixArgs' packed b, in floats.
constexpr Index MatrixPackFloats(Index k, Index n) { return k * ((n + 31) / 32 * 32); }

// The loops for the best instruction set of this machine that ONEDNN_MAX_CPU_ISA in the environment allows.
const Loops& BestLoops();

// The loops for an instruction set, or null if this machine lacks it.
const Loops* LoopsByName(const char* name);

// Products of pairs by dedicated instructions, "amx" or "avx512_bf16", or null if this machine or operating system lacks them. Both treat
// subnormal numbers as zero.
PairProduct PairProductByName(const char* name);

}  // namespace gradloom
