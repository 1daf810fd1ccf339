// SPDX-License-Identifier: Apache-2.0
// .npy and .npz files: NumPy's bytes both ways, and hostile files get one clear line.
#include "core/npy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <zip.h>

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

class NumpyFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "attest-npy-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  fs::path Path(const std::string& name) const { return directory_ / name; }

  StatusOr<Tensor> ReadNpyBytes(std::string_view bytes) const {
    std::ofstream(Path("x.npy"), std::ios::binary) << bytes;
    return ReadNpy(Path("x.npy"));
  }
  StatusOr<TensorMap> ReadNpzBytes(std::string_view bytes) const {
    std::ofstream(Path("x.npz"), std::ios::binary) << bytes;
    return ReadNpz(Path("x.npz"));
  }

  // The bytes of an archive that WriteNpz writes.
  std::string NpzBytes(const TensorMap& tensors) const {
    const Status status = WriteNpz(Path("a.npz"), tensors);
    EXPECT_TRUE(status.ok()) << status.message();
    return Slurp("a.npz");
  }

  std::string Slurp(const std::string& name) const {
    StatusOr<std::string> text = ReadWholeFile(Path(name), 1 << 20);
    return text.ok() ? text.value() : "unreadable: " + text.status().message();
  }

  // One line that begins with the file's name and contains `problem`.
  static void ExpectRefusal(const Status& status, const fs::path& file, std::string_view problem) {
    ASSERT_FALSE(status.ok()) << "accepted, but expected: " << problem;
    const std::string& message = status.message();
    EXPECT_TRUE(message.starts_with(file.string() + ": ")) << message;
    EXPECT_NE(message.find(problem), std::string::npos) << message << "\nexpected: " << problem;
    for (const char c : message) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << message;
    EXPECT_LT(message.size(), file.string().size() + 400) << message;
  }

  fs::path directory_;
};

std::string Npy(std::string_view header, std::string_view data, int major = 1) {
  std::string length = LittleEndian(static_cast<std::uint32_t>(header.size()));
  if (major == 1) length.resize(2);
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(major);
  bytes += '\0';
  return bytes + length + std::string(header) + std::string(data);
}

std::string Dict(std::string_view descr, std::string_view shape, std::string_view data) {
  return Npy(fmt::format("{{'descr': {}, 'fortran_order': False, 'shape': {}, }}\n", descr, shape),
             data);
}

bool HaveEqualBits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && a.byte_size() == b.byte_size() &&
         (a.byte_size() == 0 || std::memcmp(a.bytes(), b.bytes(), a.byte_size()) == 0);
}

TensorMap Sample() {
  TensorMap tensors;
  int salt = 0;
  for (const DType dtype :
       {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kBool}) {
    for (const Shape& shape : {Shape{2, 1, 3}, Shape{}, Shape{0}}) {
      Tensor tensor(dtype, shape);
      for (std::size_t i = 0; i < tensor.byte_size(); ++i) {
        const int byte = dtype == DType::kBool ? salt % 2 : 37 * salt % 256;
        tensor.bytes()[i] = static_cast<std::byte>(byte);
        ++salt;
      }
      tensors.emplace(fmt::format("{} {}", NameOf(dtype), ToString(shape)), tensor);
    }
  }
  return tensors;
}

TEST_F(NumpyFiles, WrittenArraysComeBackBitForBit) {
  for (const auto& [name, tensor] : Sample()) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(WriteNpy(Path("a.npy"), tensor).ok());
    const StatusOr<Tensor> read = ReadNpy(Path("a.npy"));
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_TRUE(HaveEqualBits(read.value(), tensor));
    if (tensor.rank() < 3) continue;  // every write waits for the disk
    ASSERT_TRUE(WriteNpy(Path("b.npy"), read.value()).ok());
    EXPECT_EQ(Slurp("a.npy"), Slurp("b.npy"));
  }
}

