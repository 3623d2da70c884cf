#include "runtime/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/joined.h"
#include "runtime/base/nearest.h"
#include "runtime/base/number_text.h"
#include "runtime/base/philox.h"
#include "runtime/base/read_number.h"
#include "runtime/base/suggestion.h"

namespace gradloom {
namespace {

int64_t RowBytes(const Tensor& column) { return column.shape()[0] == 0 ? 0 : column.bytes() / column.shape()[0]; }

// A uniform number below `bound`: 64 bits scaled down, with negligible bias.
uint64_t Below(uint64_t bound, uint64_t index, PhiloxKey key) {
  const PhiloxBlock block = Philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 1, 0}, key);
  const uint64_t bits = (static_cast<uint64_t>(block[0]) << 32) | block[1];
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
}

// The random streams of data, separate from those of nodes (which are hashes of their names).
constexpr uint64_t kShuffleStream = 0x73687566666C65;
constexpr uint64_t kSplitStream = 0x73706C6974;

int64_t HeldBackRows(int64_t rows, double fraction) {
  if (!(fraction > 0 && fraction < 1))
    throw Error(ErrorCode::kConfig, "the share held back must be between 0 and 1", "", "use --eval-split 20%");
  if (rows < 2) throw Error(ErrorCode::kConfig, "one row cannot be split", "", "pass evaluation data with --eval-data");
  const auto held = static_cast<int64_t>(std::llround(fraction * static_cast<double>(rows)));
  return std::clamp<int64_t>(held, 1, rows - 1);
}

std::vector<int64_t> Count(int64_t from, int64_t to) {
  std::vector<int64_t> rows(static_cast<size_t>(to - from));
  std::iota(rows.begin(), rows.end(), from);
  return rows;
}

}  // namespace

void RowSource::ReadSeveral(int64_t row, int64_t count, PhiloxKey draw, void* out) const {
  const int64_t bytes = row_shape().elements() * DTypeBytes(dtype());
  for (int64_t i = 0; i < count; ++i) Read(row + i, draw, static_cast<std::byte*>(out) + i * bytes);
}

void ForEachPiece(const RowSource& source, std::span<const int64_t> rows, const std::function<void(const TensorView&)>& use) {
  constexpr int64_t kPieceBytes = int64_t{1} << 20;
  const int64_t bytes = source.row_shape().elements() * DTypeBytes(source.dtype());
  const int64_t most = std::clamp<int64_t>(kPieceBytes / std::max<int64_t>(bytes, 1), 1, std::max<int64_t>(std::ssize(rows), 1));
  Shape shape{most};
  for (const int64_t extent : source.row_shape()) shape.push_back(extent);
  Tensor piece(source.dtype(), shape);
  for (size_t first = 0, past = 0; first < rows.size(); first = past) {
    for (past = first + 1; past < rows.size() && past < first + static_cast<size_t>(most) && rows[past] == rows[past - 1] + 1;) ++past;
    const auto count = static_cast<int64_t>(past - first);
    source.ReadSeveral(rows[first], count, {}, piece.data());
    use({piece.dtype(), WithRows(shape, count), piece.data()});
  }
}

Shape WithRows(Shape column, int64_t rows) {
  column[0] = rows;
  return column;
}

void PlaceRow(const void* row, int64_t bytes, int64_t block, int64_t index, int64_t rows, void* out) {
  const auto* from = static_cast<const std::byte*>(row);
  auto* to = static_cast<std::byte*>(out) + index * block;
  for (int64_t at = 0; at < bytes; at += block, to += rows * block) std::memcpy(to, from + at, static_cast<size_t>(block));
}

void GatherRows(const Tensor& column, std::span<const int64_t> rows, int axis, void* out) {
  const int64_t bytes = RowBytes(column), block = Product(column.shape(), axis + 1, column.shape().rank()) * DTypeBytes(column.dtype());
  const auto* from = static_cast<const std::byte*>(column.data());
  for (int64_t i = 0; i < std::ssize(rows); ++i)
    PlaceRow(from + rows[static_cast<size_t>(i)] * bytes, bytes, block, i, std::ssize(rows), out);
}

