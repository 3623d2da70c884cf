// A model of one layer of attention, whose Q, K and V, or K and V, are parts of one product, in several forms.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/passes/small_training.h"

namespace gradloom {

struct PackedNet {
  std::string name;
  std::string split;  // ONNX text from `p`, [N, T, columns] or [T, N, columns], to qh, kh, vh [N, heads, T, size]
  // From the result o [N, heads, T, size] to y [N, T, heads * size].
  std::string join = "ot = Transpose <perm = [0, 2, 1, 3]> (o)\n y = Reshape (ot, flat)\n";
  bool positions_first = false;
  std::string inputs = "", initializers = "";
  // The attention between.
  std::string attention =
      "kt = Transpose <perm = [0, 1, 3, 2]> (kh)\n s = MatMul (qh, kt)\n m = Mul (s, half)\n a = Softmax <axis = -1> (m)\n "
      "o = MatMul (a, vh)\n ";
  bool packs = true;
  std::string output = "";         // a value [N, T, 2 * size] that is an output of the model as well
  int64_t columns = 6, heads = 2;  // of the product, in heads; of the result
};

inline constexpr int64_t kPackedLength = 5;

// A model in which a head has `size` elements.
inline Model PackedModel(const PackedNet& net, int64_t size, std::mt19937& random) {
  const std::string n = std::to_string(size), width = std::to_string(2 * size), y_width = std::to_string(net.heads * size);
  std::string text = "<ir_version: 10, opset_import: [\"\" : 23]>\ng (float[N, 5, 4] x" + net.inputs + ") => (float[N, 2] z" +
                     (net.output.empty() ? "" : ", float[N, 5, " + width + "] " + net.output) + ")\n<" +
                     Weights(random, "w", {4, net.columns * size}) + ",\n" + Weights(random, "wb", {net.columns * size}) + ",\n" +
                     Weights(random, "wz", {net.heads * size, 2}) + (net.columns == 4 ? ",\n" + Weights(random, "wq", {4, 2 * size}) : "") +
                     ",\nfloat half = {0.5}, int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[1] n0 = {0}, int64[1] n1 = {1}" +
                     ", int64[1] n2 = {2}, int64[1] n3 = {3}, int64[2] pairs = {" + width + ", " + width + "}, int64[2] sizes = {" + n +
                     ", " + n + "}, int64[4] pairs_of_heads = {0, 0, 2, " + std::to_string(2 * size) + "}, int64[3] widths = {" + width +
                     ", " + width + ", " + width + "}, int64[3] shared = {" + y_width + ", " + width + ", " + width +
                     "}, int64[4] split = {0, 0, 2, " + n + "}, int64[5] parts = {0, 0, 3, 2, " + n +
                     "}, int64[5] parts_of_heads = {0, 0, 2, 3, " + n + "}, int64[4] thirds = {0, 0, 3, " + width +
                     "}, int64[3] merged = {5, -1, " + n + "}, int64[4] unmerged = {-1, 2, 5, " + n +
                     "}, int64[3] ones = {1, 1, 1}, int64[3] flat = {0, 0, " + y_width + "}" + net.initializers + ">\n{\n ";
  text += net.positions_first ? "xt = Transpose <perm = [1, 0, 2]> (x)\n " : "xt = Identity (x)\n ";
  text += "p0 = MatMul (xt, w)\n p = Add (p0, wb)\n " + net.split + net.attention + net.join;
  return Model::FromText(text + "e = Relu (y)\n r = ReduceMean <keepdims = 0> (e, n1)\n z = MatMul (r, wz)\n}\n");
}

inline std::string HeadsOf(const std::string& names) {
  std::string text;
  for (const char name : names) {
    const std::string c(1, name);
    text += c + "s = Reshape (" + c + ", split)\n " + c + "h = Transpose <perm = [0, 2, 1, 3]> (" + c + "s)\n ";
  }
  return text;
}

inline std::vector<PackedNet> PackedNets() {
  const std::string split = "q, k, v = Split <axis = -1> (p, widths)\n ";
  const std::string queries = "q0 = MatMul (xt, wq)\n q = Relu (q0)\n ";
  std::vector<PackedNet> nets;
  nets.push_back({"parts side by side", split + HeadsOf("qkv")});
  nets.push_back({"a mask", split + HeadsOf("qkv"), nets[0].join, false, ", float[N, 1, 1, 5] mask", "",
                  "kt = Transpose <perm = [0, 1, 3, 2]> (kh)\n s = MatMul (qh, kt)\n m = Mul (s, half)\n c = Add (m, mask)\n "
                  "a = Softmax <axis = -1> (c)\n o = MatMul (a, vh)\n "});
  nets.push_back({"dropout", split + HeadsOf("qkv"), nets[0].join, false, "", ", float part = {0.3}, bool yes = {1}",
                  "kt = Transpose <perm = [0, 1, 3, 2]> (kh)\n s = MatMul (qh, kt)\n m = Mul (s, half)\n a = Softmax <axis = -1> (m)\n "
                  "d, kept = Dropout (a, part, yes)\n o = MatMul (d, vh)\n "});
  nets.push_back({"a result of rank 4", split + HeadsOf("qkv"),
                  "oo = Tanh (o)\n ot = Transpose <perm = [0, 2, 1, 3]> (oo)\n y = Reshape (ot, flat)\n"});
  // As torch.onnx writes an unbind of the transposed product.
  nets.push_back({"a transposition, then a split",
                  "ps = Reshape (p, parts)\n pt = Transpose <perm = [2, 0, 3, 1, 4]> (ps)\n q, k, v = Split <axis = 0> (pt, ones)\n "
                  "qh = Squeeze (q, n0)\n kh = Squeeze (k, n0)\n vh = Squeeze (v, n0)\n "});
  // As it writes MultiheadAttention.
  nets.push_back({"positions first, gathered",
                  "ps = Reshape (p, thirds)\n pu = Unsqueeze (ps, n0)\n pt = Transpose <perm = [3, 1, 2, 0, 4]> (pu)\n "
                  "pp = Squeeze (pt, n3)\n q = Gather <axis = 0> (pp, zero)\n k = Gather <axis = 0> (pp, one)\n "
                  "v = Gather <axis = 0> (pp, two)\n qm = Reshape (q, merged)\n qt = Transpose <perm = [1, 0, 2]> (qm)\n "
                  "km = Reshape (k, merged)\n kn = Transpose <perm = [1, 0, 2]> (km)\n vm = Reshape (v, merged)\n "
                  "vt = Transpose <perm = [1, 0, 2]> (vm)\n qh = Reshape (qt, unmerged)\n kh = Reshape (kn, unmerged)\n "
                  "vh = Reshape (vt, unmerged)\n ",
                  "ot = Transpose <perm = [2, 0, 1, 3]> (o)\n yt = Reshape (ot, flat)\n y = Transpose <perm = [1, 0, 2]> (yt)\n", true});
  nets.push_back(
      {"parts within a head",
       "ps = Reshape (p, parts_of_heads)\n pt = Transpose <perm = [0, 2, 3, 1, 4]> (ps)\n q = Slice (pt, n0, n1, n2)\n "
       "k = Slice (pt, n1, n2, n2)\n v = Slice (pt, n2, n3, n2)\n qh = Squeeze (q, n2)\n kh = Squeeze (k, n2)\n vh = Squeeze (v, n2)\n ",
       nets[0].join});
  nets.push_back({"heads that share keys", "q, k, v = Split <axis = -1> (p, shared)\n ", "y = Identity (o)\n", false, "", "",
                  "o = Attention <q_num_heads = 4, kv_num_heads = 2> (q, k, v)\n ", true, "", 8, 4});
  // Cross attention: queries of another product.
  nets.push_back({"keys and values side by side", "k, v = Split <axis = -1> (p, pairs)\n " + queries + HeadsOf("qkv"), nets[0].join, false,
                  "", "", nets[0].attention, true, "", 4});
  nets.push_back({"keys and values of an operator", "k, v = Split <axis = -1> (p, pairs)\n " + queries, "y = Identity (o)\n", false, "", "",
                  "o = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v)\n ", true, "", 4});
  nets.push_back(
      {"keys and values within a head",
       "ps = Reshape (p, pairs_of_heads)\n pt = Transpose <perm = [0, 2, 1, 3]> (ps)\n kh, vh = Split <axis = 3> (pt, sizes)\n " + queries +
           HeadsOf("q"),
       nets[0].join, false, "", "", nets[0].attention, true, "", 4});
  nets.push_back({"queries that are changed",
                  "k, v = Split <axis = -1> (p, pairs)\n " + queries + HeadsOf("kv") +
                      "qs = Reshape (q, split)\n qt = Transpose <perm = [0, 2, 1, 3]> (qs)\n qh = Tanh (qt)\n ",
                  nets[0].join, false, "", "", nets[0].attention, true, "", 4});
  nets.push_back({"keys that are read twice", "k, v = Split <axis = -1> (p, pairs)\n " + queries + HeadsOf("qkv"),
                  "ot = Transpose <perm = [0, 2, 1, 3]> (o)\n yo = Reshape (ot, flat)\n y = Add (yo, k)\n", false, "", "",
                  nets[0].attention, false, "", 4});
  nets.push_back({"a part that is read twice", split + HeadsOf("qkv"),
                  "ot = Transpose <perm = [0, 2, 1, 3]> (o)\n yo = Reshape (ot, flat)\n y = Add (yo, v)\n", false, "", "",
                  nets[0].attention, false});
  nets.push_back({"a part that is changed",
                  split + "v1 = Tanh (v)\n " + HeadsOf("qk") + "vs = Reshape (v1, split)\n vh = Transpose <perm = [0, 2, 1, 3]> (vs)\n ",
                  nets[0].join, false, "", "", nets[0].attention, false});
  nets.push_back({"a part that is an output", split + HeadsOf("qkv"), nets[0].join, false, "", "", nets[0].attention, false, "k"});
  return nets;
}

}  // namespace gradloom
