// What turns a model for one batch size into one for any: changes to nodes that the importer emits. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/graph.h"
#include "runtime/base/error.h"

namespace gradloom {

// A change to one node that the importer emits.
struct BatchChange {
  int operand = 0;
  // If not 0, the change is to no operand but to the attribute `group` of a convolution with filters per sample, which becomes this number
  // times the batch size.
  int64_t groups = 0;
  // For such a convolution in a file for a single sample, which has no reshapes around it: the samples are moved into the channels before
  // it, and back to the batch axis after it.
  bool samples_in_channels = false;
  // For a value that is the same for each sample along this axis: the part for one sample is repeated for the batch.
  int axis = -1;
  // The number of positions along the axis that are repeated: 1, or the positions of one sample if the axis is a multiple of the batch.
  int64_t period = 1;
  // If `axis` is -1, for a constant list of numbers: each is the batch size times `batches` or, if that is 0, `number`.
  struct Entry {
    int64_t batches = 0;
    int64_t number = 0;
  };
  std::vector<Entry> entries;
  // If not empty, for a constant that counts samples along `axis`: the difference between the values of one sample and the next
  // (StepsAlong).
  std::vector<int64_t> steps = {};
  // Whether `steps` are added to the operand, which is not a constant and contains no sample index of its own.
  bool added = false;
  // Whether the change is to no operand but to the attribute `shape` of a node that draws random numbers, which becomes `entries`.
  bool of_shape = false;
  // If not empty, the change is to no operand: a Reshape becomes a Transpose of its operand with this permutation.
  std::vector<int64_t> permutation = {};
  // For a value computed from random numbers: the nodes that draw them and their axes over samples. Other samples get numbers of their own,
  // so these nodes are changed in the next walk, and in this one the value is repeated.
  std::vector<std::pair<size_t, int>> draws = {};
  // If not empty, for a constant in which samples differ, such as a table of all pairs of samples: the axes that get the extents of another
  // batch size. If its elements are not those of GrownTable, or may be trained, they are repeated there, which is only right for
  // ImportOptions::compared; otherwise `refusal` is thrown.
  std::vector<int> table_axes = {};
  std::optional<Error> refusal = {};
};

// Whether the change repeats the part of one sample for the batch.
inline bool IsRepetition(const BatchChange& change) {
  return change.groups == 0 && !change.of_shape && change.table_axes.empty() && !change.added && change.steps.empty() && change.axis >= 0;
}

// The constants that a loop over bags (bag_loops.cc) reads at the declared batch size, in the order in which it reads them. At another
// batch size the loop is evaluated with the same constants, because the bounds of its bags may be constants that only fit the declared
// batch size.
struct BagNumbers {
  bool bags = false;  // whether it is such a loop
  std::vector<std::optional<Tensor>> read;
};

// The changes that turn a model for the batch size `declared` into one for any batch size, by index of the emitted node.
struct BatchChanges {
  int64_t declared = 0;
  struct Emitted {
    std::string op;
    std::vector<Shape> inputs, outputs;         // empty where absent
    std::vector<std::vector<int64_t>> numbers;  // of operands that are short constant int64 lists
  };
  std::vector<Emitted> reference;  // at the declared batch
  std::map<size_t, std::vector<BatchChange>> changes;
  // For a file for a single sample, by node and operand: a 0 that turned out to be the index of the sample.
  std::map<std::pair<size_t, int>, BatchChange> counted;
  // By node that draws random numbers: the axes that turned out to have an extent per sample.
  std::map<size_t, std::set<int>> drawn;
  // For a file for a single sample: Reshapes that may merge the sample with one of several axes. Equal ones are listed once, in the order
  // in which they are met. Possibilities are tried one after the other until one keeps samples apart: then each sample is computed as in
  // the file, whichever possibility that is.
  struct Merge {
    Shape in, out;
    int axis = 0;  // the axis of the sample in `in`
    size_t ways = 0, taken = 0;
    // The first possibility follows from the extents. It may still be wrong if something fails later: of two axes of extent 1, one is that
    // of the sample.
    bool evident = false;
    // Whether later possibilities are Transposes, which have no effect for one sample and which tools have written as Reshapes.
    bool transposes = false;
    bool unconfirmed() const { return !evident || taken > 0; }
  };
  std::vector<Merge> merges;
  std::optional<Error> ambiguous;  // if there is no such possibility: the error of the first of them

  std::vector<BagNumbers> loops;  // by loop, in order
  // For each If with a data-dependent condition, in order: whether both branches have the same result types.
  std::vector<bool> alike;

  bool compared = false;        // ImportOptions::compared
  bool varies_evident = false;  // whether the evident choices are varied too
  int tries = 0;

  // Whether a choice was made that is only confirmed if samples stay apart.
  bool HasUnconfirmedChoice() const;
  // Moves on to the next combination of choices; returns false if there is none.
  bool NextCombination();
};

}  // namespace gradloom