TEST_F(NumpyFiles, BytesAreThoseOfNumpy) {
  // numpy.save of version 1.24 for these arrays.
  Tensor matrix(DType::kF64, {2, 3});
  ASSERT_TRUE(WriteNpy(Path("a.npy"), matrix).ok());
  std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }";
  header += std::string(117 - header.size(), ' ') + "\n";
  EXPECT_EQ(Slurp("a.npy"), Npy(header, std::string(48, '\0')));

  ASSERT_TRUE(WriteNpy(Path("a.npy"), Tensor(DType::kBool, {})).ok());
  header = "{'descr': '|b1', 'fortran_order': False, 'shape': (), }";
  header += std::string(117 - header.size(), ' ') + "\n";
  EXPECT_EQ(Slurp("a.npy"), Npy(header, std::string(1, '\0')));

  ASSERT_TRUE(WriteNpy(Path("a.npy"), Tensor(DType::kBF16, {7})).ok());
  EXPECT_EQ(Slurp("a.npy").size(), 128U + 14U);
  EXPECT_NE(Slurp("a.npy").find("'<V2', 'fortran_order': False, 'shape': (7,), }"),
            std::string::npos);
}

TEST_F(NumpyFiles, OtherSpellingsOfTheSameHeaderAreRead) {
  const std::string two(2, '\1');
  for (const std::string& bytes : {
           Npy("{'descr': '|V2', 'fortran_order': False, 'shape': (1,)}\n", two),
           Npy("{\"shape\":(1 , ),'fortran_order':False,'descr':\"<V2\"}   \n", two),
           Npy("{'fortran_order': False, 'descr': '<V2', 'shape': (1,), }\n", two, 2),
           Npy("{ 'shape' : ( 1, ) , 'descr':'<V2', 'fortran_order': False , } \n", two, 3),
       }) {
    const StatusOr<Tensor> read = ReadNpyBytes(bytes);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read.value().dtype(), DType::kBF16);
    EXPECT_EQ(read.value().shape(), Shape{1});
  }
  const StatusOr<Tensor> read = ReadNpyBytes(Dict("'<i4'", "(2, 0, 1,)", ""));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().shape(), (Shape{2, 0, 1}));
}

struct HostileFile {
  std::string bytes;
  std::string problem;
};

