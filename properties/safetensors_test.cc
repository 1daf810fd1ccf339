// SPDX-License-Identifier: Apache-2.0
// .safetensors files: what is written comes back, and hostile files get one clear line.
#include "core/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_io.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

class Safetensors : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "attest-safetensors-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  fs::path Path(const std::string& name) const { return directory_ / name; }

  StatusOr<TensorFile> ReadBytes(std::string_view bytes) const {
    std::ofstream(Path("x.safetensors"), std::ios::binary) << bytes;
    return ReadSafetensors(Path("x.safetensors"));
  }

  // One line that begins with the file's name and contains `problem`.
  static void ExpectRefusal(const StatusOr<TensorFile>& result, const fs::path& file,
                            std::string_view problem) {
    ASSERT_FALSE(result.ok()) << "accepted, but expected: " << problem;
    const std::string message = result.status().message();
    EXPECT_TRUE(message.starts_with(file.string() + ": ")) << message;
    EXPECT_NE(message.find(problem), std::string::npos) << message << "\nexpected: " << problem;
    for (const char c : message) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << message;
    EXPECT_LT(message.size(), file.string().size() + 400) << message;
  }

  fs::path directory_;
};

std::string Assemble(std::string_view header, std::string_view data) {
  return LittleEndian<std::uint64_t>(header.size()) + std::string(header) + std::string(data);
}

std::string Slurp(const fs::path& file) {
  StatusOr<std::string> text = ReadWholeFile(file, 1 << 20);
  return text.ok() ? text.value() : "unreadable: " + text.status().message();
}

bool HaveEqualBits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && a.byte_size() == b.byte_size() &&
         (a.byte_size() == 0 || std::memcmp(a.bytes(), b.bytes(), a.byte_size()) == 0);
}

// Every dtype, rank 0, zero-size tensors first, between and last, and every byte of a NaN kept.
TensorFile Sample() {
  TensorFile content;
  int salt = 0;
  for (const DType dtype :
       {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kBool}) {
    Tensor tensor(dtype, {2, 1, 3});
    for (std::size_t i = 0; i < tensor.byte_size(); ++i) {
      const int byte = dtype == DType::kBool ? salt % 2 : 37 * salt % 256;
      tensor.bytes()[i] = static_cast<std::byte>(byte);
      ++salt;
    }
    content.tensors.emplace(NameOf(dtype), tensor);
  }
  Tensor scalar(DType::kF32, {});
  scalar.data<float>()[0] = -0.0F;
  content.tensors.emplace("scalar", scalar);
  content.tensors.emplace("", Tensor(DType::kF64, {0}));
  content.tensors.emplace("empty \"quoted\" \n name", Tensor(DType::kI32, {3, 0, 5}));
  content.tensors.emplace("\u00fcmlaut", Tensor(DType::kBool, {0, 0}));
  content.metadata = {{"attest", "{\"shape\": \"\\n\"}"}, {"", "empty"}, {"format", "\u2028"}};
  return content;
}

