// Random calls of attention and of its gradient, each with operands of its own for Q, K and V and with one packed operand, of all three or
// of K and V.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "runtime/base/tensor.h"

namespace gradloom::packed_attention {

struct Call {
  KernelCall call;
  std::vector<Tensor> inputs;
};

// An element of the packed form: of Q, K or V (or Y), and its row-major index there.
struct Element {
  size_t part;
  int64_t index;
};

using Extents = std::map<char, int64_t>;  // along B, H, T and E

// The elements of tensors in the order of their axes in memory.
inline std::vector<Element> LayOut(const std::string& order, const std::vector<Extents>& parts) {
  std::vector<Element> elements;
  std::map<char, int64_t> at;
  const auto visit = [&](const auto& self, size_t depth, size_t part) -> void {
    const Extents& extents = parts[part];
    if (depth == order.size()) {
      const int64_t head = at['B'] * extents.at('H') + at['H'];
      elements.push_back({part, (head * extents.at('T') + at['T']) * extents.at('E') + at['E']});
    } else if (order[depth] == 'P') {
      for (size_t next = 0; next < parts.size(); ++next) self(self, depth + 1, next);
    } else {
      for (int64_t i = 0; i < extents.at(order[depth]); ++i) {
        at[order[depth]] = i;
        self(self, depth + 1, part);
      }
    }
  };
  visit(visit, 0, 0);
  return elements;
}

// Both forms of a call, with the same numbers.
class Pair {
 public:
  // Draws a call with operands of this type. `mask_gradient`: the gradient of the mask may be wanted as well. `length`: for one sample with
  // so many causal queries and keys, and few heads; 0: draws these as well.
  Pair(std::mt19937_64& random, DType dtype, bool mask_gradient, int64_t length = 0) : random_(random), dtype_(dtype) {
    const auto number = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); };
    const auto coin = [&] { return number(0, 1) == 1; };
    Draw(number, coin, length);
    Attributes common;
    if (coin()) common.set("scale", 0.7);
    if (number(0, 3) == 0) common.set("softcap", 1.5);
    if (length > 0 || coin()) common.set("is_causal", int64_t{1});
    const bool drops = number(0, 2) == 0, gradient = coin();
    for (Call* each : {&separate, &packed}) {
      each->call.attributes = common;
      each->call.op = std::string(drops ? "AttentionDropout" : "Attention") + (gradient ? "Grad" : "");
      each->call.domain = each == &packed || drops || gradient ? "gradloom" : "";
    }
    SetForms();
    AddMask(number(0, 3));
    if (gradient) AddGradient(mask_gradient && mask_has_gradient_ && coin());
    if (drops) AddDropout();
  }

  // Where the results of both forms differ, for a message; "" if they have the same bits, or with `allowed` > 0, if they agree up to this
  // times the larger of 1 and the number.
  std::string Difference(const std::vector<Tensor>& of_separate, const std::vector<Tensor>& of_packed, double allowed = 0) const {
    const bool gradient = of_separate.size() > 1;
    const auto same = [&](const Tensor& a, int64_t i, const Tensor& b, int64_t k) {
      const auto step = DTypeBytes(dtype_);
      const auto* const at = static_cast<const char*>(a.data()) + i * step;
      if (std::memcmp(at, static_cast<const char*>(b.data()) + k * step, static_cast<size_t>(step)) == 0) return true;
      const double x = ElementAsDouble(a.view(), i), y = ElementAsDouble(b.view(), k);
      return allowed > 0 && std::fabs(x - y) <= allowed * std::max(1.0, std::fabs(x));
    };
    for (size_t k = 0; k < (gradient ? operands_.size() : 1); ++k) {
      const std::vector<Element>& elements = gradient ? operands_[k] : y_elements_;
      for (size_t i = 0; i < elements.size(); ++i) {
        if (!same(of_separate[elements[i].part], elements[i].index, of_packed[k], static_cast<int64_t>(i)))
          return "part " + std::to_string(elements[i].part) + " element " + std::to_string(elements[i].index) + ", " + Describe();
      }
    }
    if (of_separate.size() < 4) return "";
    const Tensor &a = of_separate[3], &b = of_packed[operands_.size()];
    for (int64_t i = 0; i < a.elements(); ++i) {
      if (!same(a, i, b, i)) return "the gradient of the mask, element " + std::to_string(i) + ", " + Describe();
    }
    return "";
  }

  Call separate, packed;

 private:
  std::string Describe() const {
    std::string text = packed.call.op;
    for (const auto& [name, value] : packed.call.attributes) text += " " + name + "=" + Attributes::ToString(value);
    return text;
  }

  template <typename Number, typename Coin>
  void Draw(const Number& number, const Coin& coin, int64_t length) {
    const int64_t batch = length > 0 ? 1 : number(1, 3), kv_heads = number(1, 3), heads = kv_heads * number(1, 2);
    const int64_t keys = length > 0 ? length : number(1, 24);
    int64_t queries = length > 0 ? length : number(1, 24);
    const int64_t size = coin() ? 8 * number(1, 2) : number(1, 9), v_size = coin() ? size : coin() ? 8 : number(1, 9);
    for (const char axis : {'B', 'H', 'P', 'T'}) order_.insert(order_.begin() + number(0, static_cast<int64_t>(order_.size())), axis);
    for (const char axis : {'B', 'H', 'T'}) y_order_.insert(y_order_.begin() + number(0, static_cast<int64_t>(y_order_.size())), axis);
    for (const char axis : {'B', 'H', 'T'}) q_order_.insert(q_order_.begin() + number(0, static_cast<int64_t>(q_order_.size())), axis);
    order_ += 'E';
    y_order_ += 'E';
    q_order_ += 'E';
    own_q_ = coin();
    // Axes outside of the parts have the same extent in all of them.
    const auto outside = [&](char axis) { return !own_q_ && order_.find(axis) < order_.find('P'); };
    if (outside('T')) queries = keys;
    const int64_t q_heads = outside('H') ? kv_heads : heads;
    parts_ = {{{'B', batch}, {'H', q_heads}, {'T', queries}, {'E', size}},
              {{'B', batch}, {'H', kv_heads}, {'T', keys}, {'E', size}},
              {{'B', batch}, {'H', kv_heads}, {'T', keys}, {'E', v_size}}};
    y_ = {{'B', batch}, {'H', q_heads}, {'T', queries}, {'E', v_size}};
    if (own_q_) {
      operands_ = {LayOut(q_order_, {parts_[0]}), LayOut(order_, {parts_[1], parts_[2]})};
      for (Element& element : operands_[1]) ++element.part;
    } else {
      operands_ = {LayOut(order_, parts_)};
    }
    y_elements_ = LayOut(y_order_, {y_});
  }

  static Shape ShapeOf(const Extents& extents, const std::string& order = "BHTE") {
    Shape shape;
    for (const char axis : order) shape.push_back(extents.at(axis));
    return shape;
  }

  Tensor RandomTensor(Shape shape) {
    std::vector<double> values(static_cast<size_t>(shape.elements()));
    for (double& value : values) value = std::uniform_real_distribution<double>(-1, 1)(random_);
    return Converted(Tensor::From(values, std::move(shape)).view(), dtype_);
  }

  Tensor Gathered(const std::vector<Tensor>& parts, const std::vector<Element>& elements, Shape shape) const {
    Tensor made(dtype_, std::move(shape));
    const size_t step = static_cast<size_t>(DTypeBytes(dtype_));
    for (size_t i = 0; i < elements.size(); ++i) {
      std::memcpy(static_cast<char*>(made.data()) + i * step,
                  static_cast<const char*>(parts[elements[i].part].data()) + static_cast<size_t>(elements[i].index) * step, step);
    }
    return made;
  }

  static void Add(Call& to, const Tensor& input) {
    to.call.inputs.push_back(input.defined() ? OperandType{input.dtype(), input.shape(), {}} : OperandType{});
    to.inputs.push_back(input);
  }
  void AddToBoth(const Tensor& input) {
    Add(separate, input);
    Add(packed, input);
  }

  void SetForms() {
    std::vector<Tensor> operands;
    for (const Extents& part : parts_) {
      operands.push_back(RandomTensor(ShapeOf(part)));
      Add(separate, operands.back());
    }
    for (const auto& elements : operands_) Add(packed, Gathered(operands, elements, {static_cast<int64_t>(elements.size())}));
    while (packed.inputs.size() < parts_.size()) Add(packed, {});
    constexpr std::array<const char*, 3> kShapes = {"q_shape", "k_shape", "v_shape"};
    for (size_t i = 0; i < kShapes.size(); ++i) packed.call.attributes.set(kShapes[i], ShapeOf(parts_[i]).dims());
    packed.call.attributes.set("packed", order_);
    if (own_q_) packed.call.attributes.set("q_order", q_order_);
    packed.call.attributes.set("y_order", y_order_);
    separate.call.outputs = {{dtype_, ShapeOf(y_), {}}};
    packed.call.outputs = {{dtype_, ShapeOf(y_, y_order_), {}}};
  }

  // Adds the mask, and the absent operands after it. No mask, one of truth values, or one of numbers that all samples share or not.
  void AddMask(int64_t kind) {
    const int64_t batch = kind == 2 ? 1 : y_.at('B'), heads = y_.at('H'), queries = y_.at('T'), keys = parts_[1].at('T');
    Tensor mask;
    if (kind == 1) {
      mask = Tensor(DType::kBool, {queries, keys});
      for (bool& shown : mask.as<bool>()) shown = random_() % 4 != 0;
    } else if (kind > 1) {
      mask = RandomTensor({batch, heads, queries, keys});
      mask_has_gradient_ = true;
    }
    AddToBoth(mask);
    for (int i = 0; i < 3; ++i) AddToBoth({});
  }

  void AddGradient(bool of_mask) {
    const Tensor dy = RandomTensor(ShapeOf(y_));
    Add(separate, dy);
    Add(packed, Gathered({dy}, y_elements_, ShapeOf(y_, y_order_)));
    for (int i = 0; i < 2; ++i) AddToBoth({});
    std::vector<int64_t> wanted{0, 1, 2}, packed_wanted{0};
    if (own_q_) packed_wanted.push_back(1);
    if (of_mask) {
      wanted.push_back(3);
      packed_wanted.push_back(3);
    }
    const auto set = [](Call& of, const std::vector<int64_t>& list) {
      of.call.outputs.clear();
      for (int64_t i : list) of.call.outputs.push_back(of.call.inputs[static_cast<size_t>(i)]);
      of.call.attributes.set("wanted", list);
    };
    set(separate, wanted);
    set(packed, packed_wanted);
  }

  // Of a device with the samples from 2 on, of a larger batch.
  void AddDropout() {
    for (int64_t value : {int64_t{5}, int64_t{3}, int64_t{2}}) AddToBoth(Tensor::Scalar<int64_t>(value));
    const int64_t batch = y_.at('B');
    const std::vector<int64_t> samples{batch + 4, batch, y_.at('H') * y_.at('T') * parts_[1].at('T')};
    for (Call* each : {&separate, &packed}) {
      each->call.attributes.set("ratio", 0.3);
      each->call.attributes.set("origin", int64_t{77});
      each->call.attributes.set("samples", samples);
    }
  }

  std::mt19937_64& random_;
  const DType dtype_;
  bool own_q_ = false;
  std::string order_, y_order_, q_order_;
  std::vector<Extents> parts_;
  Extents y_;
  std::vector<std::vector<Element>> operands_;  // of the packed form
  std::vector<Element> y_elements_;
  bool mask_has_gradient_ = false;
};

// What is left of a row's name without its operator: the same for the rows of both forms that compute in the same way.
inline std::string FamilyOf(const KernelRow& row) {
  const std::string name(row.name.substr(0, row.name.size() - row.op.size()));
  const std::string own = "gradloom.";
  return name.ends_with(own) ? name.substr(0, name.size() - own.size()) : name;
}

}  // namespace gradloom::packed_attention
