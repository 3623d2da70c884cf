#include "tests/extents/cases.h"

#include <random>

namespace gradloom {
namespace {

std::string Numbers(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0.2, 1.2);
  std::string text;
  for (int i = 0; i < count; ++i) text += (i > 0 ? ", " : "") + std::to_string(uniform(random) * (random() % 4 == 0 ? -1 : 1));
  return text;
}

}  // namespace

Model ModelOf(const ExtentCase& test) {
  // `rows` are the rows of h = x w + v that m selects, [n,3]; `others` are those that k selects, [p,3].
  const std::string text = R"(<ir_version: 10, opset_import: ["": 23]>
  g (float[6,4] x, bool[6] m, bool[6] k, bool[6,4] c, int64[6] ids, int64[6] labels) => (float y)
    <float[4,3] w = {)" + Numbers(12, 1) +
                           "}, float[3] v = {" + Numbers(3, 2) + "}, float[2,3] table = {" + Numbers(6, 3) + R"(},
     int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] minus_one = {-1}, int64[1] minus_two = {-2},
     int64[1] minus_three = {-3}, int64[1] many = {9223372036854775807}, int64 zero_scalar = {0}, int64 one_scalar = {1},
     float none = {0.0}, float one_float = {1.0}> {
    xw = MatMul(x, w)
    h = Add(xw, v)
    places = NonZero(m)
    indices = Transpose(places)
    rows = GatherND(h, indices)
    k_places = NonZero(k)
    k_flat = Squeeze(k_places, zero)
    others = Gather<axis = 0>(h, k_flat)
)" + test.body + "\n  }";
  return Model::FromText(text, test.name);
}