std::vector<HostileFile> HostileArrays() {
  const std::string four(4, '\0');
  const std::string eight(8, '\0');
  const std::string rest = "'fortran_order': False, 'shape': (1,)";
  return {
      {"", "has 0 bytes, at least 10 were expected"},
      {"\x93NUMPY\x01", "has 7 bytes, at least 10 were expected"},
      {"\x93NUMPZ" + Dict("'<f4'", "(1,)", four).substr(6), "magic bytes of .npy"},
      {Npy("", "", 4), "format version 4.0, 1.0, 2.0 or 3.0 was expected"},
      {Npy("", "").replace(7, 1, "\1"), "format version 1.1"},
      {Npy("", "", 2).substr(0, 11), "has 11 bytes, at least 12 were expected"},
      {Npy("{}", "").replace(8, 1, "\3"), "header length is 3, at most 2 was expected"},
      {Npy("{}", "", 2).replace(11, 1, "\xff"), "header length is 4278190082, at most 2"},
      {Npy(std::string(1 << 21, ' '), "", 2), "header length is 2097152, at most 1048576"},
      {Npy("", ""), "header character 0: '{' was expected"},
      {Npy("{}\n", ""), "header key \"descr\" is missing"},
      {Npy("{'descr': '<f4', 'shape': ()}\n", four), "header key \"fortran_order\" is missing"},
      {Npy("{'descr': '<f4', 'fortran_order': False}\n", four), "header key \"shape\" is missing"},
      {Npy("{'descr': '<f4', 'descr': '<f4', " + rest + "}\n", four), "\"descr\" occurs twice"},
      {Npy("{'descr': '<f4', 'x': 1, " + rest + "}\n", four), "unknown header key \"x\""},
      {Npy("{'descr': '<f4', " + rest + "} x\n", four), "nothing but spaces and one newline"},
      {Npy("{'descr': '<f4', " + rest + "}", four), "nothing but spaces and one newline"},
      {Npy("{'descr': '<f4', " + rest + "}\n\n", four), "nothing but spaces and one newline"},
      {Npy("{'descr': '<f4' " + rest + "}\n", four), "header character 16: ',' or '}'"},
      {Npy("{descr: '<f4', " + rest + "}\n", four), "header character 1: a key in quotes"},
      {Npy("{'descr' '<f4', " + rest + "}\n", four), "header character 9: ':' was expected"},
      {Npy("{'descr': '<f4\n", four), "a descr in quotes was expected"},
      {Npy("{'de\\x73cr': '<f4', " + rest + "}\n", four), "a key in quotes was expected"},
      {Npy("{'\x1b[2J': '<f4', " + rest + "}\n", four), "unknown header key \"\\x1b[2J\""},
      {Npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}\n", four),
       "fortran_order is True, C order was expected"},
      {Npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}\n", four),
       "True or False was expected"},
      {Dict("'>f4'", "(1,)", four), "descr \">f4\" is big endian, little endian was expected"},
      {Dict("'<i8'", "(1,)", eight), "descr \"<i8\" is not supported, one of <f8, <f4"},
      {Dict("[('a', '<f4')]", "(1,)", four), "structured types are not supported"},
      {Dict("'<f4'", "(1)", four), "a tuple was expected, not a number"},
      {Dict("'<f4'", "1", four), "a tuple of extents was expected"},
      {Dict("'<f4'", "(-1,)", four), "a non-negative extent was expected"},
      {Dict("'<f4'", "(1L,)", four), "',' or ')' was expected"},
      {Dict("'<f4'", "(01,)", four), "a non-negative extent was expected"},
      {Dict("'<f4'", "(1,,)", four), "a non-negative extent was expected"},
      {Dict("'<f4'", "(9223372036854775808,)", four), "the extent is beyond 2^63 - 1"},
      {Dict("'<f4'", "(4294967296, 4294967296)", ""), "overflows 2^63 - 1 bytes"},
      {Dict("'<f4'", "(0, 4294967296, 4294967296)", ""), "overflows 2^63 - 1 bytes"},
      {Dict("'<f4'", "(1099511627776,)", four),
       "4 bytes follow the header, but f32 [1099511627776] needs 4398046511104"},
      {Dict("'<f4'", "(1,)", "abc"), "3 bytes follow the header, but f32 [1] needs 4"},
      {Dict("'<f4'", "(1,)", "abcde"), "5 bytes follow the header, but f32 [1] needs 4"},
      {Dict("'<f4'", "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)", four),
       "at most 32 axes were expected"},
      {Dict("'|b1'", "(2,)", "\1\3"), "boolean element 1 is byte 3, 0 or 1 was expected"},
  };
}

TEST_F(NumpyFiles, HostileArraysAreRefusedWithOneLine) {
  for (const HostileFile& hostile : HostileArrays()) {
    SCOPED_TRACE(hostile.problem);
    ExpectRefusal(ReadNpyBytes(hostile.bytes).status(), Path("x.npy"), hostile.problem);
  }
  ExpectRefusal(ReadNpy(Path("none.npy")).status(), Path("none.npy"), "no such file");
}

TEST_F(NumpyFiles, EveryTruncatedArrayIsRefused) {
  for (const int major : {1, 2, 3}) {
    const std::string bytes =
        Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", "abcdefgh", major);
    ASSERT_TRUE(ReadNpyBytes(bytes).ok());
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      SCOPED_TRACE(length);
      ExpectRefusal(ReadNpyBytes(bytes.substr(0, length)).status(), Path("x.npy"), "");
    }
  }
}

