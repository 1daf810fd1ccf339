// SPDX-License-Identifier: Apache-2.0
#include "audit/onnx_tensor.h"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <cstring>
#include <limits>
#include <utility>

#include "core/file_io.h"

namespace attest {
namespace {

// The library's objects take up to twenty times a file's bytes.
constexpr std::uint64_t kTensorSizeLimit = std::uint64_t{1} << 26;

bool IsInt64(const onnx::TensorProto& proto) {
  return proto.data_type() == onnx::TensorProto::INT64;
}

// Elements in the field of each type; a tensor has its elements in one of them.
struct FieldSizes {
  explicit FieldSizes(const onnx::TensorProto& proto)
      : f32(proto.float_data_size()),
        f64(proto.double_data_size()),
        i32(proto.int32_data_size()),
        i64(proto.int64_data_size()),
        other(proto.string_data_size() + proto.uint64_data_size()) {}
  Index all() const { return f32 + f64 + i32 + i64 + other; }

  Index f32, f64, i32, i64, other;
};

Status StoreInt64(Index at, std::int64_t value, Tensor* tensor) {
  if (value < std::numeric_limits<std::int32_t>::min() ||
      value > std::numeric_limits<std::int32_t>::max()) {
    return InvalidArgument(
        fmt::format("element {} is {}, expected an integer of 32 bits", at, value));
  }
  tensor->data<std::int32_t>()[at] = static_cast<std::int32_t>(value);
  return Status();
}

// Copies the bytes of `raw_data`, which are those of our tensors but for int64.
Status CopyRaw(const onnx::TensorProto& proto, Tensor* tensor) {
  const std::string& raw = proto.raw_data();
  const std::size_t step = IsInt64(proto) ? sizeof(std::int64_t) : SizeOf(tensor->dtype());
  const std::size_t expected = static_cast<std::size_t>(tensor->size()) * step;
  if (raw.size() != expected) {
    return InvalidArgument(fmt::format("{} bytes of data, expected {} for the shape {}", raw.size(),
                                       expected, ToString(tensor->shape())));
  }
  if (!IsInt64(proto)) {
    if (!raw.empty()) std::memcpy(tensor->bytes(), raw.data(), raw.size());
    return Status();
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(raw.data());
  for (Index i = 0; i < tensor->size(); ++i) {
    const auto value = static_cast<std::int64_t>(
        LoadLittleEndian<std::uint64_t>(bytes + static_cast<std::size_t>(i) * step));
    if (Status s = StoreInt64(i, value, tensor); !s.ok()) return s;
  }
  return Status();
}

// Integers of 32 bits hold int32, booleans and the bit patterns of the 16-bit types.
Status StoreInt32(Index at, std::int32_t value, Tensor* tensor) {
  const DType dtype = tensor->dtype();
  if (dtype == DType::kI32) {
    tensor->data<std::int32_t>()[at] = value;
    return Status();
  }
  const std::int32_t largest = dtype == DType::kBool ? 1 : 0xffff;
  if (value < 0 || value > largest) {
    return InvalidArgument(
        fmt::format("element {} is {}, expected {} to {}", at, value, 0, largest));
  }
  const auto bits = static_cast<std::uint16_t>(value);
  if (dtype == DType::kBool) {
    tensor->data<std::uint8_t>()[at] = static_cast<std::uint8_t>(bits);
  } else if (dtype == DType::kF16) {
    tensor->data<Float16>()[at].bits = bits;
  } else {
    tensor->data<BFloat16>()[at].bits = bits;
  }
  return Status();
}

// Copies the elements of the field that the type prescribes.
Status CopyField(const onnx::TensorProto& proto, Tensor* tensor) {
  const FieldSizes sizes(proto);
  const DType dtype = tensor->dtype();
  const Index stored = dtype == DType::kF32   ? sizes.f32
                       : dtype == DType::kF64 ? sizes.f64
                       : IsInt64(proto)       ? sizes.i64
                                              : sizes.i32;
  const Index count = tensor->size();
  if (stored != count || sizes.all() != count) {
    return InvalidArgument(
        fmt::format("{} elements, {} of them in the type's field, expected {} for the shape {}",
                    sizes.all(), stored, count, ToString(tensor->shape())));
  }
  for (Index i = 0; i < count; ++i) {
    const int at = static_cast<int>(i);
    Status status;
    if (dtype == DType::kF32) {
      tensor->data<float>()[i] = proto.float_data(at);
    } else if (dtype == DType::kF64) {
      tensor->data<double>()[i] = proto.double_data(at);
    } else if (IsInt64(proto)) {
      status = StoreInt64(i, proto.int64_data(at), tensor);
    } else {
      status = StoreInt32(i, proto.int32_data(at), tensor);
    }
    if (!status.ok()) return status;
  }
  return Status();
}

StatusOr<OnnxTensor> Decode(const onnx::TensorProto& proto) {
  if (proto.has_segment() || proto.external_data_size() > 0 ||
      proto.data_location() != onnx::TensorProto::DEFAULT) {
    return InvalidArgument("the tensor's data is in parts or in another file");
  }
  const std::optional<DType> dtype = FromOnnxType(proto.data_type());
  if (!dtype) {
    return InvalidArgument(
        fmt::format("element type {} of ONNX, expected f64, f32, bf16, f16, bool, int32 or int64",
                    proto.data_type()));
  }
  const Shape shape(proto.dims().begin(), proto.dims().end());
  if (shape.size() > kMaxFileRank) {
    return InvalidArgument(
        fmt::format("{} axes, at most {} are expected", shape.size(), kMaxFileRank));
  }
  // Room is made for what the file has, never for what it claims.
  const FieldSizes sizes(proto);
  const std::uint64_t in_file =
      proto.has_raw_data() ? proto.raw_data().size() : static_cast<std::uint64_t>(sizes.all());
  if (!ByteSizeOf(*dtype, shape) || static_cast<std::uint64_t>(ElementCount(shape)) > in_file) {
    return InvalidArgument(fmt::format("{} {} of data are too few for the shape {}", in_file,
                                       proto.has_raw_data() ? "bytes" : "elements",
                                       ToString(shape)));
  }
  if (proto.has_raw_data() && sizes.all() > 0) {
    return InvalidArgument("elements both as raw data and in fields");
  }
  OnnxTensor result{proto.name(), proto.data_type(), Tensor(*dtype, shape)};
  const Status status =
      proto.has_raw_data() ? CopyRaw(proto, &result.tensor) : CopyField(proto, &result.tensor);
  if (!status.ok()) return status;
  return result;
}

}  // namespace

std::optional<DType> FromOnnxType(std::int32_t type) {
  switch (type) {
    case onnx::TensorProto::DOUBLE:
      return DType::kF64;
    case onnx::TensorProto::FLOAT:
      return DType::kF32;
    case onnx::TensorProto::BFLOAT16:
      return DType::kBF16;
    case onnx::TensorProto::FLOAT16:
      return DType::kF16;
    case onnx::TensorProto::BOOL:
      return DType::kBool;
    case onnx::TensorProto::INT32:
    case onnx::TensorProto::INT64:
      return DType::kI32;
    default:
      return std::nullopt;
  }
}

StatusOr<OnnxTensor> ParseOnnxTensor(const std::string& bytes) {
  onnx::TensorProto proto;
  if (!proto.ParsePartialFromString(bytes)) {
    return InvalidArgument("no tensor of ONNX (damaged or cut off)");
  }
  StatusOr<OnnxTensor> tensor = Decode(proto);
  if (!tensor.ok()) return tensor.status();
  if (Status s = CheckBooleans("the tensor", tensor->tensor); !s.ok()) return s;
  return tensor;
}

StatusOr<OnnxTensor> ReadOnnxTensor(const std::filesystem::path& file) {
  return WithoutExceptions(file, [&]() -> StatusOr<OnnxTensor> {
    const StatusOr<std::string> bytes = ReadWholeFile(file, kTensorSizeLimit);
    if (!bytes.ok()) return bytes.status();
    StatusOr<OnnxTensor> tensor = ParseOnnxTensor(*bytes);
    if (tensor.ok()) return tensor;
    return InvalidArgument(Printable(file.native()) + ": " + tensor.status().message());
  });
}

}  // namespace attest