Shape WithAxisMoved(const Shape& shape, int from, int to) {
  std::vector<int64_t> dims = shape.dims();
  const int64_t extent = shape[from];
  dims.erase(dims.begin() + from);
  dims.insert(dims.begin() + to, extent);
  return Shape(dims);
}

Tensor WithSamplesFirst(const TensorView& tensor, int axis) {
  Tensor rows(tensor.dtype, WithAxisMoved(tensor.shape, axis, 0));
  const int64_t samples = tensor.shape[axis], block = Product(tensor.shape, axis + 1, tensor.shape.rank()) * DTypeBytes(tensor.dtype);
  const int64_t bytes = samples == 0 ? 0 : rows.bytes() / samples;
  auto* to = static_cast<std::byte*>(rows.data());
  for (int64_t sample = 0; sample < samples; ++sample) {
    const auto* from = static_cast<const std::byte*>(tensor.data) + sample * block;
    for (int64_t at = 0; at < bytes; at += block, to += block, from += samples * block) std::memcpy(to, from, static_cast<size_t>(block));
  }
  return rows;
}

Dataset::Dataset(std::map<std::string, Tensor> columns) {
  for (auto& [name, column] : columns) set_column(name, std::move(column));
}

const Tensor& Dataset::column(std::string_view name) const {
  const auto found = columns_.find(std::string(name));
  if (found != columns_.end()) return found->second;
  const std::string known = JoinedTexts(columns_, [](const auto& other) { return Escaped(other.first); });
  throw Error(ErrorCode::kData, "the data has no column '" + Escaped(name) + "'", "", "it has: " + known + "   (--map NAME=COLUMNS)");
}

void Dataset::CheckRows(const std::string& name, int64_t rows) const {
  const auto check = [&](const std::string& other, int64_t other_rows) {
    if (other == name || other_rows == rows) return;
    const int64_t samples = std::min(rows, other_rows), each = std::max(rows, other_rows) / std::max<int64_t>(samples, 1);
    std::string help = "write them again together";
    // As PyTorch's losses have labels of several positions.
    if (samples > 1 && each * samples == std::max(rows, other_rows)) {
      help = "if '" + Escaped(rows > other_rows ? name : other) + "' has " + std::to_string(each) +
             " positions of each, give it the shape [" + std::to_string(samples) + ", " + std::to_string(each) + ", ...]";
    }
    throw Error(
        ErrorCode::kData,
        "column '" + Escaped(name) + "' has " + std::to_string(rows) + " rows, '" + Escaped(other) + "' has " + std::to_string(other_rows),
        "", "both must have one row per sample; " + help);
  };
  for (const auto& [other, column] : columns_) check(other, column.shape()[0]);
  for (const auto& [other, column] : lazy_columns_) check(other, static_cast<int64_t>(column.rows.size()));
}

void Dataset::set_column(const std::string& name, Tensor column) {
  if (column.shape().rank() == 0)
    throw Error(ErrorCode::kData, "column '" + Escaped(name) + "' is a single number; its first dimension must be the samples");
  CheckRows(name, column.shape()[0]);
  rows_ = column.shape()[0];
  columns_.insert_or_assign(name, std::move(column));
}

Tensor Dataset::TakeColumn(const std::string& name) {
  column(name);  // throws if there is none
  return std::move(columns_.extract(name).mapped());
}

void Dataset::set_source(const std::string& name, std::shared_ptr<const RowSource> source) {
  const auto found = lazy_columns_.find(name);
  if (found != lazy_columns_.end()) {
    GRADLOOM_CHECK(found->second.source->rows() == source->rows());
    found->second.source = std::move(source);
    return;
  }
  CheckRows(name, source->rows());
  rows_ = source->rows();
  LazyColumn column{std::move(source), Count(0, rows_)};
  lazy_columns_.emplace(name, std::move(column));
}

Shape Dataset::row_shape(const std::string& name) const {
  if (const auto found = lazy_columns_.find(name); found != lazy_columns_.end()) return found->second.source->row_shape();
  const Shape& shape = column(name).shape();
  return Shape(std::vector<int64_t>(shape.begin() + 1, shape.end()));
}

