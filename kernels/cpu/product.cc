#include "kernels/cpu/product.h"

namespace gradloom {
namespace {

dnnl::memory::desc Matrix(int64_t rows, int64_t columns, int64_t row, int64_t column) { return OneDnnDesc({rows, columns}, {row, column}); }

}  // namespace

ProductPlan::ProductPlan(const ProductShape& shape, int threads) : threads_(threads) {
  const OneDnnTeam team(threads);
  Prepare(shape);
  const PaddedOperand padded(
      desc_.impl_info_str(),
      {.m = shape.m, .n = shape.n, .k = shape.k, .a_row = shape.a_row, .a_col = shape.a_col, .b_row = shape.b_row, .b_col = shape.b_col});
  if (padded.is_a() || (padded.is_b() && !shape.packs)) {
    padded_ = padded;
    ProductShape apart = shape;
    (padded.is_a() ? apart.a_col : apart.b_row) = padded.row();
    Prepare(apart);
  }
  packed_bytes_ = shape.packs ? static_cast<int64_t>(desc_.weights_desc().get_size()) : 0;
  scratch_bytes_ = padded_.bytes() + static_cast<int64_t>(desc_.scratchpad_desc().get_size());
}

void ProductPlan::Prepare(const ProductShape& s) {
  a_ = Matrix(s.m, s.k, s.a_row, s.a_col);
  b_ = Matrix(s.k, s.n, s.b_row, s.b_col);
  c_ = Matrix(s.m, s.n, s.c_row, 1);
  dnnl::primitive_attr attr = OneDnnUserScratch();
  dnnl::post_ops after;
  if (s.adds) after.append_sum(1.0f);
  attr.set_post_ops(after);
  const dnnl::memory::desc any({s.k, s.n}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any);
  desc_ = dnnl::matmul::primitive_desc(OneDnnEngine(), a_, s.packs ? any : b_, c_, attr);
}

PreparedProduct::PreparedProduct(const ProductPlan& plan)
    : padded_(plan.padded_),
      threads_(plan.threads_),
      product_([&plan] { return dnnl::matmul(plan.desc_); },
               {{DNNL_ARG_SRC, plan.a_},
                {DNNL_ARG_WEIGHTS, plan.desc_.weights_desc()},
                {DNNL_ARG_DST, plan.c_},
                {DNNL_ARG_SCRATCHPAD, plan.desc_.scratchpad_desc()}},
               plan.threads_) {
  if (plan.packed_bytes_ == 0) return;
  const OneDnnTeam team(plan.threads_);
  const dnnl::reorder::primitive_desc reorder(OneDnnEngine(), plan.b_, OneDnnEngine(), plan.desc_.weights_desc());
  pack_.emplace([&reorder] { return dnnl::reorder(reorder); },
                std::vector<OneDnnPrimitive::Argument>{{DNNL_ARG_FROM, plan.b_}, {DNNL_ARG_TO, plan.desc_.weights_desc()}}, plan.threads_);
}

void PreparedProduct::Pack(const float* b, void* packed) { pack_->Run({b, packed}); }

void PreparedProduct::Run(const float* a, const void* b, float* c, void* scratch) {
  const void* left = a;
  padded_.Copy(left, b, scratch, threads_);
  product_.Run({left, b, c, scratch});
}

}  // namespace gradloom
