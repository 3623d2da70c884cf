#include "tests/ops/case_list.h"

namespace gradloom {

std::vector<OpCase> SignalCases() {
  std::vector<OpCase> cases;
  const Attributes inverse{{"inverse", int64_t{1}}}, onesided{{"onesided", int64_t{1}}},
      real{{"inverse", int64_t{1}}, {"onesided", int64_t{1}}};
  for (int64_t parts : {1, 2}) {
    const OpOperand x = In({2, 5, 3, parts});
    cases.push_back({.op = "DFT", .operands = {x, Absent(), Int(1)}});
    cases.push_back({.op = "DFT", .operands = {x, Int(7), Int(1)}});
    cases.push_back({.op = "DFT", .operands = {x, Int(4), Int(-3)}});
    cases.push_back({.op = "DFT", .operands = {x, Absent(), Int(2)}, .attributes = inverse});
    cases.push_back({.op = "DFT", .operands = {x, Int(6), Int(1)}, .attributes = inverse});
  }
  for (int64_t length : {6, 7}) {
    cases.push_back({.op = "DFT", .operands = {In({2, 5, 1}), Int(length), Int(1)}, .attributes = onesided});
    cases.push_back({.op = "DFT", .operands = {In({2, 4, 2}), Int(length), Int(1)}, .attributes = real});
  }
  cases.push_back({.op = "STFT", .operands = {In({2, 12, 1}), Int(3), In({6}, 0.1, 1)}});
  cases.push_back({.op = "STFT", .operands = {In({1, 9, 1}), Int(2), Absent(), Int(4)}});
  cases.push_back({.op = "STFT", .operands = {In({1, 9, 2}), Int(2), In({5}, 0.1, 1)}, .attributes = {{"onesided", int64_t{0}}}});
  return cases;
}

}  // namespace gradloom
