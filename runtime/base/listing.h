// Lists in messages.
#pragma once

#include <cstddef>
#include <string>

namespace gradloom {

// "a, b and 4 more": the first `most` of the texts that are added, and the number of the others.
class Listing {
 public:
  explicit Listing(size_t most) : most_(most) {}

  // Adds a text as it is; names of unknown origin must be Escaped.
  void Add(const std::string& text) {
    if (count_++ < most_) text_ += (count_ == 1 ? "" : ", ") + text;
  }

  // The number of texts that were added.
  size_t count() const { return count_; }

  std::string text() const { return count_ <= most_ ? text_ : text_ + " and " + std::to_string(count_ - most_) + " more"; }

 private:
  const size_t most_;
  size_t count_ = 0;
  std::string text_;
};

}  // namespace gradloom
