// The forward and backward cells of LSTM, GRU and RNN, for several hidden units of one sequence at one step.
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

GRADLOOM_INLINE float SigmoidSlope(float y) { return y * (1 - y); }
GRADLOOM_INLINE float TanhSlope(float y) { return 1 - y * y; }

template <bool kPeepholes>
void Lstm(const LstmCell& cell) {
  const Index h = cell.hidden, s = cell.step_stride;
  const float *zi = cell.step, *zo = zi + s, *zf = zo + s, *zg = zf + s;
  const float *bi = cell.bias, *bo = bi + h, *bf = bo + h, *bg = bf + h;
  float *gi = cell.gates, *go = gi + h, *gf = go + h, *gg = gf + h, *c1 = gg + h;
  const float *c0 = cell.c0, *p = cell.peephole;
  float *h1 = cell.h1, *y = cell.y;
#pragma omp simd
  for (Index j = 0; j < cell.n; ++j) {
    const float before = c0[j];
    float i = gi[j] + zi[j] + bi[j], o = go[j] + zo[j] + bo[j], f = gf[j] + zf[j] + bf[j];
    if (kPeepholes) {
      i += p[j] * before;
      f += p[2 * h + j] * before;
    }
    i = scalar::Sigmoid(i);
    f = scalar::Sigmoid(f);
    const float g = scalar::Tanh(gg[j] + zg[j] + bg[j]);
    const float after = f * before + i * g;
    if (kPeepholes) o += p[h + j] * after;
    o = scalar::Sigmoid(o);
    gi[j] = i;
    go[j] = o;
    gf[j] = f;
    gg[j] = g;
    c1[j] = after;
    h1[j] = y[j] = o * scalar::Tanh(after);
  }
}

template <bool kPeepholes>
void LstmGrad(const LstmGradCell& cell) {
  const Index h = cell.hidden;
  const float *gi = cell.gates, *go = gi + h, *gf = go + h, *gg = gf + h, *c1 = gg + h;
  float *zi = cell.dz, *zo = zi + h, *zf = zo + h, *zg = zf + h;
  const float *c0 = cell.c0, *p = cell.peephole, *dy = cell.dy, *dh_recurrent = cell.dh_recurrent;
  float *dh = cell.dh, *dc = cell.dc;
#pragma omp simd
  for (Index j = 0; j < cell.n; ++j) {
    const float i = gi[j], o = go[j], f = gf[j], g = gg[j], squashed = scalar::Tanh(c1[j]);
    const float d_h = dh[j] + dh_recurrent[j] + dy[j];
    const float d_o = d_h * squashed * SigmoidSlope(o);
    float d_c = dc[j] + d_h * o * TanhSlope(squashed);
    if (kPeepholes) d_c += d_o * p[h + j];
    const float d_i = d_c * g * SigmoidSlope(i), d_f = d_c * c0[j] * SigmoidSlope(f);
    zi[j] = d_i;
    zo[j] = d_o;
    zf[j] = d_f;
    zg[j] = d_c * i * TanhSlope(g);
    dh[j] = 0;
    dc[j] = kPeepholes ? d_c * f + (d_i * p[j] + d_f * p[2 * h + j]) : d_c * f;
  }
}

template <bool kRelu>
void Rnn(const RnnCell& cell) {
  const float *x = cell.projected, *z = cell.step, *b = cell.bias;
  float *h1 = cell.h1, *y = cell.y;
#pragma omp simd
  for (Index j = 0; j < cell.n; ++j) {
    const float sum = x[j] + z[j] + b[j];
    h1[j] = y[j] = kRelu ? (sum < 0 ? 0.0f : sum) : scalar::Tanh(sum);
  }
}

template <bool kRelu>
void RnnGrad(const RnnGradCell& cell) {
  const float *y = cell.y, *dy = cell.dy, *dh_recurrent = cell.dh_recurrent;
  float *dz = cell.dz, *dh = cell.dh;
#pragma omp simd
  for (Index j = 0; j < cell.n; ++j) {
    const float slope = kRelu ? (y[j] > 0 ? 1.0f : 0.0f) : TanhSlope(y[j]);
    dz[j] = (dh[j] + dh_recurrent[j] + dy[j]) * slope;
    dh[j] = 0;
  }
}

}  // namespace

void LstmForward(const LstmCell& cell) { cell.peephole != nullptr ? Lstm<true>(cell) : Lstm<false>(cell); }
void LstmBackward(const LstmGradCell& cell) { cell.peephole != nullptr ? LstmGrad<true>(cell) : LstmGrad<false>(cell); }
void RnnForward(const RnnCell& cell) { cell.relu ? Rnn<true>(cell) : Rnn<false>(cell); }
void RnnBackward(const RnnGradCell& cell) { cell.relu ? RnnGrad<true>(cell) : RnnGrad<false>(cell); }

