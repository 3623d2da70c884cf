#include "kernels/cpu/product/product.h"

#include "kernels/cpu/product/long_product.h"

namespace gradloom {
namespace {

dnnl::memory::desc Matrix(int64_t rows, int64_t columns, int64_t row, int64_t column) { return OneDnnDesc({rows, columns}, {row, column}); }

MatrixProduct ProductOf(const ProductShape& s) {
  MatrixProduct p;
  p.m = s.m;
  p.n = s.n;
  p.k = s.k;
  p.a_row = s.a_row;
  p.a_col = s.a_col;
  p.b_row = s.b_row;
  p.b_col = s.b_col;
  return p;
}

}  // namespace

ProductPlan::ProductPlan(const ProductShape& shape, int threads, bool fixed_order) : threads_(threads) {
  MatrixProduct product = ProductOf(shape);
  if (PrefersBlockedProducts() && (fixed_order || PackingPaysOff(product))) {
    own_.emplace(product, DType::kFloat32, threads);
    own_->SetResult(shape.c_row, shape.adds);
    return;
  }
  if (fixed_order && LongProduct::Serves(product) && shape.c_row == shape.n) {
    if (shape.adds) {
      // The previous result is the addend.
      product.has_bias = true;
      product.bias_row = shape.n;
      product.bias_col = 1;
    }
    long_ = product;
    return;
  }
  const OneDnnTeam team(threads);
  PrepareOneDnn(shape);
}

void ProductPlan::PrepareOneDnn(const ProductShape& s) {
  a_ = Matrix(s.m, s.k, s.a_row, s.a_col);
  b_ = Matrix(s.k, s.n, s.b_row, s.b_col);
  c_ = Matrix(s.m, s.n, s.c_row, 1);
  dnnl::primitive_attr attr = OneDnnUserScratch();
  dnnl::post_ops after;
  if (s.adds) after.append_sum(1.0f);
  attr.set_post_ops(after);
  desc_ = dnnl::matmul::primitive_desc(OneDnnEngine(), a_, b_, c_, attr);
}

int64_t ProductPlan::scratch_bytes() const {
  if (own_) return own_->scratch_bytes();
  return long_ ? LongProduct::ScratchBytes(*long_, threads_) : static_cast<int64_t>(desc_.scratchpad_desc().get_size());
}

PreparedProduct::PreparedProduct(const ProductPlan& plan) : own_(plan.own_) {
  if (own_) return;
  if (plan.long_) {
    long_ = std::make_unique<LongProduct>(*plan.long_, plan.threads_);
    return;
  }
  library_.emplace([&plan] { return dnnl::matmul(plan.desc_); },
                   std::vector<OneDnnPrimitive::Argument>{{DNNL_ARG_SRC, plan.a_},
                                                          {DNNL_ARG_WEIGHTS, plan.b_},
                                                          {DNNL_ARG_DST, plan.c_},
                                                          {DNNL_ARG_SCRATCHPAD, plan.desc_.scratchpad_desc()}},
                   plan.threads_);
}

PreparedProduct::~PreparedProduct() = default;
PreparedProduct::PreparedProduct(PreparedProduct&& other) noexcept = default;

void PreparedProduct::Run(const float* a, const float* b, float* c, void* scratch) {
  if (own_) {
    own_->Run(a, b, nullptr, c, scratch);
  } else if (long_) {
    const void* const inputs[] = {a, b, c};
    void* const outputs[] = {c};
    long_->Run(inputs, outputs, scratch, nullptr);
  } else {
    library_->Run({a, b, c, scratch});
  }
}

}  // namespace gradloom