TEST_F(NumpyFiles, EveryDamagedHeaderByteIsRefusedOrConsistent) {
  const std::string bytes = Dict("'<f4'", "(2, 1)", "abcdefgh");
  int refused = 0;
  int accepted = 0;
  for (std::size_t i = 0; i + 8 < bytes.size(); ++i) {
    std::string damaged = bytes;
    for (const int flip : {1, 2, 4, 8, 16, 32, 64, 128, 255, 'f' ^ 'i'}) {
      damaged[i] = static_cast<char>(bytes[i] ^ flip);
      const StatusOr<Tensor> read = ReadNpyBytes(damaged);
      if (read.ok()) {
        EXPECT_EQ(read.value().byte_size(), 8U) << damaged;
        EXPECT_EQ(ByteSizeOf(read.value().dtype(), read.value().shape()), 8U) << damaged;
        ++accepted;
      } else {
        ExpectRefusal(read.status(), Path("x.npy"), "");
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(accepted, 0);  // <i4 for <f4
}

TEST_F(NumpyFiles, ArchivesComeBackAndAreDeterministic) {
  TensorMap sample = Sample();
  sample.emplace("\u00fcber/name", Tensor(DType::kF32, {1}));
  const std::string first = NpzBytes(sample);
  const StatusOr<TensorMap> read = ReadNpzBytes(first);
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read.value().size(), sample.size());
  for (const auto& [name, tensor] : sample) {
    EXPECT_TRUE(HaveEqualBits(read.value().at(name), tensor)) << name;
  }
  EXPECT_EQ(NpzBytes(read.value()), first);
  EXPECT_EQ(first.substr(0, 4), "PK\3\4");
  EXPECT_EQ(first.substr(8, 6), std::string("\0\0\0\0\x21\0", 6)) << "stored, 1980-01-01 00:00";

  const StatusOr<TensorMap> empty = ReadNpzBytes(NpzBytes({}));
  ASSERT_TRUE(empty.ok()) << empty.status().message();
  EXPECT_TRUE(empty.value().empty());
}

TEST_F(NumpyFiles, CompressedArchivesAreReadAndTheirDamageIsSeen) {
  const TensorMap tensors = {{"q", Tensor(DType::kF64, {1000})}};
  ASSERT_TRUE(WriteNpz(Path("c.npz"), tensors).ok());
  zip_t* const archive = zip_open(Path("c.npz").c_str(), 0, nullptr);
  ASSERT_NE(archive, nullptr);
  ASSERT_EQ(zip_set_file_compression(archive, 0, ZIP_CM_DEFLATE, 9), 0);
  ASSERT_EQ(zip_close(archive), 0);
  const std::string bytes = Slurp("c.npz");
  ASSERT_LT(bytes.size(), 500U);
  const StatusOr<TensorMap> read = ReadNpzBytes(bytes);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(HaveEqualBits(read.value().at("q"), tensors.at("q")));

  const std::size_t begin = bytes.find("q.npy") + 5;
  for (std::size_t i = begin; i < bytes.find("PK\1\2"); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(bytes[i] ^ 0x10);
    const StatusOr<TensorMap> result = ReadNpzBytes(damaged);
    if (result.ok()) {  // a bit that deflate does not use
      EXPECT_TRUE(HaveEqualBits(result.value().at("q"), tensors.at("q"))) << i;
    } else {
      ExpectRefusal(result.status(), Path("x.npz"), "member \"q.npy\"");
    }
  }
}

// Puts `value` at position `local` of the first local header and `central` of its directory entry.
std::string Patch(std::string bytes, std::size_t local, std::size_t central,
                  std::string_view value) {
  const std::size_t entry = bytes.find("PK\1\2");
  bytes.replace(local, value.size(), value);
  return bytes.replace(entry + central, value.size(), value);
}

std::string ReplaceAll(std::string bytes, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = bytes.find(from, at)) != std::string::npos; at += to.size()) {
    bytes.replace(at, from.size(), to);
  }
  return bytes;
}