Dataset Dataset::Select(std::span<const int64_t> rows) const {
  Dataset selected;
  for (const auto& [name, column] : columns_) {
    Tensor out(column.dtype(), WithRows(column.shape(), static_cast<int64_t>(rows.size())));
    GatherRows(column, rows, 0, out.data());
    selected.set_column(name, std::move(out));
  }
  for (const auto& [name, column] : lazy_columns_) {
    LazyColumn part{column.source, {}};
    for (int64_t row : rows) part.rows.push_back(column.rows[static_cast<size_t>(row)]);
    selected.rows_ = static_cast<int64_t>(rows.size());
    selected.lazy_columns_.emplace(name, std::move(part));
  }
  return selected;
}

namespace {

// Whether a finite value of one type may become infinite in the other.
bool IsNarrower(DType to, DType from) {
  if (to == DType::kFloat16) return DTypeBytes(from) > 1 && from != DType::kFloat16;
  return (to == DType::kFloat32 && from == DType::kFloat64) ||
         (to == DType::kBfloat16 && (from == DType::kFloat64 || from == DType::kFloat32));
}

bool IsUnsigned(DType dtype) {
  return dtype == DType::kUint8 || dtype == DType::kUint16 || dtype == DType::kUint32 || dtype == DType::kUint64;
}

// Whether an integer type has all numbers of the other.
bool HasAllOf(DType to, DType from) {
  if (!IsInteger(to) || !(IsInteger(from) || from == DType::kBool)) return false;
  if (from == DType::kBool) return true;
  if (IsUnsigned(to)) return IsUnsigned(from) && DTypeBytes(to) >= DTypeBytes(from);
  return IsUnsigned(from) ? DTypeBytes(to) > DTypeBytes(from) : DTypeBytes(to) >= DTypeBytes(from);
}

// The least whole number above those of an integer type, or of bool. The largest of 64 bits is this one as a double.
double LeastBeyond(DType dtype) {
  if (dtype == DType::kBool) return 2;
  return std::ldexp(1.0, static_cast<int>(8 * DTypeBytes(dtype)) - (IsUnsigned(dtype) ? 0 : 1));
}

}  // namespace

void CheckNotTooLarge(const std::string& column, const TensorView& from, const TensorView& to, int64_t row_elements, int64_t first) {
  if (!IsNarrower(to.dtype, from.dtype)) return;
  for (int64_t i = 0; i < from.elements(); ++i) {
    if (std::isfinite(ElementAsDouble(to, i)) || !std::isfinite(ElementAsDouble(from, i))) continue;
    throw Error(ErrorCode::kData,
                "row " + std::to_string(first + i / std::max<int64_t>(row_elements, 1)) + " (counted from 0) of column '" +
                    Escaped(column) + "' is " + NumberText(ElementAsDouble(from, i)) + ", which does not fit " +
                    std::string(DTypeName(to.dtype)),
                "", "if it marks a missing value, remove the row; otherwise scale the column down");
  }
}

void CheckSameNumbers(const std::string& column, const TensorView& from, const TensorView& to, int64_t row_elements, int64_t first) {
  if (IsFloating(to.dtype) || HasAllOf(to.dtype, from.dtype)) return;
  for (int64_t i = 0; i < from.elements(); ++i) {
    const double value = ElementAsDouble(from, i);
    if (value == ElementAsDouble(to, i) && !(IsFloating(from.dtype) && value >= LeastBeyond(to.dtype))) continue;
    throw Error(ErrorCode::kData,
                "row " + std::to_string(first + i / std::max<int64_t>(row_elements, 1)) + " of column '" + Escaped(column) + "' is " +
                    NumberText(value) + ", but the model expects " + std::string(DTypeName(to.dtype)),
                "", "the column must hold whole numbers; map another one with --map " + Escaped(column) + "=COLUMN");
  }
}

bool RowsFit(const Shape& have, const Shape& want, Dataset::Reshaping reshaping) {
  const Shape a = have.Squeezed(), b = want.Squeezed();
  if (a == b) return true;
  return reshaping == Dataset::Reshaping::kFlatRows && have.elements() == want.elements() && (a.rank() <= 1 || b.rank() <= 1);
}