TEST_F(Safetensors, WrittenTensorsComeBackBitForBit) {
  const TensorFile content = Sample();
  ASSERT_TRUE(WriteSafetensors(Path("a.safetensors"), content).ok());
  StatusOr<TensorFile> read = ReadSafetensors(Path("a.safetensors"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->metadata, content.metadata);
  ASSERT_EQ(read->tensors.size(), content.tensors.size());
  for (const auto& [name, tensor] : content.tensors) {
    EXPECT_TRUE(HaveEqualBits(read->tensors.at(name), tensor)) << name;
  }
}

TEST_F(Safetensors, RewritingGivesTheSameBytes) {
  ASSERT_TRUE(WriteSafetensors(Path("a.safetensors"), Sample()).ok());
  const StatusOr<TensorFile> read = ReadSafetensors(Path("a.safetensors"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_TRUE(WriteSafetensors(Path("b.safetensors"), read.value()).ok());
  EXPECT_EQ(Slurp(Path("a.safetensors")), Slurp(Path("b.safetensors")));
}

TEST_F(Safetensors, BytesAreTheDocumentedOnes) {
  TensorFile content;
  content.tensors.emplace("b", Tensor(DType::kBool, {1}));
  content.tensors.emplace("a", Tensor(DType::kF16, {}));
  content.metadata = {{"k", "v"}};
  ASSERT_TRUE(WriteSafetensors(Path("a.safetensors"), content).ok());
  std::string header =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F16","shape":[],"data_offsets":[0,2]},)"
      R"("b":{"dtype":"BOOL","shape":[1],"data_offsets":[2,3]}})";
  while (header.size() % 8 != 0) header += ' ';
  EXPECT_EQ(Slurp(Path("a.safetensors")), Assemble(header, std::string(3, '\0')));
}

TEST_F(Safetensors, FilesOfOtherWritersAreRead) {
  // Any order of tensors and keys, white space, escapes, an empty file.
  StatusOr<TensorFile> read = ReadBytes(
      Assemble("{ \"b\\u0062\" : {\"data_offsets\":[0,1], \"shape\":[1,1],\n\"dtype\":\"BOOL\"},"
               "\"a\":{\"shape\":[2],\"dtype\":\"F16\",\"data_offsets\":[1,5]}}   ",
               "\x01"
               "abcd"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->tensors.at("bb").shape(), (Shape{1, 1}));
  EXPECT_EQ(std::memcmp(read->tensors.at("a").bytes(), "abcd", 4), 0);
  read = ReadBytes(Assemble("{}", ""));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(read->tensors.empty());
}

struct HostileFile {
  std::string bytes;
  std::string problem;
};

std::string One(std::string_view dtype, std::string_view shape, std::string_view offsets,
                std::string_view data) {
  return Assemble(
      fmt::format(R"({{"q":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape, offsets),
      data);
}

std::string Two(std::string_view first, std::string_view second, std::string_view data) {
  return Assemble(fmt::format(R"({{"a":{{"dtype":"I32","shape":[1],"data_offsets":{}}},)"
                              R"("b":{{"dtype":"I32","shape":[1],"data_offsets":{}}}}})",
                              first, second),
                  data);
}

std::vector<HostileFile> HostileFiles() {
  const std::string four(4, '\0');
  const std::string eight(8, '\0');
  const std::string good = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  const std::string nested = std::string(100000, '[');
  return {
      {"", "has 0 bytes, at least the 8"},
      {"1234567", "has 7 bytes, at least the 8"},
      {LittleEndian<std::uint64_t>(3) + "{}", "header length is 3, but only 2 bytes follow"},
      {LittleEndian<std::uint64_t>(100'000'001), "header length is 100000001, at most 100000000"},
      {LittleEndian(~std::uint64_t{0}), "header length is 18446744073709551615, at most"},
      {Assemble("", ""), "header is not a JSON object"},
      {Assemble("   ", ""), "header is not a JSON object"},
      {Assemble(" {}", ""), "header is not a JSON object"},
      {Assemble("[]", ""), "header is not a JSON object"},
      {Assemble("\xef\xbb\xbf{}", ""), "header is not a JSON object"},
      {Assemble("{}\n", ""), "header is not a JSON object with nothing but spaces after it"},
      {Assemble(std::string("{}\0}", 4), ""), "zero byte"},
      {Assemble("{} {}", ""), "not valid JSON at its byte 4"},
      {Assemble("{\"a\":}", ""), "not valid JSON at its byte 6"},
      {Assemble("{\"\xff\":1}", ""), "not valid JSON"},
      {Assemble("{\"a\":" + nested + "}", ""), "tensor \"a\": is an array, an object was expected"},
      {Assemble("{\"a\":{\"shape\":" + nested + "}", ""), "shape contains an array"},
      {Assemble("{\"a\":1}", ""), "tensor \"a\": is the number 1, an object was expected"},
      {Assemble("{\"a\\n\\u001b\":null}", ""), "tensor \"a\\x0a\\x1b\": is null"},
      {Assemble("{\"" + std::string(5000, 'n') + "\":true}", ""), "nnn...\": is a boolean"},
      {Assemble("{\"q\":{}}", ""), "tensor \"q\": has no dtype"},
      {Assemble(R"({"q":{"dtype":"F32","data_offsets":[0,4]}})", four), "has no shape"},
      {Assemble(R"({"q":{"dtype":"F32","shape":[1]}})", four), "has no data_offsets"},
      {Assemble("{\"q\":{" + good + "},\"q\":{" + good + "}}", four),
       "tensor \"q\": occurs twice in the header"},
      {Assemble("{\"q\":{\"dtype\":\"F32\"," + good + "}}", four), "key \"dtype\" occurs twice"},
      {Assemble("{\"q\":{\"strides\":[1]," + good + "}}", four), "unknown key \"strides\""},
      {Assemble(R"({"__metadata__":{"a":"1","a":"1"}})", ""),
       "__metadata__: key \"a\" occurs twice"},
      {Assemble(R"({"__metadata__":{},"__metadata__":{}})", ""), "__metadata__: occurs twice"},
      {Assemble(R"({"__metadata__":{"a":1}})", ""), "key \"a\" is the number 1, a string"},
      {Assemble(R"({"__metadata__":{"a":{}}})", ""), "key \"a\" is an object, a string"},
      {Assemble(R"({"__metadata__":[]})", ""), "__metadata__: is an array"},
      {One("\"F8_E4M3\"", "[4]", "[0,4]", four),
       "tensor \"q\": dtype \"F8_E4M3\" is not supported"},
      {One("\"I64\"", "[1]", "[0,8]", eight), "dtype \"I64\" is not supported, one of F64, F32"},
      {One("\"f32\"", "[1]", "[0,4]", four), "dtype \"f32\" is unknown"},
      {One("4", "[1]", "[0,4]", four), "dtype is the number 4, a string was expected"},
      {One("\"F32\"", "[-1]", "[0,4]", four), "shape contains the number -1, a non-negative"},
      {One("\"F32\"", "[1.0]", "[0,4]", four), "shape contains the number \"1.0\""},
      {One("\"F32\"", "\"1\"", "[0,4]", four), "shape is a string, an array of non-negative"},
      {One("\"F32\"", "[1e999]", "[0,4]", four), "not valid JSON"},
      {One("\"F32\"", "[9223372036854775808]", "[0,4]", four), "beyond 2^63 - 1"},
      {One("\"F32\"", "[4294967296,4294967296]", "[0,0]", ""), "overflows 2^63 - 1 bytes"},
      {One("\"F64\"", "[1152921504606846976]", "[0,0]", ""), "overflows 2^63 - 1 bytes"},
      {One("\"F32\"", "[0,4294967296,4294967296]", "[0,0]", ""), "overflows 2^63 - 1 bytes"},
      {One("\"F32\"", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
           "[0,4]", four),
       "shape has more than 32 axes"},
      {One("\"F32\"", "[1099511627776]", "[0,4398046511104]", four),
       "ends at byte 4398046511104 of the data, which has 4: the file is truncated"},
      {One("\"F32\"", "[2]", "[0,4]", four), "[0, 4] do not span the 8 bytes that f32 [2] needs"},
      {One("\"F32\"", "[1]", "[4,0]", four), "[4, 0] do not span"},
      {One("\"F32\"", "[1]", "[18446744073709551612,0]", four), "do not span the 4 bytes"},
      {One("\"F32\"", "[1]", "[0]", four), "data_offsets has 1 numbers"},
      {One("\"F32\"", "[1]", "[0,4,4]", four), "data_offsets has more than two numbers"},
      {One("\"F32\"", "[1]", "{}", four), "data_offsets is an object, an array"},
      {One("\"F32\"", "[1]", "[4,8]", eight),
       "begins at byte 4 of the data, 0 was expected: a gap"},
      {One("\"F32\"", "[1]", "[0,4]", four + "!"), "1 bytes are left over after the last tensor"},
      {One("\"F32\"", "[1]", "[0,4]", "abc"), "which has 3: the file is truncated"},
      {Two("[0,4]", "[0,4]", four), "tensor \"b\": begins at byte 0 of the data and overlaps"},
      {Two("[2,6]", "[0,4]", eight), "tensor \"a\": begins at byte 2 of the data and overlaps"},
      {Two("[0,4]", "[5,9]", eight + "!"), "tensor \"b\": begins at byte 5 of the data, 4 was"},
      {One("\"BOOL\"", "[3]", "[0,3]", std::string("\0\1\2", 3)),
       "tensor \"q\": boolean element 2 is byte 2, 0 or 1 was expected"},
  };
}

TEST_F(Safetensors, HostileFilesAreRefusedWithOneLine) {
  for (const HostileFile& hostile : HostileFiles()) {
    SCOPED_TRACE(hostile.problem);
    ExpectRefusal(ReadBytes(hostile.bytes), Path("x.safetensors"), hostile.problem);
  }
}

TEST_F(Safetensors, EveryTruncationIsRefused) {
  ASSERT_TRUE(WriteSafetensors(Path("a.safetensors"), Sample()).ok());
  const std::string bytes = Slurp(Path("a.safetensors"));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    SCOPED_TRACE(length);
    ExpectRefusal(ReadBytes(bytes.substr(0, length)), Path("x.safetensors"), "");
  }
}

TEST_F(Safetensors, EveryDamagedHeaderByteIsRefusedOrConsistent) {
  TensorFile content;
  content.tensors.emplace("k", Tensor(DType::kBool, {2, 1}));
  content.tensors.emplace("q", Tensor(DType::kF32, {}));
  content.metadata = {{"m", "x"}};
  ASSERT_TRUE(WriteSafetensors(Path("a.safetensors"), content).ok());
  const std::string bytes = Slurp(Path("a.safetensors"));
  int refused = 0;
  int accepted = 0;
  for (std::size_t i = 0; i + 6 < bytes.size(); ++i) {
    std::string damaged = bytes;
    for (const int flip : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
      damaged[i] = static_cast<char>(bytes[i] ^ flip);
      const StatusOr<TensorFile> read = ReadBytes(damaged);
      if (!read.ok()) {
        ExpectRefusal(read, Path("x.safetensors"), "");
        ++refused;
        continue;
      }
      ++accepted;
      std::size_t size = 0;
      for (const auto& [name, tensor] : read.value().tensors) {
        EXPECT_EQ(ByteSizeOf(tensor.dtype(), tensor.shape()), tensor.byte_size());
        size += tensor.byte_size();
      }
      EXPECT_EQ(size, 6U) << damaged;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 20);  // changed names and metadata
}

TEST_F(Safetensors, UnreadablePathsAreRefused) {
  ExpectRefusal(ReadSafetensors(Path("none.safetensors")), Path("none.safetensors"),
                "no such file");
  EXPECT_EQ(ReadSafetensors(Path("none.safetensors")).status().code(), StatusCode::kNotFound);
  ExpectRefusal(ReadSafetensors(directory_), directory_, "is not a regular file");
  ExpectRefusal(ReadSafetensors("/dev/zero"), "/dev/zero", "is not a regular file");
  const Status odd = ReadSafetensors(Path("line\nbreak")).status();
  EXPECT_NE(odd.message().find("line\\x0abreak: no such file"), std::string::npos);
}

TEST_F(Safetensors, WriterRefusesWhatTheReaderWould) {
  const auto write = [&](const std::string& name, const Tensor& tensor) {
    TensorFile content;
    content.tensors.emplace(name, tensor);
    return WriteSafetensors(Path("w.safetensors"), content).message();
  };
  Tensor bad(DType::kBool, {1});
  bad.bytes()[0] = std::byte{2};
  EXPECT_NE(write("m", bad).find("tensor \"m\": boolean element 0 is byte 2"), std::string::npos);
  EXPECT_NE(write("d", Tensor()).find("tensor \"d\": holds 0 bytes"), std::string::npos);
  EXPECT_NE(write("\xc3", Tensor(DType::kF32, {})).find("not UTF-8"), std::string::npos);
  EXPECT_NE(write("__metadata__", Tensor(DType::kF32, {})).find("reserved"), std::string::npos);
  EXPECT_NE(write("r", Tensor(DType::kF32, Shape(33, 1))).find("33 axes"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(directory_));
}

TEST_F(Safetensors, OldFileStaysUntilTheNewOneIsComplete) {
  ASSERT_TRUE(WriteWholeFile(Path("a"), "old").ok());
  {
    StatusOr<OutputFile> output = OutputFile::Create(Path("a"));
    ASSERT_TRUE(output.ok());
    ASSERT_TRUE(output->Append("abandoned").ok());
  }
  EXPECT_EQ(Slurp(Path("a")), "old");
  fs::create_symlink(Path("a"), Path("link"));
  ASSERT_TRUE(WriteWholeFile(Path("link"), "new").ok());
  EXPECT_EQ(Slurp(Path("a")), "new");
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 2);
  EXPECT_NE(WriteWholeFile("/dev/null", "").message().find("not a regular file"),
            std::string::npos);
  EXPECT_NE(WriteWholeFile(Path("no/such"), "").message().find("cannot be created"),
            std::string::npos);
  EXPECT_EQ(ReadWholeFile(Path("a"), 2).status().message(),
            Path("a").string() + ": has 3 bytes, at most 2 are expected");
}

}  // namespace
}  // namespace attest