TEST_F(NumpyFiles, HostileArchivesAreRefusedWithOneLine) {
  const TensorMap tensors = {{"k", Tensor(DType::kF32, {2})}, {"q", Tensor(DType::kF32, {3})}};
  const std::string good = NpzBytes(tensors);
  ASSERT_TRUE(ReadNpzBytes(good).ok());
  const auto number = [](std::uint32_t value) { return LittleEndian(value); };
  const std::string huge = number(0x7fffffff);
  std::string damaged = good;
  damaged[good.find("PK\3\4", 4) - 1] ^= 1;  // the last element of k
  std::string hidden = good;
  hidden.replace(good.size() - 14, 4, std::string("\1\0\1\0", 4));  // one member instead of two
  const std::vector<HostileFile> files = {
      {hidden, "is not a readable zip archive: Zip archive inconsistent"},
      {"", "is not a readable zip archive"},
      {"PK\3\4", "is not a readable zip archive"},
      {Dict("'<f4'", "(1,)", "abcd"), "is not a readable zip archive"},
      {damaged, "member \"k.npy\": is damaged: CRC error"},
      {Patch(good, 14, 16, number(0)), "member \"k.npy\": is damaged: CRC error"},
      {ReplaceAll(good, "q.npy", "k.npy"), "member \"k.npy\": occurs twice"},
      {ReplaceAll(good, "q.npy", "q.txt"), "member \"q.txt\": a name ending in .npy was expected"},
      {ReplaceAll(good, "q.npy", "b/../"), "member \"b/../\": a name ending in .npy was expected"},
      {Patch(good, 6, 8, "\1"), "member \"k.npy\": is encrypted"},
      {Patch(good, 8, 10, "\x0c"), "member \"k.npy\": has compression method 12"},
      {Patch(good, 22, 24, huge), "claims 2147483647 bytes out of 136 stored, exactly 136"},
      {Patch(good, 22, 24, number(7)), "claims 7 bytes out of 136 stored, exactly 136"},
      {Patch(good, 18, 20, huge), "claims 2147483647 compressed bytes, the archive has no more"},
      {Patch(Patch(good, 22, 24, huge), 8, 10, "\x08"),
       "claims 2147483647 bytes out of 136 deflated, at most 140352 were expected"},
      {Patch(good, 8, 10, "\x08"), "member \"k.npy\": is damaged"},
      {ReplaceAll(good, "(2,)", "(3,)"), "8 bytes follow the header, but f32 [3] needs 12"},
      {ReplaceAll(good, "NUMPY", "NUMPZ"), "member \"k.npy\": does not begin with the magic"},
      {ReplaceAll(good, "<f4", "<i8"), "member \"k.npy\": descr \"<i8\" is not supported"},
      {ReplaceAll(good, "False", " True"), "member \"k.npy\": fortran_order is True"},
  };
  for (const HostileFile& hostile : files) {
    SCOPED_TRACE(hostile.problem);
    ExpectRefusal(ReadNpzBytes(hostile.bytes).status(), Path("x.npz"), hostile.problem);
  }
  ExpectRefusal(ReadNpz(directory_).status(), directory_, "is not a regular file");
}

TEST_F(NumpyFiles, EveryTruncatedArchiveIsRefused) {
  const std::string bytes = NpzBytes({{"q", Tensor(DType::kF32, {2})}});
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    SCOPED_TRACE(length);
    ExpectRefusal(ReadNpzBytes(bytes.substr(0, length)).status(), Path("x.npz"), "");
  }
}

TEST_F(NumpyFiles, EveryDamagedArchiveByteIsRefusedOrConsistent) {
  const std::string bytes = NpzBytes({{"q", Tensor(DType::kF32, {2})}});
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    for (const int flip : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
      damaged[i] = static_cast<char>(bytes[i] ^ flip);
      const StatusOr<TensorMap> read = ReadNpzBytes(damaged);
      if (!read.ok()) {
        ExpectRefusal(read.status(), Path("x.npz"), "");
        continue;
      }
      for (const auto& [name, tensor] : read.value()) {
        EXPECT_TRUE(HaveEqualBits(tensor, Tensor(DType::kF32, {2}))) << "byte " << i;
      }
    }
  }
}

TEST_F(NumpyFiles, WritersRefuseWhatReadersWould) {
  Tensor bad(DType::kBool, {1});
  bad.bytes()[0] = std::byte{2};
  ExpectRefusal(WriteNpy(Path("w.npy"), bad), Path("w.npy"), "boolean element 0 is byte 2");
  ExpectRefusal(WriteNpy(Path("w.npy"), Tensor()), Path("w.npy"), "holds 0 bytes");
  ExpectRefusal(WriteNpz(Path("w.npz"), {{"m", bad}}), Path("w.npz"), "member \"m.npy\": boolean");
  ExpectRefusal(WriteNpz(Path("w.npz"), {{"", Tensor(DType::kF32, {})}}), Path("w.npz"),
                "the name is not possible");
  ExpectRefusal(WriteNpz(Path("w.npz"), {{"\xff", Tensor(DType::kF32, {})}}), Path("w.npz"),
                "the name is not possible");
  ExpectRefusal(WriteNpz(Path("no/w.npz"), {}), Path("no/w.npz"), "cannot be created");
  EXPECT_TRUE(fs::is_empty(directory_));
}

}  // namespace
}  // namespace attest