namespace {

// Throws if rows of one shape cannot be used as rows of the other (Dataset::Fit).
void CheckRowShape(const std::string& name, const Shape& have, const Shape& want, Dataset::Reshaping reshaping) {
  if (reshaping == Dataset::Reshaping::kFlatRows && have.rank() <= 1 && have.elements() != want.elements()) {
    throw Error(
        ErrorCode::kData,
        "column '" + Escaped(name) + "' has " + Counted(have.elements(), "value") + " per row, but the model expects " + want.ToString(),
        "", "map other columns: --map " + Escaped(name) + "=COLUMNS");
  }
  if (RowsFit(have, want, reshaping)) return;
  throw Error(ErrorCode::kShape,
              "column '" + Escaped(name) + "' has rows of shape " + have.ToString() + ", but the model expects " + want.ToString(), "",
              "rows are not broadcast or reordered: store '" + Escaped(name) + "' with rows of shape " + want.ToString() +
                  ", or map other columns: --map " + Escaped(name) + "=COLUMNS");
}

}  // namespace

void Dataset::Fit(const std::string& name, DType dtype, const Shape& row_shape, Reshaping reshaping) {
  const Shape have = this->row_shape(name);
  CheckRowShape(name, have, row_shape, reshaping);
  if (const auto found = lazy_columns_.find(name); found != lazy_columns_.end()) {
    const DType made = found->second.source->dtype();
    if (dtype == made && have == row_shape) return;
    throw Error(dtype == made ? ErrorCode::kShape : ErrorCode::kData,
                "column '" + Escaped(name) + "' has rows " + std::string(DTypeName(made)) + have.ToString() + ", but the model expects " +
                    std::string(DTypeName(dtype)) + row_shape.ToString());
  }
  Tensor column = this->column(name);
  Shape shape{rows_};
  for (int64_t dim : row_shape) shape.push_back(dim);
  if (column.dtype() != dtype) {
    Tensor converted = Converted(column.view(), dtype);
    CheckNotTooLarge(name, column.view(), converted.view(), row_shape.elements(), 0);
    CheckSameNumbers(name, column.view(), converted.view(), row_shape.elements(), 0);
    column = std::move(converted);
  }
  columns_.insert_or_assign(name, column.Reshaped(shape));
}

std::vector<int64_t> ShuffledRows(int64_t rows, uint64_t seed, uint64_t epoch) {
  std::vector<int64_t> order = Count(0, rows);
  const PhiloxKey key = NodeKey(seed, epoch, kShuffleStream);
  for (int64_t i = rows - 1; i > 0; --i) {
    const auto j = static_cast<int64_t>(Below(static_cast<uint64_t>(i) + 1, static_cast<uint64_t>(i), key));
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(j)]);
  }
  return order;
}

std::vector<int64_t> RowsInOrder(int64_t rows) { return Count(0, rows); }

Split RandomSplit(int64_t rows, double fraction, uint64_t seed) {
  const int64_t held = HeldBackRows(rows, fraction);
  const std::vector<int64_t> order = ShuffledRows(rows, Mix64(seed ^ kSplitStream), 0);
  Split split{{order.begin() + held, order.end()}, {order.begin(), order.begin() + held}};
  std::sort(split.train.begin(), split.train.end());
  std::sort(split.eval.begin(), split.eval.end());
  return split;
}

Split TailSplit(int64_t rows, double fraction) {
  const int64_t held = HeldBackRows(rows, fraction);
  return {Count(0, rows - held), Count(rows - held, rows)};
}