namespace {

std::vector<ExtentCase> PlainCases() {
  return {
      {"rows", "y = Tanh(rows)"},
      {"columns", "y = Transpose(rows)"},
      {"compress", "y = Compress<axis = 0>(h, m)"},
      {"compress columns", "t = Transpose(h)\n y = Compress<axis = -1>(t, m)"},
      {"compress flat", "f = Flatten<axis = 1>(h)\n o = Squeeze(zero)\n e = Gather<axis = 1>(f, o)\n y = Compress(e, m)"},
      {"elements",
       "p = NonZero(c)\n t = Transpose(p)\n e = GatherND(x, t)\n q = Exp(e)\n s = ReduceSum<keepdims = 0>(q)\n r = ReduceMean(h)\n y = "
       "Mul(s, r)"},
      {"sum", "y = ReduceSum<keepdims = 0>(rows, zero)"},
      {"mean", "y = ReduceMean<keepdims = 1>(rows, zero)"},
      {"mean of all", "y = ReduceMean<keepdims = 0>(rows)"},
      {"mean of rows", "y = ReduceMean<keepdims = 0>(rows, one)"},
      {"max", "y = ReduceMax<keepdims = 0>(rows, zero)"},
      {"min", "y = ReduceMin<keepdims = 0>(rows, zero)"},
      {"product", "y = ReduceProd<keepdims = 0>(rows, zero)"},
      {"norm", "y = ReduceL2<keepdims = 0>(rows, zero)"},
      {"absolute", "y = ReduceL1<keepdims = 0>(rows, zero)"},
      {"squares", "y = ReduceSumSquare<keepdims = 0>(rows, zero)"},
      {"logarithms", "y = ReduceLogSumExp<keepdims = 0>(rows, zero)"},
      {"softmax", "y = Softmax<axis = 0>(rows)"},
      {"softmax of rows", "y = LogSoftmax<axis = 1>(rows)"},
      {"log softmax", "s = LogSoftmax<axis = 0>(rows)\n y = Mul(s, s)"},
      {"cumulated", "y = CumSum(rows, zero_scalar)"},
      {"cumulated from behind", "y = CumSum<reverse = 1, exclusive = 1>(rows, zero_scalar)"},
      {"largest", "s = CumSum(others, zero_scalar)\n a, i = TopK<axis = 0>(s, one)\n y = Exp(a)"},
      {"as many of the largest", "s = Shape<start = 0, end = 1>(rows)\n n = Min(s, two)\n a, i = TopK<axis = 0>(rows, n)\n y = Exp(a)"},
      {"argument of infinities",
       "z = Sub(rows, rows)\n l = Log(z)\n i = ArgMax<axis = 0, keepdims = 0>(l)\n f = Cast<to = 1>(i)\n d = Exp(rows)\n y = Mul(d, f)"},
      {"argument", "i = ArgMax<axis = 0, keepdims = 0>(rows)\n d = Gather<axis = 0>(rows, i)\n y = Mul(d, d)"},
      {"normalised", "y = LayerNormalization<axis = -1>(rows, v)"},
      {"product over n", "t = Transpose(rows)\n y = MatMul(t, rows)"},
      {"gemm over n", "y = Gemm<transA = 1>(rows, rows)"},
      {"gemm of rows", "t = Transpose(w)\n y = Gemm(rows, t)"},
      {"einsum", "y = Einsum<equation = \"ni,nj->ij\">(rows, rows)"},
      {"einsum of rows", "t = Transpose(table)\n y = Einsum<equation = \"ni,ij->nj\">(rows, t)"},
      {"attention", "t = Transpose(others)\n s = MatMul(rows, t)\n p = Softmax<axis = -1>(s)\n y = MatMul(p, others)"},
      {"scatter", "t = Tanh(rows)\n y = ScatterND(h, indices, t)"},
      {"scatter add", "t = Tanh(rows)\n y = ScatterND<reduction = \"add\">(h, indices, t)"},
      {"scatter max", "t = Mul(rows, rows)\n y = ScatterND<reduction = \"max\">(h, indices, t)"},
      {"scatter elements", "s = Shape(rows)\n e = Expand(indices, s)\n t = Tanh(rows)\n y = ScatterElements<axis = 0>(h, e, t)"},
      {"scatter elements add",
       "s = Shape(rows)\n e = Expand(indices, s)\n t = Tanh(rows)\n y = ScatterElements<axis = 0, reduction = \"add\">(h, e, t)"},
      {"assign one number",
       "s = Shape(indices)\n n = Slice(s, zero, one)\n f = Unsqueeze(none, zero)\n e = Expand(f, n)\n q = ReduceSum<keepdims = 0>(h, one)\n"
       " y = ScatterND(q, indices, e)"},
      {"gather elements", "s = Shape(rows)\n e = Expand(indices, s)\n y = GatherElements<axis = 0>(h, e)"},
      {"shape arithmetic",
       "s = Shape(rows)\n n = Gather(s, zero_scalar)\n d = Gather(s, one_scalar)\n p = Mul(n, d)\n u = Unsqueeze(p, zero)\n"
       " r = Reshape(rows, u)\n y = Tanh(r)"},
      {"reshaped open", "r = Reshape(rows, minus_one)\n y = Mul(r, r)"},
      {"reshaped across", "t = Transpose(rows)\n r = Reshape(t, minus_one)\n q = CumSum(r, zero_scalar)\n y = Mul(q, r)"},
      {"flattened", "u = Unsqueeze(rows, one)\n f = Flatten<axis = 1>(u)\n y = Squeeze(u, one)"},
      {"rows twice", "y = Concat<axis = 0>(rows, rows)"},
      {"rows and others", "a = Concat<axis = 0>(rows, h, others)\n b = CumSum(a, zero_scalar)\n y = Mul(a, b)"},
      {"side by side", "e = Exp(rows)\n y = Concat<axis = 1>(rows, e)"},
      {"front", "a = Concat<axis = 0>(rows, h)\n y = Slice(a, zero, two, zero)"},
      {"from the second", "y = Slice(rows, one, many, zero)"},
      {"every second", "y = Slice(rows, zero, many, zero, two)"},
      {"the last two", "y = Slice(rows, minus_two, many, zero)"},
      {"without the last", "y = Slice(rows, zero, minus_one, zero)"},
      {"backwards",
       "l = Constant<value_ints = [-9223372036854775807]>()\n r = Slice(rows, minus_one, l, zero, minus_one)\n q = CumSum(r, "
       "zero_scalar)\n y = Mul(q, r)"},
      {"as many of another", "s = Shape<start = 0, end = 1>(rows)\n y = Slice(h, zero, s, zero)"},
      {"the last row", "y = Gather<axis = 0>(rows, minus_one)"},
      {"counted",
       "s = Shape(rows)\n n = Gather(s, zero_scalar)\n r = Range(zero_scalar, n, one_scalar)\n f = Cast<to = 1>(r)\n"
       " u = Unsqueeze(f, one)\n y = Mul(u, rows)"},
      {"counted from one",
       "s = Shape(rows)\n n = Gather(s, zero_scalar)\n l = Add(n, one_scalar)\n r = Range(one_scalar, l, one_scalar)\n"
       " f = Cast<to = 1>(r)\n u = Unsqueeze(f, one)\n y = Div(rows, u)"},
      {"filled", "s = Shape(rows)\n f = ConstantOfShape<value = float[1] {2.0}>(s)\n y = Mul(rows, f)"},
      {"divided by the size", "n = Size(rows)\n f = Cast<to = 1>(n)\n s = ReduceSum<keepdims = 0>(rows)\n y = Div(s, f)"},
      {"padded", "p = Constant<value_ints = [1, 0, 2, 0]>()\n q = Pad(rows, p)\n s = CumSum(q, zero_scalar)\n y = Mul(q, s)"},
      {"split", "p = Constant<value_ints = [1, 2]>()\n a, b = Split<axis = 1>(rows, p)\n y = Mul(a, b)"},
      {"tiled", "t = Constant<value_ints = [1, 2]>()\n y = Tile(rows, t)"},
      {"expanded", "s = Shape(rows)\n e = Expand(v, s)\n y = Mul(e, rows)"},
      {"convolved",
       "t = Constant<value_ints = [-1, 1, 3]>()\n r = Reshape(rows, t)\n f = Constant<value = float[2,1,2] {0.5, -1.0, 2.0, 0.25}>()\n"
       " o = Conv(r, f)\n y = Tanh(o)"},
      {"distinct",
       "u, f, i, n = Unique(ids)\n e = Gather<axis = 0>(table, u)\n g = Cast<to = 1>(n)\n s = Unsqueeze(g, one)\n y = Mul(e, s)"},
      {"first of each", "u, f, i, n = Unique<sorted = 0>(ids)\n e = Gather<axis = 0>(h, f)\n y = Exp(e)"},
      {"group of each", "u, f, i, n = Unique(ids)\n e = Gather<axis = 0>(h, f)\n y = Gather<axis = 0>(e, i)"},
      {"one hot",
       "flat = Squeeze(places, zero)\n i = Gather<axis = 0>(ids, flat)\n d = Constant<value_ints = [2]>()\n o = Constant<value_floats = "
       "[0.0, 1.0]>()\n"
       " e = OneHot<axis = -1>(i, d, o)\n y = MatMul(e, table)"},
      {"classes",
       "flat = Squeeze(places, zero)\n l = Gather<axis = 0>(labels, flat)\n y = SoftmaxCrossEntropyLoss<reduction = \"mean\">(rows, l)"},
      {"classes of each",
       "flat = Squeeze(places, zero)\n l = Gather<axis = 0>(labels, flat)\n y = SoftmaxCrossEntropyLoss<reduction = \"none\">(rows, l)"},
      {"experts",
       "a = Equal(ids, zero_scalar)\n b = Equal(ids, one_scalar)\n ap = NonZero(a)\n bp = NonZero(b)\n ai = Squeeze(ap, zero)\n bi = "
       "Squeeze(bp, zero)\n"
       " ar = Gather<axis = 0>(h, ai)\n br = Gather<axis = 0>(h, bi)\n ae = Tanh(ar)\n be = Softplus(br)\n z = Sub(h, h)\n at = "
       "Transpose(ap)\n"
       " bt = Transpose(bp)\n za = ScatterND<reduction = \"add\">(z, at, ae)\n y = ScatterND<reduction = \"add\">(za, bt, be)"},
      {"boxes",
       "b = Constant<value = float[1,3,4] {0,0,1,1, 0,0.1,1,1.1, 2,2,3,3}>()\n f = Cast<to = 1>(ids)\n q = Constant<value_ints = [1, 1, "
       "6]>()\n"
       " r = Reshape(f, q)\n g = Slice(r, zero, three, two)\n t = Constant<value_floats = [0.5]>()\n s = NonMaxSuppression(b, g, three, "
       "t)\n"
       " i = Gather<axis = 1>(s, two)\n j = Squeeze(i, one)\n y = Gather<axis = 0>(h, j)"},
  };
}

// Composite layers, over rows as samples and as time steps.
std::vector<ExtentCase> LayerCases() {
  const std::string steps = "u = Unsqueeze(rows, one)\n ", samples = "u = Unsqueeze(rows, zero)\n ";
  const std::string both = "a = Unsqueeze(rows, one)\n b = Unsqueeze(others, zero)\n u = Add(a, b)\n ";
  const std::string weights = "lw = Constant<value = float[1,8,3] {" + Numbers(24, 11) + "}>()\n lr = Constant<value = float[1,8,2] {" +
                              Numbers(16, 12) + "}>()\n gw = Constant<value = float[1,6,3] {" + Numbers(18, 13) +
                              "}>()\n gr = Constant<value = float[1,6,2] {" + Numbers(12, 14) +
                              "}>()\n nw = Constant<value = float[1,2,3] {" + Numbers(6, 15) +
                              "}>()\n nr = Constant<value = float[1,2,2] {" + Numbers(4, 16) + "}>()\n ";
  const std::string three = "q = Unsqueeze(rows, zero)\n kv = Unsqueeze(others, zero)\n ";
  const std::string four = "s4 = Constant<value_ints = [1, 1, -1, 3]>()\n q = Reshape(rows, s4)\n kv = Reshape(others, s4)\n ";
  const std::string statistics =
      "mean = Constant<value_floats = [0.1, -0.2, 0.3]>()\n var = Constant<value_floats = [0.5, 1.5, 2.0]>()\n "
      "scale = Constant<value_floats = [0.7, 1.5, -0.6]>()\n ";
  return {
      {"batch statistics",
       statistics + "b, m1, v1 = BatchNormalization<training_mode = 1>(rows, scale, v, mean, var)\n t = Mul(b, m1)\n y = Add(t, v1)"},
      {"batch statistics of elements",
       statistics +
           "t = Transpose(rows)\n u = Unsqueeze(t, zero)\n b, m1, v1 = BatchNormalization<training_mode = 1, momentum = 0.6, epsilon = "
           "0.01>(u, scale, v, mean, var)\n y = Tanh(b)"},
      {"batch statistics over two",
       statistics + both +
           "t = Transpose<perm = [0, 2, 1]>(u)\n z, m1, v1 = BatchNormalization<training_mode = 1>(t, scale, v, mean, var)\n"
           " y = Exp(z)"},
      {"running statistics", statistics + "b = BatchNormalization(rows, scale, v, mean, var)\n y = Exp(b)"},
      {"lstm over time", weights + steps + "s, hn, cn = LSTM<hidden_size = 2>(u, lw, lr)\n t = Mul(s, hn)\n y = Add(t, cn)"},
      {"lstm backwards",
       weights + steps + "s, hn, cn = LSTM<hidden_size = 2, direction = \"reverse\">(u, lw, lr)\n t = Mul(s, hn)\n y = Add(t, cn)"},
      {"lstm of samples", weights + samples + "s, hn, cn = LSTM<hidden_size = 2>(u, lw, lr)\n t = Mul(hn, cn)\n y = Exp(t)"},
      {"lstm of samples and steps", weights + both + "s, hn, cn = LSTM<hidden_size = 2>(u, lw, lr)\n t = Mul(s, hn)\n y = Add(t, cn)"},
      {"gru over time", weights + steps + "s, hn = GRU<hidden_size = 2>(u, gw, gr)\n y = Mul(s, hn)"},
      {"gru batch first", weights + samples + "s, hn = GRU<hidden_size = 2, layout = 1>(u, gw, gr)\n y = Mul(s, hn)"},
      {"rnn over time", weights + steps + "s, hn = RNN<hidden_size = 2>(u, nw, nr)\n y = Mul(s, hn)"},
      {"rnn from a state", weights + samples +
                               "p = Constant<value_ints = [0, 1]>()\n i = Gather<axis = 1>(rows, p)\n h0 = Unsqueeze(i, zero)\n"
                               " s, hn = RNN<hidden_size = 2>(u, nw, nr, , , h0)\n y = Exp(hn)"},
      {"attention operator", three + "y = Attention<q_num_heads = 1, kv_num_heads = 1>(q, kv, kv)"},
      {"attention operator of rank 4", four + "y = Attention(q, kv, kv)"},
      {"causal attention operator", four + "y = Attention<is_causal = 1>(q, q, q)"},
      {"attention operator with a mask",
       four + "t = Transpose(others)\n bias = MatMul(rows, t)\n pairs = Greater(bias, none)\n far = Constant<value_floats = [-2.0]>()\n"
              " near = Constant<value_floats = [0.5]>()\n mask = Where(pairs, near, far)\n y = Attention(q, kv, kv, mask)"},
      {"attention operator of samples",
       "q = Unsqueeze(rows, one)\n k2 = Concat<axis = 1>(q, q)\n t = Tanh(k2)\n"
       " y = Attention<q_num_heads = 1, kv_num_heads = 1>(q, k2, t)"},
  };
}

// Slices of rows that are joined again.
std::vector<ExtentCase> PartCases() {
  const std::string n = "s = Shape<start = 0, end = 1>(rows)\n ";
  // Two of the same extent. What the start of the first is depends on the data, so its bound is larger.
  const std::string longer =
      "d = Concat<axis = 0>(rows, rows)\n l = ReduceMax<keepdims = 1>(labels)\n z = Mul(l, zero)\n f = Add(z, one)\n"
      " a = Slice(d, f, many, zero)\n b = Slice(d, one, many, zero)\n ";
  return {
      {"split off one",
       n + "m1 = Min(s, one)\n r = Sub(s, m1)\n p = Concat<axis = 0>(m1, r)\n a, b = Split<axis = 0>(rows, p)\n e = Exp(a)\n"
           " y = Concat<axis = 0>(b, e)"},
      {"split in two",
       "d = Concat<axis = 0>(rows, rows)\n a, b = Split<axis = 0, num_outputs = 2>(d)\n c2 = CumSum(b, zero_scalar)\n y = Mul(a, c2)"},
      {"a part that nobody wants", "d = Concat<axis = 0>(rows, rows, rows)\n a, , b = Split<axis = 0, num_outputs = 3>(d)\n y = Mul(a, b)"},
      {"the last parts that nobody wants",
       "d = Concat<axis = 0>(rows, rows, rows)\n a, , = Split<axis = 0, num_outputs = 3>(d)\n y = Exp(a)"},
      {"split in about two",
       "d = Concat<axis = 0>(rows, h)\n a, b = Split<axis = 0, num_outputs = 2>(d)\n e = Exp(b)\n y = Concat<axis = 0>(e, a)"},
      {"split where counted", n + "six = Constant<value_ints = [6]>()\n r = Sub(six, s)\n p = Concat<axis = 0>(s, r)\n a, b = Split<axis = "
                                  "0>(h, p)\n e = Mul(a, rows)\n"
                                  " y = Concat<axis = 0>(b, e)"},
      {"tiled along", "t = Constant<value_ints = [3, 2]>()\n r = Tile(rows, t)\n q = CumSum(r, zero_scalar)\n y = Mul(r, q)"},
      {"tiled as often", n + "t = Concat<axis = 0>(s, one)\n r = Tile(rows, t)\n q = CumSum(r, zero_scalar)\n y = Mul(r, q)"},
      {"table as often", n + "t = Concat<axis = 0>(s, one)\n r = Tile(table, t)\n y = Exp(r)"},
      {"counted down",
       "s = Shape(rows)\n n = Gather(s, zero_scalar)\n l = Sub(n, one_scalar)\n b = Constant<value_int = -1>()\n r = Range(l, b, b)\n"
       " e = Gather<axis = 0>(rows, r)\n q = CumSum(e, zero_scalar)\n y = Mul(q, rows)"},
      {"all but as many", "p = Shape<start = 0, end = 1>(others)\n e = Sub(zero, p)\n a = Slice(h, zero, e, zero)\n y = Exp(a)"},
      {"counted to a difference",
       "s = Shape(rows)\n n = Gather(s, zero_scalar)\n t = Shape(others)\n p = Gather(t, zero_scalar)\n d = Sub(n, p)\n"
       " r = Range(zero_scalar, d, one_scalar)\n e = Gather<axis = 0>(h, r)\n y = Exp(e)"},
      {"front as the data says",
       "l = ReduceMax<keepdims = 1>(labels)\n e = Add(l, one)\n a = Slice(h, zero, e, zero)\n q = CumSum(a, zero_scalar)\n y = Mul(a, q)"},
      {"differences",
       "d = Concat<axis = 0>(rows, rows)\n a = Slice(d, one, many, zero)\n b = Slice(d, zero, minus_one, zero)\n e = Sub(a, b)\n"
       " y = Mul(e, e)"},
      {"rolled",
       "a = Slice(rows, minus_one, many, zero)\n b = Slice(rows, zero, minus_one, zero)\n r = Concat<axis = 0>(a, b)\n"
       " y = Mul(r, rows)"},
      {"between the ends", "d = Concat<axis = 0>(rows, rows, others)\n a = Slice(d, minus_three, minus_one, zero)\n y = Exp(a)"},
      {"every second before the end", "d = Concat<axis = 0>(rows, rows)\n a = Slice(d, one, minus_one, zero, two)\n y = Exp(a)"},
      {"bounds that differ", longer + "y = Mul(a, b)"},
      {"chosen among bounds that differ", longer + "q = Greater(a, none)\n y = Where(q, a, b)"},
      {"products of bounds that differ", longer + "u = Transpose(a)\n y = MatMul(u, b)"},
      {"products of batches of bounds that differ", longer + "p = Unsqueeze(a, one)\n q = Unsqueeze(b, two)\n y = MatMul(p, q)"},
      {"joined bounds that differ", longer + "y = Concat<axis = 1>(b, a)"},
      {"nearest",
       "q = ReduceSum<keepdims = 0>(rows, one)\n i = ArgMax<axis = 0, keepdims = 1>(q)\n u = Unsqueeze(i, one)\n y = GatherND(rows, u)"},
      {"the last row twice", "i = Constant<value = int64[2,1] {-1, -1}>()\n y = GatherND(rows, i)"},
      {"from where the data says", "l = ReduceMax<keepdims = 1>(labels)\n a = Slice(rows, l, many, zero)\n y = Exp(a)"},
      {"as many from the end",
       "l = ReduceMax<keepdims = 1>(labels)\n e = Add(l, one)\n m1 = Neg(e)\n a = Slice(h, m1, many, zero)\n y = Exp(a)"},
      {"every second that the data says",
       "l = ReduceMax<keepdims = 1>(labels)\n f = ReduceMin<keepdims = 1>(ids)\n e = Add(l, three)\n a = Slice(h, f, e, zero, two)\n y = "
       "Exp(a)"},
      {"least of sizes", n + "w2 = Shape<start = 0, end = 1>(others)\n p = Concat<axis = 0>(s, w2, two)\n l = ReduceMin<keepdims = 0>(p)\n "
                             "u = Unsqueeze(l, zero)\n"
                             " a = Slice(rows, zero, u, zero)\n y = Exp(a)"},
  };
}

// Operators whose results or derivatives are infinite for some padding: their gradients are those of the valid elements all the same.
std::vector<ExtentCase> SingularCases() {
  const std::string n = "s = Shape<start = 0, end = 1>(rows)\n ";
  const std::string down = "n = Squeeze(s)\n b = Neg(one_scalar)\n r = Range(n, zero_scalar, b)\n f = Cast<to = 1>(r)\n ";
  return {
      {"entropy", "p = Softmax<axis = 0>(rows)\n l = Log(p)\n y = Mul(p, l)"},
      {"root of a softmax", "p = Softmax<axis = 0>(rows)\n y = Sqrt(p)"},
      {"inverse of a softmax", "p = Softmax<axis = 0>(rows)\n q = Reciprocal(p)\n d = Div(rows, p)\n y = Mul(q, d)"},
      {"power of a softmax",
       "p = Softmax<axis = 0>(rows)\n e = Constant<value = float {0.3}>()\n q = Pow(p, e)\n d = Pow(p, rows)\n y = Mul(q, d)"},
      {"log softmax squared", "p = LogSoftmax<axis = 0>(rows)\n q = Mul(p, rows)\n y = Mul(q, q)"},
      {"log of a softmax over two", "t = Transpose(rows)\n g = MatMul(rows, t)\n p = Softmax<axis = -1>(g)\n y = Log(p)"},
      {"sorted", n + "t, i = TopK<axis = 0>(rows, s)\n y = Mul(t, rows)"},
      {"sorted upwards", n + "t, i = TopK<axis = 0, largest = 0>(rows, s)\n y = Mul(t, rows)"},
      {"log of counts", n + down + "l = Log(f)\n u = Unsqueeze(l, one)\n y = Mul(u, rows)"},
      {"inverse of counts", n + down + "q = Reciprocal(f)\n u = Unsqueeze(q, one)\n y = Mul(u, rows)"},
      {"inverse cosines", "h2 = Softsign(rows)\n a = Acos(h2)\n b = Asin(h2)\n d = Atanh(h2)\n e = Mul(a, b)\n y = Mul(e, d)"},
      {"inverse hyperbolic cosine", "h2 = Exp(rows)\n i = Add(h2, one_float)\n y = Acosh(i)"},
  };
}

// Branches and loops. With known masks the branches are resolved and the loops unrolled.
std::vector<ExtentCase> RegionCases() {
  const std::string few = "s = Shape(rows)\n n = Gather(s, zero_scalar)\n three_scalar = Squeeze(three)\n few = Less(n, three_scalar)\n ";
  return {
      {"branch of rows", few + "r = If(few) < then_branch = t () => (float[p, 3] a) { a = Exp(rows) }, else_branch = e () => (float[q, 3] "
                               "b) { b = Concat<axis = "
                               "0>(rows, h) } >\n q2 = CumSum(r, zero_scalar)\n y = Mul(q2, r)"},
      {"branch of the same rows", few + "r = If(few) < then_branch = t () => (float[p, 3] a) { a = Exp(rows) }, else_branch = e () => "
                                        "(float[q, 3] b) { b = Mul(rows, rows) }"
                                        " >\n y = Mul(r, rows)"},
      {"branch of none",
       few + "r = If(few) < then_branch = t () => (int64[p] a) { a = Constant<value = int64[0] {}>() }, else_branch = e () => (int64[q] b) "
             "{ b ="
             " Squeeze(places, zero) } >\n g = Gather<axis = 0>(h, r)\n l = Exp(g)\n z = ReduceSum<keepdims = 0>(l)\n y = Add(z, none)"},
      {"branch of a part of what counts",
       few +
           "r = If(few) < then_branch = t () => (float[p, 3] a) { a = Slice(h, zero, two, zero) }, else_branch = e () => (float[q, 3] b) {"
           " f = Squeeze(k_places, zero) b = Gather<axis = 0>(xw, f) } >\n y = Exp(r)"},
      {"branch of sizes", few + "k1 = If(few) < then_branch = t () => (int64[1] a) { a = Shape<start = 0, end = 1>(others) }, else_branch "
                                "= e () => (int64[1] b) { b ="
                                " Identity(two) } >\n r = Slice(h, zero, k1, zero)\n q2 = CumSum(r, zero_scalar)\n y = Mul(q2, r)"},
      {"branch of sums", few + "y = If(few) < then_branch = t () => (float[3] a) { a = ReduceMean<keepdims = 0>(rows, zero) }, else_branch "
                               "= e () => (float[3] b) { b"
                               " = ReduceSum<keepdims = 0>(rows, zero) } >"},
      {"branch that selects", few + "r = If(few) < then_branch = t () => (float[p, 3] a) { a = Tanh(others) }, else_branch = e () => "
                                    "(float[q, 3] b) { a2 = Mul(h, h)"
                                    " b = Compress<axis = 0>(a2, k) } >\n z = Softmax<axis = 0>(r)\n y = Mul(z, r)"},
      {"rounds as many as rows", few + "start = ReduceMean<keepdims = 0>(h, zero)\n go = Constant<value = bool {1}>()\n l, all = Loop(n, "
                                       "go, start) < body = b (int64 i, bool on,"
                                       " float[3] a) => (bool more, float[3] next, float[3] row) { more = Identity(on) r = Gather<axis = "
                                       "0>(rows, i) t = Tanh(a) next = Add(t, r)"
                                       " row = Mul(next, r) } >\n z = CumSum(all, zero_scalar)\n y = Add(z, l)"},
      {"rounds over rows",
       "count = Constant<value_int = 3>()\n go = Constant<value = bool {1}>()\n l, all = Loop(count, go, rows) < body = b (int64 i, bool "
       "on, float[n, 3]"
       " a) => (bool more, float[n, 3] next, float[n, 3] row) { more = Identity(on) t = Softmax<axis = 0>(a) next = Mul(t, rows) row = "
       "Exp(next) } >\n"
       " z = ReduceSum<keepdims = 0>(all, zero)\n y = Mul(z, l)"},
      {"scanned",
       "start = ReduceMean<keepdims = 0>(h, zero)\n l, all = Scan(start, rows) < num_scan_inputs = 1, body = b (float[3] a, float[3] r) => "
       "(float[3] next,"
       " float[3] row) { t = Tanh(a) next = Add(t, r) row = Mul(next, r) } >\n z = CumSum(all, zero_scalar)\n y = Add(z, l)"},
      {"scanned backwards",
       "start = ReduceMean<keepdims = 0>(h, zero)\n l, all = Scan(start, rows) < num_scan_inputs = 1, scan_input_directions = [1],"
       " scan_output_directions = [1], body = b (float[3] a, float[3] r) => (float[3] next, float[3] row) { t = Tanh(a) next = Add(t, r)"
       " row = Mul(next, r) } >\n z = CumSum(all, zero_scalar)\n y = Add(z, l)"},
  };
}

}  // namespace

std::vector<ExtentCase> Cases() {
  std::vector<ExtentCase> cases = PlainCases();
  for (const auto& list : {LayerCases(), PartCases(), SingularCases(), RegionCases()}) cases.insert(cases.end(), list.begin(), list.end());
  return cases;
}

}  // namespace gradloom