// Gates z and r, and if `linear`, the rest of the cell, for which nothing else is needed.
void GruForwardGates(const GruCell& cell) {
  const Index h = cell.hidden, s = cell.step_stride;
  const float *zz = cell.step, *zr = zz + s, *zh = zr + s;
  const float *bz = cell.bias, *br = bz + h, *bh = br + h, *bs = bh + h;
  float *gz = cell.gates, *gr = gz + h, *gh = gr + h, *gs = gh + h;
  const float* h0 = cell.h0;
  float *h1 = cell.h1, *y = cell.y, *reset = cell.reset;
  if (!cell.linear) {
#pragma omp simd
    for (Index j = 0; j < cell.n; ++j) {
      const float r = scalar::Sigmoid(gr[j] + zr[j] + br[j]);
      gz[j] = scalar::Sigmoid(gz[j] + zz[j] + bz[j]);
      gr[j] = r;
      reset[j] = r * h0[j];
    }
    return;
  }
#pragma omp simd
  for (Index j = 0; j < cell.n; ++j) {
    const float z = scalar::Sigmoid(gz[j] + zz[j] + bz[j]), r = scalar::Sigmoid(gr[j] + zr[j] + br[j]);
    const float state = zh[j] + bs[j], candidate = scalar::Tanh(gh[j] + bh[j] + r * state);
    gz[j] = z;
    gr[j] = r;
    gh[j] = candidate;
    gs[j] = state;
    h1[j] = y[j] = (1 - z) * candidate + z * h0[j];
  }
}

void GruForwardCandidate(const GruCell& cell) {
  const Index h = cell.hidden;
  const float *z = cell.gates, *step = cell.step, *bias = cell.bias + 2 * h, *h0 = cell.h0;
  float *gh = cell.gates + 2 * h, *h1 = cell.h1, *y = cell.y;
#pragma omp simd
  for (Index j = 0; j < cell.n; ++j) {
    const float candidate = scalar::Tanh(gh[j] + step[j] + bias[j]);
    gh[j] = candidate;
    h1[j] = y[j] = (1 - z[j]) * candidate + z[j] * h0[j];
  }
}

// The gradients of z and the candidate; if `linear`, of r as well.
void GruBackwardGates(const GruGradCell& cell) {
  const Index h = cell.hidden;
  const float *gz = cell.gates, *gr = gz + h, *gh = gr + h, *gs = gh + h;
  const float *h0 = cell.h0, *dy = cell.dy, *dh_recurrent = cell.dh_recurrent;
  float *dz = cell.dz, *dr = dz + h, *dg = dr + h, *ds = dg + h, *dh = cell.dh;
  if (!cell.linear) {
#pragma omp simd
    for (Index j = 0; j < cell.n; ++j) {
      const float z = gz[j], g = gh[j], d_h = dh[j] + dh_recurrent[j] + dy[j];
      dg[j] = d_h * (1 - z) * TanhSlope(g);
      dz[j] = d_h * (h0[j] - g) * SigmoidSlope(z);
      dh[j] = d_h * z;
    }
    return;
  }
#pragma omp simd
  for (Index j = 0; j < cell.n; ++j) {
    const float z = gz[j], r = gr[j], g = gh[j], d_h = dh[j] + dh_recurrent[j] + dy[j];
    const float d_g = d_h * (1 - z) * TanhSlope(g);
    dg[j] = d_g;
    ds[j] = d_g * r;
    dr[j] = d_g * gs[j] * SigmoidSlope(r);
    dz[j] = d_h * (h0[j] - g) * SigmoidSlope(z);
    dh[j] = d_h * z;
  }
}

// `through` is the gradient of r * h0.
void GruBackwardReset(const GruGradCell& cell) {
  const Index h = cell.hidden;
  const float *gr = cell.gates + h, *h0 = cell.h0, *dh_recurrent = cell.dh_recurrent;
  float *dr = cell.dz + h, *dh = cell.dh, *reset = cell.reset;
#pragma omp simd
  for (Index j = 0; j < cell.n; ++j) {
    const float r = gr[j];
    dr[j] = dh_recurrent[j] * h0[j] * SigmoidSlope(r);
    dh[j] += dh_recurrent[j] * r;
    reset[j] = r * h0[j];
  }
}

}  // namespace gradloom::GRADLOOM_ISA