namespace {

[[noreturn]] void RefuseTransform(std::string_view text) {
  const std::string word(text.substr(0, text.find(' '))), near = Nearest(word, {"scale", "normalize", "standardize", "fill"});
  throw Error(ErrorCode::kConfig, "unknown transform '" + Escaped(text) + "'", "",
              DidYouMean(near == word ? "" : near,
                         "expected one of: 'scale 1/255', 'normalize MEAN STD' (one number or one per channel: 0.5,0.4,0.3), "
                         "'standardize', 'fill mean', 'fill 0'"));
}

// For a known transform with numbers that it cannot have.
[[noreturn]] void RefuseNumbers(std::string_view text, const std::string& why, const std::string& help) {
  throw Error(ErrorCode::kConfig, "the transform '" + Escaped(text) + "' " + why, "", help);
}

[[noreturn]] void RefuseType(DType dtype) {
  throw Error(ErrorCode::kData, "a transform needs float32 values, but the model takes " + std::string(DTypeName(dtype)) + " there", "",
              "leave it out: classes, categories and tokens are used as they are");
}

double ParseNumber(std::string_view word, std::string_view text) {
  const std::optional<double> value = ReadNumber<double>(word);
  if (!value || !std::isfinite(*value)) {
    RefuseNumbers(text, "has '" + Escaped(word) + "' where a number belongs",
                  "write 'scale 1/255', 'normalize MEAN STD' (one number or one per channel: 0.5,0.4,0.3), 'fill mean' or 'fill 0'");
  }
  return *value;
}

std::vector<double> ParseNumbers(std::string_view list, std::string_view text) {
  std::vector<double> values;
  while (true) {
    const size_t comma = list.find(',');
    values.push_back(ParseNumber(list.substr(0, comma), text));
    if (comma == std::string_view::npos) return values;
    list.remove_prefix(comma + 1);
  }
}

// One value for all, or one per channel: of the first dimension of a row, expanded to the channel's elements; or of the last, where the
// values repeat for each pixel of an image.
std::vector<float> Spread(const std::vector<double>& values, const Shape& shape, std::string_view text) {
  if (values.size() == 1) return {static_cast<float>(values[0])};
  const auto channels = static_cast<int64_t>(values.size());
  if (shape.rank() == 4 && shape[1] != channels && shape[3] == channels) return {values.begin(), values.end()};
  if (shape.rank() < 2 || shape[1] != channels) {
    Shape row(std::vector<int64_t>(shape.begin() + (shape.rank() > 0 ? 1 : 0), shape.end()));
    RefuseNumbers(text,
                  "has " + std::to_string(channels) + " numbers in a list, but rows of shape " + row.ToString() + " have " +
                      (row.rank() == 0 ? std::string("one element") : Counted(row[0], "channel")),
                  "give one number for all, or one for each channel");
  }
  int64_t inner = 1;
  for (int axis = 2; axis < shape.rank(); ++axis) inner *= shape[axis];
  std::vector<float> spread;
  for (double value : values) spread.insert(spread.end(), static_cast<size_t>(inner), static_cast<float>(value));
  return spread;
}

// Passes some rows after the other.
using Pieces = std::function<void(const std::function<void(const TensorView& rows)>& use)>;

// Calls `use(j, value)` for each element j of each row that is finite. `width`: the number of elements of a row.
template <typename Use>
void ForEachFinite(const Pieces& pieces, size_t width, const Use& use) {
  pieces([&](const TensorView& rows) {
    size_t j = 0;
    for (int64_t i = 0; i < rows.elements(); ++i) {
      if (const double value = ElementAsDouble(rows, i); std::isfinite(value)) use(j, value);
      if (++j == width) j = 0;
    }
  });
}

// Computes the mean and, unless it is a fill, the standard deviation over the rows, in two passes.
Transform Measure(std::string_view text, int64_t width, const Pieces& pieces) {
  std::vector<double> means(static_cast<size_t>(width)), squares(means), counts(means);
  ForEachFinite(pieces, means.size(), [&](size_t j, double value) {
    means[j] += value;
    ++counts[j];
  });
  for (size_t j = 0; j < means.size(); ++j) means[j] /= std::max(counts[j], 1.0);
  if (Transform::IsFill(text)) return {{0.0f}, {1.0f}, {means.begin(), means.end()}};
  ForEachFinite(pieces, means.size(), [&](size_t j, double value) { squares[j] += std::pow(value - means[j], 2); });
  Transform transform;
  for (size_t j = 0; j < means.size(); ++j) {
    const double deviation = std::sqrt(squares[j] / std::max(counts[j], 1.0));
    transform.shift.push_back(static_cast<float>(means[j]));
    transform.scale.push_back(deviation > 0 ? static_cast<float>(1 / deviation) : 1.0f);
  }
  return transform;
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t space = rest.find(' ');
    if (space != 0) words.push_back(rest.substr(0, space));
    rest = space == std::string_view::npos ? std::string_view() : rest.substr(space + 1);
  }
  return words;
}

}  // namespace

bool Transform::IsMeasured(std::string_view text) {
  const std::vector<std::string_view> words = Words(text);
  return words == std::vector<std::string_view>{"standardize"} || words == std::vector<std::string_view>{"fill", "mean"};
}

