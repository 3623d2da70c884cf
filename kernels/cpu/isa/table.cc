#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {

#define GRADLOOM_TEXT(x) #x
#define GRADLOOM_NAME(x) GRADLOOM_TEXT(x)

extern const Loops kLoops;
const Loops kLoops = {
    .name = GRADLOOM_NAME(GRADLOOM_ISA),
    .pointwise = kPointwiseLoops,
    .load_bool = LoadBool,
    .store_bool = StoreBool,
    .load_float16 = LoadFloat16,
    .store_float16 = StoreFloat16,
    .load_bfloat16 = LoadBfloat16,
    .store_bfloat16 = StoreBfloat16,
    .fill = Fill,
    .quantize = kQuantize,
    .dequantize = kDequantize,
    .reduce_row = kRowReductions,
    .reduce_columns = kColumnReductions,
    .softmax_row = SoftmaxRow,
    .log_softmax_row = LogSoftmaxRow,
    .softmax_columns = SoftmaxColumns,
    .log_softmax_columns = LogSoftmaxColumns,
    .softmax_grad_row = SoftmaxGradRow,
    .exp_scaled = ExpScaled,
    .sum_squared_distance = SumSquaredDistance,
    .sum_product_centred = SumProductCentred,
    .shift_scale_shift = ShiftScaleShift,
    .norm_gradient = NormGradient,
    .column_moments = ColumnMoments,
    .column_products = ColumnProducts,
    .shift_scale_shift_columns = ShiftScaleShiftColumns,
    .norm_gradient_columns = NormGradientColumns,
    .group_gradient = GroupGradient,
    .group_gradient_columns = GroupGradientColumns,
    .rms_norm_row = RmsNormRow,
    .rms_norm_grad_row = RmsNormGradRow,
    .layer_norm_row = LayerNormRow,
    .layer_norm_grad_row = LayerNormGradRow,
    .updates = kUpdates,
    .matrix = Matrix,
    .matrix_panel = kMatrixPanel,
    .pack_matrix = PackMatrix,
    .multiply_packed = MultiplyPacked,
    .largest = Largest,
    .largest_place = LargestPlace,
    .pick_places = PickPlaces,
    .add_picked = AddPicked,
    .repeat_groups = RepeatGroups,
    .lstm = LstmForward,
    .lstm_grad = LstmBackward,
    .rnn = RnnForward,
    .rnn_grad = RnnBackward,
    .gru_gates = GruForwardGates,
    .gru_candidate = GruForwardCandidate,
    .gru_grad_gates = GruBackwardGates,
    .gru_grad_reset = GruBackwardReset,
    .random_words = RandomWords,
    .dropout = Dropout,
    .uniform_numbers = UniformNumbers,
    .normal_numbers = NormalNumbers,
    .transpose = Transpose,
};

}  // namespace gradloom::GRADLOOM_ISA