bool Transform::IsFill(std::string_view text) {
  const std::vector<std::string_view> words = Words(text);
  return !words.empty() && words[0] == "fill";
}

Transform Transform::Measured(std::string_view text, const RowSource& source, std::span<const int64_t> rows) {
  return Measure(text, source.row_shape().elements(), [&](const auto& use) { ForEachPiece(source, rows, use); });
}

Transform Transform::Parse(std::string_view text, const Tensor& fitted_on) {
  if (IsMeasured(text)) {
    const int64_t rows = fitted_on.shape()[0], width = rows == 0 ? 0 : fitted_on.elements() / rows;
    return Measure(text, width, [&](const auto& use) { use(fitted_on.view()); });
  }
  const std::vector<std::string_view> words = Words(text);
  if (words.size() == 2 && words[0] == "fill") return {{0.0f}, {1.0f}, Spread(ParseNumbers(words[1], text), fitted_on.shape(), text)};
  if (words.size() == 2 && words[0] == "scale") {
    const size_t slash = words[1].find('/');
    const double over = slash == std::string_view::npos ? 1.0 : ParseNumber(words[1].substr(slash + 1), text);
    if (over == 0) RefuseNumbers(text, "divides by 0", "for example 'scale 1/255'");
    return {{0.0f}, {static_cast<float>(ParseNumber(words[1].substr(0, slash), text) / over)}};
  }
  if (!words.empty() && (words[0] == "scale" || words[0] == "fill" || words[0] == "normalize") &&
      words.size() != (words[0] == "normalize" ? 3 : 2)) {
    RefuseNumbers(text, words[0] == "normalize" ? "needs a mean and a standard deviation" : "needs one number",
                  words[0] == "normalize" ? "for example 'normalize 0.5 0.2', or 'standardize', which measures them"
                  : words[0] == "scale"   ? "for example 'scale 1/255'"
                                          : "for example 'fill 0', or 'fill mean', which measures it");
  }
  if (words.size() == 3 && words[0] == "normalize") {
    std::vector<double> deviations = ParseNumbers(words[2], text);
    for (double& deviation : deviations) {
      if (deviation == 0)
        RefuseNumbers(text, "divides by 0", "the last number is the standard deviation, or a list of them, which is above 0");
      deviation = 1 / deviation;
    }
    return {Spread(ParseNumbers(words[1], text), fitted_on.shape(), text), Spread(deviations, fitted_on.shape(), text)};
  }
  RefuseTransform(text);
}

void Transform::ShiftAndScale(std::span<float> rows) const {
  // Counted along: a division takes several times as long as the rest.
  size_t of_shift = 0, of_scale = 0;
  for (float& value : rows) {
    value = (value - shift[of_shift]) * scale[of_scale];
    if (++of_shift == shift.size()) of_shift = 0;
    if (++of_scale == scale.size()) of_scale = 0;
  }
}

void Transform::Apply(Tensor& column) const {
  if (column.dtype() != DType::kFloat32) RefuseType(column.dtype());
  GRADLOOM_CHECK(!shift.empty() && !scale.empty());
  Tensor changed = column.Clone();
  const std::span<float> values = changed.as<float>();
  for (size_t i = 0; !fill.empty() && i < values.size(); ++i) {
    if (std::isnan(values[i])) values[i] = fill[i % fill.size()];
  }
  ShiftAndScale(values);
  column = std::move(changed);
}

void Transform::Undo(Tensor& column) const {
  if (column.dtype() != DType::kFloat32) RefuseType(column.dtype());
  if (std::find(scale.begin(), scale.end(), 0.0f) != scale.end())
    throw Error(ErrorCode::kData, "a transform that multiplies by 0 cannot be undone");
  Tensor changed = column.Clone();
  const std::span<float> values = changed.as<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    const double before = static_cast<double>(values[i]) / static_cast<double>(scale[i % scale.size()]);
    values[i] = static_cast<float>(before + static_cast<double>(shift[i % shift.size()]));
  }
  column = std::move(changed);
}

std::vector<int64_t> BatchSizes(int64_t rows, int64_t batch) {
  if (rows <= batch) return {rows};
  if (rows % batch == 0) return {batch};
  return {batch, rows % batch};
}

}  // namespace gradloom
